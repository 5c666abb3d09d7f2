"""How many values lie between edges, with their weights."""

from . import _core
from ._overloads import _named

__all__ = ["histogram"]


def histogram(input, bins, *, range=None, weight=None, density=False):
    """(hist, bin_edges) of input's values in input's dtype. bins: how many of one width over range, by default from the
    least to the greatest value; or the edges, growing. The last bin has its upper edge; values outside count nowhere.
    weight: how much each value counts.
    density: divided so that the integral is 1.

    >>> sf.histogram(sf.tensor([1., 2., 2., 4.]), bins=3)
    scaffolding.return_types.histogram(
    hist=tensor([1., 2., 1.]),
    bin_edges=tensor([1., 2., 3., 4.]))
    """
    values = input.detach().flatten()
    if isinstance(bins, _core.Tensor):
        edges = bins.to(values.dtype)
    else:
        if range is None:
            range = (values.min().item(), values.max().item()) if len(values) else (0, 0)
        low, high = range
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = _core.linspace(low, high, bins + 1, dtype=values.dtype)
    count = len(edges) - 1
    at = _core.searchsorted(edges, values, right=True) - 1
    at = _core.where(values == edges[-1], _core.full_like(at, count - 1), at)
    inside = (at >= 0) & (at < count)
    weights = _core.ones_like(values) if weight is None else weight.detach().flatten().to(values.dtype)
    hist = _core.zeros(count, dtype=values.dtype).index_add(0, at[inside], weights[inside])
    if density:
        hist = hist / (hist.sum() * (edges[1:] - edges[:-1]))
    return _named("histogram", (hist, edges))
