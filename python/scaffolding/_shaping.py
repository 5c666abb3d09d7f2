"""Views, copies and pieces of tensors, made of reshape, slice, cat and indexing."""

import math

from . import _core
from ._compositions import exporter, in_place, tensor_split
from ._core import Tensor
from ._overloads import broadcast_shapes

__all__ = []
_export, _function = exporter(__all__)


# ---- flips, turns and splits by rows, columns and depth


def _at_least(name, input, count):
    if input.dim() < count:
        raise ValueError(f"{name}: needs {count} dimension{'s'[: count > 1]} or more, got shape {list(input.shape)}")


@_export
def fliplr(input):
    """input's columns in reverse: dimension 1.

    >>> sf.fliplr(sf.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    _at_least("fliplr", input, 2)
    return _core.flip(input, [1])


@_export
def flipud(input):
    """input's rows in reverse: dimension 0.

    >>> sf.flipud(sf.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    _at_least("flipud", input, 1)
    return _core.flip(input, [0])


@_export
def rot90(input, k=1, dims=(0, 1)):
    """input turned by 90 degrees k times, from the first of dims towards the second.

    >>> sf.rot90(sf.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    first, second = dims
    _at_least("rot90", input, 2)
    if (first - second) % input.dim() == 0:
        raise ValueError(f"rot90: dims must be two dimensions, got {list(dims)}")
    k %= 4
    if k == 0:
        return input.clone()
    if k == 2:
        return _core.flip(input, [first, second])
    return _core.transpose(_core.flip(input, [second if k == 1 else first]), first, second)


@_export
def hsplit(input, indices_or_sections):
    """Pieces of input along dimension 1, of a vector along 0: tensor_split, whose indices_or_sections must divide the
    size where it is a number.

    >>> sf.hsplit(sf.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    _at_least("hsplit", input, 1)
    return _even_split("hsplit", input, indices_or_sections, 0 if input.dim() == 1 else 1)


@_export
def vsplit(input, indices_or_sections):
    """Pieces of input along dimension 0; indices_or_sections as in hsplit.

    >>> sf.vsplit(sf.tensor([[1, 2], [3, 4]]), 2)
    (tensor([[1, 2]]), tensor([[3, 4]]))
    """
    _at_least("vsplit", input, 2)
    return _even_split("vsplit", input, indices_or_sections, 0)


@_export
def dsplit(input, indices_or_sections):
    """Pieces of input along dimension 2; indices_or_sections as in hsplit.

    >>> [part.shape[2] for part in sf.dsplit(sf.zeros(2, 2, 6), [2, 3])]
    [2, 1, 3]
    """
    _at_least("dsplit", input, 3)
    return _even_split("dsplit", input, indices_or_sections, 2)


def _even_split(name, input, sections, dim):
    if isinstance(sections, int) and (sections <= 0 or input.shape[dim] % sections):
        raise ValueError(f"{name}: dimension {dim} of {list(input.shape)} cannot be split into {sections} equal pieces")
    return tensor_split(input, sections, dim)


@_export
def split_with_sizes(input, split_sizes, dim=0):
    """Pieces of input along dim, of split_sizes.

    >>> sf.split_with_sizes(sf.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    return input.split(list(split_sizes), dim)


@_export
def unsafe_split(input, split_size, dim=0):
    """split(input, split_size, dim): pieces are views here, and writing to one is safe."""
    return input.split(split_size, dim)


@_export
def unsafe_split_with_sizes(input, split_sizes, dim=0):
    """split_with_sizes(input, split_sizes, dim): pieces are views here, and writing to one is safe."""
    return split_with_sizes(input, split_sizes, dim)


@_export
def unsafe_chunk(input, chunks, dim=0):
    """chunk(input, chunks, dim): pieces are views here, and writing to one is safe."""
    return input.chunk(chunks, dim)


# ---- diagonals, and slices written into a copy


@_export
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """input's last dimension as the diagonals of matrices of zeros, which become dimensions dim1 and dim2. offset:
    above (positive) or below the main diagonal.

    >>> sf.diag_embed(sf.ones(5, 3)).shape
    scaffolding.Size([5, 3, 3])
    """
    count, size = input.dim() + 1, input.shape[-1] + abs(offset)
    first, second = dim1 % count, dim2 % count
    if first == second:
        raise ValueError(f"diag_embed: dim1 and dim2 must differ, got {dim1} and {dim2}")
    result = _core.zeros(*input.shape[:-1], size, size, dtype=input.dtype, device=input.device)
    _core.diagonal(result, offset, -2, -1).copy_(input)
    return result.movedim((-2, -1), (first, second))


@_export
def diagflat(input, offset=0):
    """A matrix with all elements of input on its diagonal, or offset above (below where it is negative).

    >>> sf.diagflat(sf.tensor([1, 2]), 1)
    tensor([[0, 1, 0],
            [0, 0, 2],
            [0, 0, 0]])
    """
    return diag_embed(input.reshape(-1), offset)


def _written(input, src, view):
    """A copy of input with src in a view of it."""
    result = input.clone()
    place = view(result)
    if place.shape != src.shape:
        raise ValueError(f"src must have shape {list(place.shape)}, got {list(src.shape)}")
    place.copy_(src)
    return result


@_export
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of input with src on the diagonal of dimensions dim1 and dim2, or offset above it.

    >>> sf.diagonal_scatter(sf.zeros(2, 2), sf.tensor([1., 2.]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return _written(input, src, lambda x: _core.diagonal(x, offset, dim1, dim2))


@_export
def select_scatter(input, src, dim, index):
    """A copy of input with src at index of dim.

    >>> sf.select_scatter(sf.zeros(2, 2), sf.tensor([1., 2.]), 0, 1)
    tensor([[0., 0.],
            [1., 2.]])
    """
    return _written(input, src, lambda x: x.select(dim, index))


@_export
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of input with src in [start : end : step] of dim.

    >>> sf.slice_scatter(sf.zeros(4), sf.ones(2), 0, 1, 3)
    tensor([0., 1., 1., 0.])
    """
    place = [slice(None)] * input.dim()
    place[dim] = slice(start, end, step)
    return _written(input, src, lambda x: x[tuple(place)])


@_export
def as_strided_scatter(input, src, size, stride, storage_offset=0):
    """A copy of input with src in its as_strided view of size, stride and storage_offset.

    >>> sf.as_strided_scatter(sf.zeros(4), sf.ones(2), (2,), (2,))
    tensor([1., 0., 1., 0.])
    """
    return _written(input.contiguous(), src, lambda x: x.as_strided(size, stride, storage_offset))


@_export
def masked_scatter(input, mask, source):
    """A copy of input with elements of source, in order, where mask is True.

    >>> mask = sf.tensor([True, False, True])
    >>> sf.masked_scatter(sf.zeros(3), mask, sf.tensor([1., 2.]))
    tensor([1., 0., 2.])
    """
    shape = broadcast_shapes(mask.shape, input.shape)
    mask, result = mask.expand(shape), input.expand(shape).clone()
    count = int(mask.sum().item())
    if source.numel() < count:
        raise ValueError(f"masked_scatter: mask has {count} places, source only {source.numel()} elements")
    places = _core.cumsum(mask.reshape(-1).to(_core.int64), 0) - 1
    values = source.reshape(-1)
    if not count:
        return result
    taken = _core.index_select(values, 0, _core.clamp(places, 0, source.numel() - 1)).reshape(mask.shape)
    return _core.where(mask, taken.to(input.dtype), result)


Tensor.masked_scatter_ = in_place(masked_scatter)


# ---- elements by number


def _numbers(name, input, index):
    if index.dtype.is_floating_point or index.dtype is _core.bool:
        raise TypeError(f"{name}: index must have integers, got {index.dtype}")
    flat = index.reshape(-1).to(_core.int64)
    if flat.numel():
        low, high = int(flat.min().item()), int(flat.max().item())
        if low < -input.numel() or high >= input.numel():
            raise IndexError(f"{name}: index {low if low < 0 else high} is out of range for {input.numel()} elements")
    return _core.where(flat < 0, flat + input.numel(), flat)


@_export
def take(input, index):
    """Elements of input by their number in row-major order; the shape is index's.

    >>> sf.take(sf.tensor([[1, 2], [3, 4]]), sf.tensor([0, 3]))
    tensor([1, 4])
    """
    return _core.index_select(input.reshape(-1), 0, _numbers("take", input, index)).reshape(index.shape)


@_export
def put(input, index, source, accumulate=False):
    """A copy of input with elements of source at places index, numbered in row-major order; added to what is there if
    accumulate.

    >>> sf.put(sf.zeros(2, 2), sf.tensor([0, 3]), sf.tensor([1., 2.]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    places, values = _numbers("put", input, index), source.reshape(-1)
    if values.numel() != places.numel():
        raise ValueError(f"put: index has {places.numel()} elements, source {values.numel()}")
    flat = input.reshape(-1)
    if accumulate:
        return _core.index_add(flat, 0, places, values.to(input.dtype)).reshape(input.shape)
    return _core.scatter(flat, 0, places, values.to(input.dtype)).reshape(input.shape)


Tensor.put_ = in_place(put)


@_export
def argwhere(input):
    """Where elements of input are not 0: (count, dimensions) of int64.

    >>> sf.argwhere(sf.tensor([[0, 1], [2, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return input.nonzero()


@_export
def nonzero_static(input, *, size, fill_value=-1):
    """The first `size` rows of nonzero(input), with rows of fill_value where there are fewer.

    >>> sf.nonzero_static(sf.tensor([0, 5, 0, 7]), size=3)
    tensor([[ 1],
            [ 3],
            [-1]])
    """
    found = input.nonzero()[:size]
    missing = size - found.shape[0]
    if missing <= 0:
        return found
    rest = _core.full((missing, input.dim()), fill_value, dtype=_core.int64, device=input.device)
    return _core.cat([found, rest], 0)


@_function
def unravel_index(indices, shape):
    """Row-major numbers as a tuple of indices, one tensor for each dimension of shape.

    >>> sf.unravel_index(sf.tensor([3, 5]), (2, 3))
    (tensor([1, 1]), tensor([0, 2]))
    """
    shape = [shape] if isinstance(shape, int) else list(shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"unravel_index: sizes must not be negative, got {shape}")
    places, rest = [], _numbers("unravel_index", _core.empty(()).expand(shape), indices).reshape(indices.shape)
    for n in reversed(shape):
        places.append(_core.remainder(rest, n))
        rest = _core.floor_divide(rest, n)
    return tuple(reversed(places))


def _triangle(inside, row, col, dtype, device):
    places = [(r, c) for r in range(row) for c in range(col) if inside(r, c)]
    both = [[r for r, _ in places], [c for _, c in places]]
    return _core.tensor(both, dtype=dtype or _core.int64, device=device).reshape(2, len(places))


@_function
def tril_indices(row, col, offset=0, *, dtype=None, device=None):
    """(2, n) row and column numbers of the lower triangle of [row, col], up to diagonal `offset`, in dtype (int64) on
    device.

    >>> sf.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle(lambda r, c: c - r <= offset, row, col, dtype, device)


@_function
def triu_indices(row, col, offset=0, *, dtype=None, device=None):
    """(2, n) row and column numbers of the upper triangle of [row, col], from diagonal `offset`, in dtype (int64) on
    device.

    >>> sf.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _triangle(lambda r, c: c - r >= offset, row, col, dtype, device)


# ---- sorting, sizes and copies


@_export
def msort(input):
    """input sorted along dimension 0.

    >>> sf.msort(sf.tensor([[3, 1], [2, 4]]))
    tensor([[2, 1],
            [3, 4]])
    """
    return _core.sort(input, 0)[0]


@_export
def narrow_copy(input, dim, start, length):
    """narrow(input, dim, start, length), as a copy.

    >>> sf.narrow_copy(sf.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    return input.narrow(dim, start, length).clone()


def sum_to_size(self, *size):
    """Summed over dimensions that broadcasting had added or stretched, down to size."""
    size = list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)
    extra = self.dim() - len(size)
    kept = list(self.shape[extra:]) if extra >= 0 else []
    if extra < 0 or any(want not in (1, have) for want, have in zip(size, kept)):
        raise ValueError(f"sum_to_size: {size} does not broadcast to {list(self.shape)}")
    dims = list(range(extra)) + [extra + i for i, n in enumerate(size) if n == 1 and kept[i] != 1]
    return (self.sum(dims, keepdim=True) if dims else self).reshape(size)


Tensor.sum_to_size = sum_to_size


def new_empty_strided(self, size, stride, *, dtype=None, device=None):
    """A tensor without values of this size and stride, of self's dtype and device."""
    return _core.empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device)


Tensor.new_empty_strided = new_empty_strided


# ---- the shape of self, in place


def _in_place_view(name):
    view = getattr(Tensor, name)

    def write(self, *args, **kwargs):
        if self.requires_grad:
            raise RuntimeError(f"{name}_: a tensor with gradients keeps its shape; use x = x.{name}(...)")
        self.data = view(self, *args, **kwargs)
        return self

    write.__name__ = write.__qualname__ = name + "_"
    write.__doc__ = f"{name}, which becomes self's own shape; the memory is the same."
    setattr(Tensor, name + "_", write)


for _name in ("squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims", "as_strided"):
    _in_place_view(_name)


# ---- sequences


@_function
def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False):
    """`steps` numbers from base^start to base^end, whose logarithms are equally far apart; dtype,
    device and requires_grad as in linspace.

    >>> sf.logspace(0, 3, 4)
    tensor([   1.,   10.,  100., 1000.])
    """
    if steps < 0:
        raise ValueError(f"logspace: steps must not be negative, got {steps}")
    exponents = _core.linspace(float(start), float(end), steps, dtype=_core.float64, device=device)
    values = _core.exp(exponents * math.log(base)) if base > 0 else _core.pow(float(base), exponents)
    values = values.to(dtype or _core.get_default_dtype())
    return values.requires_grad_() if requires_grad else values
