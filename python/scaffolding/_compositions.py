"""Functions that are a line or two of other ops. All of them are methods of Tensor where torch has the method."""

import functools

from . import _core
from ._core import Tensor

__all__ = []


def exporter(names):
    """(export, function) of a module: decorators that add to its __all__; export makes a method of Tensor too."""

    def function(function):
        names.append(function.__name__)
        return function

    def export(exported):
        setattr(Tensor, exported.__name__, exported)
        return function(exported)

    return export, function


def in_place(function):
    """The function that writes over its first argument, in that one's dtype."""
    name = function.__name__ + "_"

    @functools.wraps(function)
    def write(self, *args, **kwargs):
        result = function(self.clone() if self.requires_grad else self, *args, **kwargs)
        if result.shape != self.shape:
            raise ValueError(
                f"{name}: the result has shape {list(result.shape)}, self {list(self.shape)}; use {name[:-1]}"
            )
        return self.copy_(result)

    write.__name__ = write.__qualname__ = name
    write.__doc__ = f"{name[:-1]}, written over self."
    return write


_export, _function = exporter(__all__)


# From so many elements on, walking over memory twice costs more than finding the fused function.
_WORTH_FUSING = 1 << 16


@functools.lru_cache(maxsize=32)
def _fused(function, value):
    from ._fuse import fuse

    return fuse(lambda x, a, b: function(x, a, b, value))


def _in_one_pass(function, x, a, b, value):
    """function of three tensors; large ones on the host are read once."""
    if type(x) is not Tensor or x.numel() < _WORTH_FUSING or x.device.type != "cpu" or type(value) not in (int, float):
        return function(x, a, b, value)
    same = all(type(t) is Tensor and t.shape == x.shape and t.dtype == x.dtype for t in (a, b))
    plain = same and x.dtype.is_floating_point and x.dtype.itemsize > 1
    if not plain or any(t.requires_grad for t in (x, a, b)):  # backward would compute it again
        return function(x, a, b, value)
    return _fused(function, value)(x, a, b)


def _product_added(x, a, b, value):
    return _core.add(x, a * b, alpha=value)


def _quotient_added(x, a, b, value):
    return _core.add(x, a / b, alpha=value)


@_export
def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2.

    >>> sf.addcmul(sf.tensor([1.]), sf.tensor([2.]), sf.tensor([3.]), value=10)
    tensor([61.])
    """
    return _in_one_pass(_product_added, input, tensor1, tensor2, value)


@_export
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2.

    >>> sf.addcdiv(sf.tensor([1.]), sf.tensor([6.]), sf.tensor([3.]), value=10)
    tensor([21.])
    """
    return _in_one_pass(_quotient_added, input, tensor1, tensor2, value)


@_export
def rsub(input, other, *, alpha=1):
    """other - alpha * input.

    >>> sf.rsub(sf.tensor([1, 2]), 10)
    tensor([9, 8])
    """
    return _core.sub(other, input, alpha=alpha)


@_export
def clamp_min(input, min):
    """input, at least min.

    >>> sf.clamp_min(sf.tensor([-2., 3.]), 0)
    tensor([0., 3.])
    """
    return _core.clamp(input, min=min)


@_export
def clamp_max(input, max):
    """input, at most max.

    >>> sf.clamp_max(sf.tensor([-2., 3.]), 1)
    tensor([-2.,  1.])
    """
    return _core.clamp(input, max=max)


@_export
def clamp_min_(self, min):
    """self, at least min, in place."""
    return self.clamp_(min=min)


@_export
def clamp_max_(self, max):
    """self, at most max, in place."""
    return self.clamp_(max=max)


def addcmul_(self, tensor1, tensor2, *, value=1):
    """self += value * tensor1 * tensor2."""
    return self.add_(tensor1 * tensor2, alpha=value)


def addcdiv_(self, tensor1, tensor2, *, value=1):
    """self += value * tensor1 / tensor2."""
    return self.add_(tensor1 / tensor2, alpha=value)


Tensor.addcmul_ = addcmul_
Tensor.addcdiv_ = addcdiv_


# ---- joining and splitting


