"""Tensors joined: rows, columns and depth, blocks, combinations of elements and powers as columns."""

import itertools

from . import _core
from ._compositions import exporter, vstack
from ._core import Tensor

__all__ = []
_, _function = exporter(__all__)


def _of_tensors(function):
    """Takes one tensor, several, or a list of them; several give a tuple."""

    def each(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return function(tensors[0])
        if len(tensors) == 1:
            tensors = tensors[0]
        return tuple(function(t) for t in tensors)

    each.__name__ = each.__qualname__ = function.__name__
    each.__doc__ = function.__doc__
    return _function(each)


@_of_tensors
def atleast_1d(tensor):
    """A tensor, or several, with one dimension or more.

    >>> sf.atleast_1d(sf.tensor(1)).shape
    scaffolding.Size([1])
    """
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


@_of_tensors
def atleast_2d(tensor):
    """A tensor, or several, with two dimensions or more; a vector becomes a row.

    >>> sf.atleast_2d(sf.tensor([1, 2])).shape
    scaffolding.Size([1, 2])
    """
    return tensor.reshape(1, -1) if tensor.dim() < 2 else tensor


@_of_tensors
def atleast_3d(tensor):
    """A tensor, or several, with three dimensions or more: a vector becomes (1, n, 1), a matrix (n, m, 1).

    >>> sf.atleast_3d(sf.tensor([1, 2])).shape
    scaffolding.Size([1, 2, 1])
    """
    if tensor.dim() < 2:
        return tensor.reshape(1, -1, 1)
    return tensor.unsqueeze(-1) if tensor.dim() == 2 else tensor


@_function
def column_stack(tensors):
    """The tensors joined along dimension 1; vectors become columns.

    >>> sf.column_stack([sf.tensor([1, 2]), sf.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    return _core.cat([t.reshape(-1, 1) if t.dim() < 2 else t for t in tensors], 1)


row_stack = vstack
__all__.append("row_stack")


@_function
def dstack(tensors):
    """The tensors joined along dimension 2, after atleast_3d.

    >>> sf.dstack([sf.tensor([1, 2]), sf.tensor([3, 4])]).shape
    scaffolding.Size([1, 2, 2])
    """
    return _core.cat([atleast_3d(t) for t in tensors], 2)


@_function
def block_diag(*tensors):
    """A matrix with the given ones (or vectors, as rows) along its diagonal, zeros elsewhere.

    >>> sf.block_diag(sf.tensor([[1, 2]]), sf.tensor([[3]]))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    blocks = [atleast_2d(t) for t in tensors]
    for block in blocks:
        if block.dim() != 2:
            raise ValueError(f"block_diag: needs at most two dimensions, got shape {list(block.shape)}")
    width, rows, at = sum(b.shape[1] for b in blocks), [], 0
    for block in blocks:
        rows.append(_core.pad(block, [at, width - at - block.shape[1]]))
        at += block.shape[1]
    return _core.cat(rows, 0)


@_function
def cartesian_prod(*tensors):
    """Every combination of elements of vectors, (combinations, vectors); of one vector, that one.

    >>> sf.cartesian_prod(sf.tensor([1, 2]), sf.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    if len(tensors) == 1:
        return tensors[0]
    sizes = [t.shape[0] for t in tensors]
    columns = []
    for i, vector in enumerate(tensors):
        if vector.dim() != 1:
            raise ValueError(f"cartesian_prod: needs vectors, got shape {list(vector.shape)}")
        columns.append(vector.reshape([-1 if j == i else 1 for j in range(len(sizes))]).expand(sizes).reshape(-1))
    return _core.stack(columns, 1)


@_function
def combinations(input, r=2, with_replacement=False):
    """Every choice of r elements of a vector, input, in order, (choices, r); with r 0 an empty vector.
    with_replacement: whether an element may be chosen again.

    >>> sf.combinations(sf.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if input.dim() != 1:
        raise ValueError(f"combinations: needs a vector, got shape {list(input.shape)}")
    if r < 0:
        raise ValueError(f"combinations: r must not be negative, got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(choose(range(input.shape[0]), r))
    if r == 0:
        return _core.empty(0, dtype=input.dtype, device=input.device)
    if not places:
        return _core.empty(0, r, dtype=input.dtype, device=input.device)
    index = _core.tensor([i for place in places for i in place], dtype=_core.int64, device=input.device)
    return _core.index_select(input, 0, index).reshape(len(places), r)


@_function
def vander(x, N=None, increasing=False):
    """Powers of a vector's elements as columns, (n, N): the highest first, or from x^0 if increasing.

    >>> sf.vander(sf.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    if x.dim() != 1:
        raise ValueError(f"vander: needs a vector, got shape {list(x.shape)}")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise ValueError(f"vander: N must not be negative, got {N}")
    powers = range(count) if increasing else range(count - 1, -1, -1)
    if not count:
        return _core.empty(x.shape[0], 0, dtype=x.dtype, device=x.device)
    return _core.stack([_core.ones_like(x) if p == 0 else x**p for p in powers], 1)
