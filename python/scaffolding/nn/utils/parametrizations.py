"""Parametrisations that come ready: weights of given norm, of spectral norm 1, and orthogonal ones."""

import math

from ... import _core
from ..._core import Tensor
from ...autograd.function import Function
from ...autograd.grad_mode import no_grad
from ..module import Module
from . import parametrize
from .spectral_norm import as_matrix, default_dim, unit
from .weight_norm import norm_except_dim, normed


def _parameter_of(module, name):
    tensor = getattr(module, name, None)
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return tensor


# ---- weight_norm


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return normed(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Parametrises module.name as g v / |v|: parametrizations.name.original0 is g, the norms over all dimensions but
    dim (None: of the whole), original1 is v. Returns the module. State dicts of nn.utils.weight_norm load too.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    >>> layer.parametrizations.weight.original0.shape  # g, the norms of rows
    scaffolding.Size([2, 1])
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(module, state_dict, prefix, *_):
        for i, old in enumerate((f"{prefix}{name}_g", f"{prefix}{name}_v")):
            if old in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(old)

    module.register_load_state_dict_pre_hook(rename)
    return module


# ---- spectral_norm


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps, self.n_power_iterations = dim % weight.dim(), eps, n_power_iterations
        if weight.dim() > 1:
            matrix = as_matrix(weight.detach(), self.dim)
            for name, n in zip(("_u", "_v"), matrix.shape):
                vector = _core.empty(n, dtype=weight.dtype, device=weight.device).normal_(0, 1)
                self.register_buffer(name, unit(vector, eps))
            self._iterate(matrix, 15)

    def _iterate(self, matrix, times):
        """Here the left singular vector comes first."""
        with no_grad():
            for _ in range(times):
                self._u.copy_(unit(_core.mv(matrix, self._v), self.eps))
                self._v.copy_(unit(_core.mv(matrix.t(), self._u), self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return unit(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # what backward needs outlives the next iteration
        return weight / _core.dot(u, _core.mv(matrix, v))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Parametrises module.name as itself over its largest singular value, which n_power_iterations of power iteration
    follow at each use in training, norms below eps counting as eps. dim: along which outputs run; None: 1 of transposed
    convolutions, 0 of others. Returns the module.

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))
    >>> layer(sf.ones(1, 4)).shape, layer.parametrizations.weight.original.shape
    (scaffolding.Size([1, 2]), scaffolding.Size([2, 4]))
    """
    weight = _parameter_of(module, name)
    dim = default_dim(module) if dim is None else dim
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


# ---- orthogonal


class _Solve(Function):
    """a^-1 b of square matrices, on the host."""

    @staticmethod
    def forward(ctx, a, b):
        import numpy

        x = _core.from_numpy(numpy.linalg.solve(a.detach().cpu().numpy(), b.detach().cpu().numpy())).to(b.device)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, dx):
        a, x = ctx.saved_tensors
        db = _Solve.apply(a.transpose(-2, -1).contiguous(), dx.contiguous())
        return -db @ x.transpose(-2, -1), db


def _matrix_exp(a):
    """exp of square matrices [..., N, N]: the series of a / 2^s, squared s times."""
    largest = float(a.detach().abs().sum(-1).max().item()) if a.numel() else 0.0
    squarings = max(0, math.ceil(math.log2(max(largest, 1e-30))) + 1)
    a = a * 0.5**squarings
    identity = _core.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    result = identity.expand(a.shape)
    for k in range(18, 0, -1):  # Horner's rule; the next term is below 2^-19 / 19!
        result = identity + a @ result * (1 / k)
    for _ in range(squarings):
        result = result @ result
    return result


def _householder_product(a, tau):
    """The first K columns of the product of reflections I - tau_i v_i v_i^T: v_i is column i of a[..., N, K] below its
    diagonal, with 1 on it."""
    n, k = a.shape[-2:]
    q = _core.eye(n, k, dtype=a.dtype, device=a.device).expand(*a.shape[:-2], n, k)
    for i in reversed(range(k)):
        one = _core.ones(*a.shape[:-2], 1, dtype=a.dtype, device=a.device)
        zeros = _core.zeros(*a.shape[:-2], i, dtype=a.dtype, device=a.device)
        v = _core.cat([zeros, one, a[..., i + 1 :, i]], -1).unsqueeze(-1)
        q = q - tau[..., i, None, None] * v @ (v.transpose(-2, -1) @ q)
    return q


def _reflections(matrix):
    """(a, tau) of LAPACK's geqrf for one matrix of NumPy [N, K]: R in the upper triangle, reflections below."""
    import numpy

    a = matrix.astype(numpy.float64).copy()
    n, k = a.shape
    tau = numpy.zeros(min(n, k))
    for i in range(min(n, k)):
        x = a[i:, i].copy()
        rest = numpy.sqrt((x[1:] ** 2).sum())
        if rest == 0:
            continue
        beta = -numpy.copysign(numpy.hypot(x[0], rest), x[0])
        tau[i] = (beta - x[0]) / beta
        v = x / (x[0] - beta)
        v[0] = 1
        a[i:, i + 1 :] -= tau[i] * numpy.outer(v, v @ a[i:, i + 1 :])
        a[i, i], a[i + 1 :, i] = beta, v[1:]
    return a, tau


def _signed_reflections(matrix):
    """The reflections of an orthogonal matrix, with the signs of its columns on the diagonal."""
    import numpy

    a, tau = _reflections(matrix)
    i = numpy.arange(len(tau))
    a[i, i] = numpy.sign(a[i, i]) * numpy.where(tau == 0, -1, 1)
    return a


def _each_matrix(function, tensor):
    """function of each matrix [N, K] of a tensor, by NumPy; the results are stacked in the tensor's dtype."""
    import numpy

    shape = tensor.shape
    results = [function(m) for m in tensor.detach().cpu().reshape(-1, *shape[-2:]).numpy()]
    stacked = numpy.stack(results).reshape(*shape[:-2], *results[0].shape)
    return _core.from_numpy(numpy.ascontiguousarray(stacked)).to(tensor.dtype).to(tensor.device)


def _orthogonal_like(matrix):
    """The orthogonal factor of matrix = Q R with a positive diagonal of R."""
    import numpy

    a = matrix.astype(numpy.float64)
    q, r = numpy.linalg.qr(a)
    return q * numpy.where(numpy.diag(r) < 0, -1.0, 1.0)


def _is_orthogonal(tensor):
    k = tensor.shape[-1]
    identity = _core.eye(k, dtype=tensor.dtype, device=tensor.device)
    eps = 10 * k * _core.finfo(tensor.dtype).eps
    return bool(((tensor.transpose(-2, -1) @ tensor - identity).abs() <= eps).all().item())


class _Orthogonal(Module):
    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        self.shape, self.orthogonal_map, self.has_base = tuple(weight.shape), orthogonal_map, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def _map(self, x):
        """The orthonormal columns [..., N, K] of a tall x."""
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            tau = 2 / (1 + (_core.tril(x, -1) ** 2).sum(-2))
            return _householder_product(x, tau) * _core.trunc(_core.diagonal(x, 0, -2, -1)).detach().unsqueeze(-2)
        a = _core.tril(x)
        if n != k:
            a = _core.cat([a, _core.zeros(*a.shape[:-1], n - k, dtype=a.dtype, device=a.device)], -1)
        a = a - a.transpose(-2, -1)
        if self.orthogonal_map == "matrix_exp":
            return _matrix_exp(a)[..., :k]
        identity = _core.eye(n, dtype=a.dtype, device=a.device)
        return _Solve.apply((identity - a / 2).contiguous(), (identity + a / 2).contiguous())[..., :k]

    def forward(self, X):
        transposed = X.shape[-2] < X.shape[-1]
        q = self._map(X.transpose(-2, -1) if transposed else X)
        if self.has_base:
            q = self.base @ q
        return q.transpose(-2, -1) if transposed else q

    def right_inverse(self, Q):
        if tuple(Q.shape) != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {list(Q.shape)}."
            )
        given, transposed = Q.detach(), Q.shape[-2] < Q.shape[-1]
        q = given.transpose(-2, -1) if transposed else given
        n, k = q.shape[-2:]
        if not self.has_base:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            inverse = _each_matrix(_signed_reflections, q)
            return inverse.transpose(-2, -1) if transposed else inverse
        if n != k:
            rest = _core.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            self.base = _each_matrix(_orthogonal_like, _core.cat([q, rest], -1))
        else:
            self.base = q.clone() if _is_orthogonal(q) else _each_matrix(_orthogonal_like, q)
        # The image of -1 is 1 under each of the maps.
        return (-_core.eye(*given.shape[-2:], dtype=q.dtype, device=q.device)).expand(given.shape).contiguous()


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Parametrises module.name[..., N, K] as an orthogonal matrix (of orthonormal rows where N < K): a product of
    reflections (orthogonal_map "householder", the default unless square), "matrix_exp" or "cayley". use_trivialization:
    relative to an orthogonal base, the weight's own. Returns the module. ValueError for other maps and tensors below
    two dimensions.

    >>> weight = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)).weight
    >>> sf.allclose(weight @ weight.T, sf.eye(4), atol=1e-5)
    True
    """
    weight = _parameter_of(module, name)
    if weight.dim() < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
