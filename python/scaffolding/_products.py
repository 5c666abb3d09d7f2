"""Products of vectors and matrices and statistics made of them, from matmul, sum and indexing."""

from . import _core
from ._compositions import exporter, in_place
from ._core import Tensor
from ._overloads import broadcast_shapes

__all__ = []
_export, _function = exporter(__all__)


def _dims(name, what, tensor, count):
    if tensor.dim() != count:
        raise ValueError(
            f"{name}: {what} must have {count} dimension{'s'[: count > 1]}, got shape {list(tensor.shape)}"
        )


def _scaled(input, product, beta, alpha):
    """beta * input + alpha * product; with beta 0 input's nan and inf do not count."""
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.expand(broadcast_shapes(input.shape, product.shape))
    return (input if beta == 1 else input * beta) + product


@_export
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec): mat (n, m), vec (m,).

    >>> sf.addmv(sf.tensor([1.]), sf.tensor([[1., 2.]]), sf.tensor([3., 4.]))
    tensor([12.])
    """
    _dims("addmv", "mat", mat, 2)
    _dims("addmv", "vec", vec, 1)
    return _scaled(input, _core.mv(mat, vec), beta, alpha)


@_export
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta * input + alpha * outer(vec1, vec2): (n, m) of vectors of n and m.

    >>> sf.addr(sf.zeros(2, 2), sf.tensor([1., 2.]), sf.tensor([3., 4.]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    return _scaled(input, _core.outer(vec1, vec2), beta, alpha)


@_export
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * sum over b of batch1[b] @ batch2[b]: (b, n, k) and (b, k, m) to (n, m).

    >>> sf.addbmm(sf.zeros(1, 1), sf.ones(4, 1, 3), sf.ones(4, 3, 1))
    tensor([[12.]])
    """
    _dims("addbmm", "batch1", batch1, 3)
    _dims("addbmm", "batch2", batch2, 3)
    if batch1.shape[0] != batch2.shape[0] or batch1.shape[2] != batch2.shape[1]:
        raise ValueError(f"addbmm: needs (b, n, k) and (b, k, m), got {list(batch1.shape)} and {list(batch2.shape)}")
    rows = batch1.permute(1, 0, 2).reshape(batch1.shape[1], -1)
    return _scaled(input, _core.matmul(rows, batch2.reshape(-1, batch2.shape[2])), beta, alpha)


addmv_ = _export(in_place(addmv))
Tensor.addr_ = in_place(addr)
Tensor.addbmm_ = in_place(addbmm)


@_export
def inner(input, other):
    """Sums of products over the last dimensions: input (..., k) and other (+, k) to (..., +); a number scales.

    >>> sf.inner(sf.tensor([1, 2]), sf.tensor([3, 4]))
    tensor(11)
    """
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise ValueError(f"inner: the last dimensions must agree, got {list(input.shape)} and {list(other.shape)}")
    return tensordot(input, other, ([-1], [-1]))


@_export
def vdot(input, other):
    """The dot product of two vectors, input and other.

    >>> sf.vdot(sf.tensor([1, 2]), sf.tensor([3, 4]))
    tensor(11)
    """
    return _core.dot(input, other)


@_export
def ger(input, vec2):
    """outer(input, vec2).

    >>> sf.ger(sf.tensor([1, 2]), sf.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    return _core.outer(input, vec2)


def _axes(dims, a, b):
    """The dimensions of a and of b that are summed, as lists of numbers from 0."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.dim(), b.dim()):
            raise ValueError(f"tensordot: dims must be in 0 .. {min(a.dim(), b.dim())}, got {dims}")
        return list(range(a.dim() - dims, a.dim())), list(range(dims))
    first, second = dims
    found = []
    for axes, tensor in ((first, a), (second, b)):
        axes = [axes] if isinstance(axes, int) else list(axes)
        for axis in axes:
            if not -tensor.dim() <= axis < tensor.dim():
                raise ValueError(f"tensordot: dimension {axis} of shape {list(tensor.shape)} does not exist")
        axes = [axis % tensor.dim() for axis in axes]
        if len(set(axes)) != len(axes):
            raise ValueError(f"tensordot: dims name a dimension twice: {axes}")
        found.append(axes)
    return found


@_function
def tensordot(a, b, dims=2):
    """Sums of products over dims: a number n, the last n dimensions of a and the first n of b, or two lists.

    >>> sf.tensordot(sf.ones(2, 3, 4), sf.ones(3, 4, 5), dims=2).shape
    scaffolding.Size([2, 5])
    """
    of_a, of_b = _axes(dims, a, b)
    if [a.shape[i] for i in of_a] != [b.shape[i] for i in of_b]:
        raise ValueError(
            f"tensordot: dimensions {of_a} of {list(a.shape)} and {of_b} of {list(b.shape)} must be equally long"
        )
    rest_a = [i for i in range(a.dim()) if i not in of_a]
    rest_b = [i for i in range(b.dim()) if i not in of_b]
    shape = [a.shape[i] for i in rest_a] + [b.shape[i] for i in rest_b]
    size = 1
    for i in of_a:
        size *= a.shape[i]
    rows = columns = 1
    for i in rest_a:
        rows *= a.shape[i]
    for i in rest_b:
        columns *= b.shape[i]
    left, right = _permuted(a, rest_a + of_a), _permuted(b, of_b + rest_b)
    return _core.matmul(left.reshape(rows, size), right.reshape(size, columns)).reshape(shape)