@_export
def tensor_split(input, indices_or_sections, dim=0):
    """Pieces of input along dim. indices_or_sections: a number of nearly equal ones, or the indices before which it is
    cut.

    >>> sf.tensor_split(sf.arange(5), 3)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    n = input.shape[dim]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise ValueError(f"tensor_split: the number of sections must be positive, got {indices_or_sections}")
        size, longer = divmod(n, indices_or_sections)
        cuts = [i * size + (i if i < longer else longer) for i in range(1, indices_or_sections)]
    else:
        cuts = [max(i + n, 0) if i < 0 else i for i in map(int, indices_or_sections)]
    starts, ends = [0, *cuts], [*cuts, n]
    return tuple(_core.slice(input, dim, a, b if b > a else a) for a, b in zip(starts, ends))


@_function
def hstack(tensors):
    """The tensors joined along their second dimension, 1-D ones along the first.

    >>> sf.hstack([sf.tensor([1, 2]), sf.tensor([3])])
    tensor([1, 2, 3])
    """
    tensors = [t.reshape(1) if t.dim() == 0 else t for t in tensors]
    return _core.cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@_function
def vstack(tensors):
    """The tensors joined along their first dimension; 1-D ones become rows.

    >>> sf.vstack([sf.tensor([1, 2]), sf.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return _core.cat([t.reshape(1, -1) if t.dim() < 2 else t for t in tensors], 0)


@_export
def ravel(input):
    """All elements of input in one dimension.

    >>> sf.ravel(sf.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    return input.reshape(-1)


@_export
def diag(input, diagonal=0):
    """The diagonal of a matrix, or a matrix with a vector, input, on its diagonal.

    >>> sf.diag(sf.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if input.dim() == 2:
        return _core.diagonal(input, diagonal)
    if input.dim() != 1:
        raise ValueError(f"diag: needs one or two dimensions, got shape {list(input.shape)}")
    n = len(input) + abs(diagonal)
    matrix = _core.zeros(n, n, dtype=input.dtype, device=input.device)
    _core.diagonal(matrix, diagonal).copy_(input)
    return matrix


@_export
def trace(input):
    """The sum of the diagonal of input, a matrix.

    >>> sf.trace(sf.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    return _core.diagonal(input).sum()


def fill_diagonal_(self, fill_value):
    """Sets the main diagonal of a matrix to fill_value."""
    _core.diagonal(self).fill_(fill_value)
    return self


Tensor.fill_diagonal_ = fill_diagonal_


# ---- counting and comparing neighbours


@_export
def count_nonzero(input, dim=None):
    """How many elements of input are not 0, in all or along dim.

    >>> sf.count_nonzero(sf.tensor([[0, 1], [2, 3]]), dim=1)
    tensor([1, 2])
    """
    return _core.sum(_core.ne(input, 0), dim)


@_export
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along dim, n times; prepend and append are first joined to input along dim.

    >>> sf.diff(sf.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    if prepend is not None or append is not None:
        input = _core.cat([t for t in (prepend, input, append) if t is not None], dim)
    for _ in range(n):
        size = input.shape[dim]
        a, b = _core.slice(input, dim, 1, size), _core.slice(input, dim, 0, size - 1 if size else 0)
        input = _core.ne(a, b) if input.dtype is _core.bool else a - b
    return input


@_export
def frac(input):
    """What is left of input after trunc.

    >>> sf.frac(sf.tensor([1.5, -2.25]))
    tensor([ 0.5000, -0.2500])
    """
    return input - _core.trunc(input)


@_export
def frac_(self):
    """What is left of self after trunc, in place."""
    return self.sub_(_core.trunc(self))


def logical_not_(self):
    """Whether self is 0, in place and in self's dtype."""
    return self.copy_(_core.logical_not(self))


Tensor.logical_not_ = logical_not_


# ---- reductions into slices


def _index_reduce(op, dim, index, source, reduce, include_self):
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ValueError(f"index_reduce: reduce must be 'prod', 'mean', 'amax' or 'amin', got {reduce!r}")
    if index.dim() != 1:
        raise ValueError(f"index_reduce: index must have one dimension, got shape {list(index.shape)}")
    if index.shape[0] != source.shape[dim]:
        raise ValueError(
            f"index_reduce: index must name each of the {source.shape[dim]} slices of source, got {index.shape[0]}"
        )
    sizes = [1] * source.dim()
    sizes[dim] = -1
    return op(dim, index.reshape(sizes).expand(source.shape), source, reduce, include_self)


@_export
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """input with slices of source reduced (reduce: "prod", "mean", "amax" or "amin") into the slices of dim that
    index[n] names; without include_self input's own slice does not take part.

    >>> x, index = sf.ones(2), sf.tensor([0, 0, 1])
    >>> sf.index_reduce(x, 0, index, sf.tensor([2., 3., 4.]), "prod")
    tensor([6., 4.])
    """
    return _index_reduce(input.scatter_reduce, dim, index, source, reduce, include_self)


def index_reduce_(self, dim, index, source, reduce, *, include_self=True):
    """index_reduce, written over self."""
    return _index_reduce(self.scatter_reduce_, dim, index, source, reduce, include_self)


Tensor.index_reduce_ = index_reduce_