def _permuted(tensor, order):
    return tensor.permute(*order) if order else tensor


@_export
def kron(input, other):
    """Kronecker's product: every element of input times the whole of other, side by side.

    >>> sf.kron(sf.tensor([1, 2]), sf.tensor([1, 10]))
    tensor([ 1, 10,  2, 20])
    """
    count = max(input.dim(), other.dim())
    a = input.reshape([1] * (count - input.dim()) + list(input.shape))
    b = other.reshape([1] * (count - other.dim()) + list(other.shape))
    sizes = [m * n for m, n in zip(a.shape, b.shape)]
    a = a.reshape([size for n in a.shape for size in (n, 1)])
    b = b.reshape([size for n in b.shape for size in (1, n)])
    return (a * b).reshape(sizes)


@_export
def cross(input, other, dim=None):
    """The vector product of input and other, vectors of three along dim; without it along the first dimension of
    size 3.

    >>> sf.cross(sf.tensor([1, 0, 0]), sf.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    shape = broadcast_shapes(input.shape, other.shape)
    if dim is None:
        if 3 not in shape:
            raise ValueError(f"cross: no dimension of {list(shape)} has size 3")
        dim = list(shape).index(3)
    a, b = input.expand(shape), other.expand(shape)
    if a.shape[dim] != 3:
        raise ValueError(f"cross: dimension {dim} of {list(shape)} must have size 3")
    return _core.roll(a, -1, dim) * _core.roll(b, -2, dim) - _core.roll(a, -2, dim) * _core.roll(b, -1, dim)


@_export
def matrix_power(input, n):
    """input (..., m, m) multiplied with itself, n times; n 0 gives the identity. A negative n needs an inverse.

    >>> sf.matrix_power(sf.tensor([[1., 1.], [0., 1.]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    if input.dim() < 2 or input.shape[-1] != input.shape[-2]:
        raise ValueError(f"matrix_power: needs square matrices, got shape {list(input.shape)}")
    if n < 0:
        raise ValueError(f"matrix_power: n must not be negative (there is no inverse here), got {n}")
    result = None
    power = input
    while n:
        if n & 1:
            result = power if result is None else _core.matmul(result, power)
        n >>= 1
        if n:
            power = _core.matmul(power, power)
    if result is None:
        return _core.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape)
    return result


@_function
def chain_matmul(*matrices):
    """The product of matrices, from left to right.

    >>> sf.chain_matmul(sf.ones(2, 3), sf.ones(3, 4), sf.ones(4, 5)).shape
    scaffolding.Size([2, 5])
    """
    if not matrices:
        raise ValueError("chain_matmul: needs a matrix")
    product = matrices[0]
    for matrix in matrices[1:]:
        product = _core.matmul(product, matrix)
    return product


# ---- distances and covariance


@_export
def dist(input, other, p=2):
    """The p-norm of input - other, which broadcast.

    >>> sf.dist(sf.tensor([0., 0.]), sf.tensor([3., 4.]))
    tensor(5.)
    """
    return _core.norm(input - other, p)


@_export
def renorm(input, p, dim, maxnorm):
    """input whose slices along dim have a p-norm of at most maxnorm.

    >>> sf.renorm(sf.tensor([[3., 4.], [0.3, 0.4]]), p=2, dim=0, maxnorm=1)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    if input.dim() < 2:
        raise ValueError(f"renorm: needs two dimensions or more, got shape {list(input.shape)}")
    others = [i for i in range(input.dim()) if i != dim % input.dim()]
    norms = _core.norm(input, p, others, keepdim=True)
    factor = _core.where(norms > maxnorm, maxnorm / (norms + 1e-7), _core.ones_like(norms))
    return input * factor


Tensor.renorm_ = in_place(renorm)


@_export
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance of variables: rows of input (variables, observations), or one vector. fweights count
    observations, aweights weigh them; the sum of weights less correction divides.

    >>> sf.cov(sf.tensor([[1., 2., 3.], [3., 2., 1.]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.dim() > 2:
        raise ValueError(f"cov: needs at most two dimensions, got shape {list(input.shape)}")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    count = x.shape[1]
    weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given.dim() != 1 or given.shape[0] != count:
            raise ValueError(f"cov: {name} must have shape [{count}], got {list(given.shape)}")
        given = given.to(x.dtype)
        weights = given if weights is None else weights * given
    if weights is None:
        centred = x - _core.mean(x, 1, keepdim=True)
        product, norm = _core.matmul(centred, centred.t()), max(count - correction, 0)
    else:
        total = _core.sum(weights)
        centred = x - _core.sum(x * weights, 1, keepdim=True) / total
        product = _core.matmul(centred * weights, centred.t())
        spread = 1 if aweights is None else _core.sum(weights * aweights.to(x.dtype)) / total
        norm = _core.clamp(total - correction * spread, min=0)
    result = product / norm
    return result.reshape(()) if input.dim() < 2 else result


@_export
def corrcoef(input):
    """The correlation of variables: rows of input (variables, observations); within [-1, 1].

    >>> sf.corrcoef(sf.tensor([[1., 2., 3.], [3., 2., 1.]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    covariance = cov(input)
    if covariance.dim() == 0:
        return covariance / covariance
    deviation = _core.sqrt(_core.diagonal(covariance))
    return _core.clamp(covariance / _core.outer(deviation, deviation), -1, 1)
