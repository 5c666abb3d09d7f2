"""Spectral normalisation (Miyato et al. 2018): a weight divided by its largest singular value, which power iteration
follows."""

from ... import _core
from ...autograd.grad_mode import no_grad
from ..parameter import Parameter
from .computed_members import ComputedBefore, put_back, take_out


def default_dim(module):
    """The dimension of a layer's weight that its outputs run along."""
    transposed = tuple(getattr(_core, f"_layer_ConvTranspose{d}d") for d in (1, 2, 3))
    return 1 if isinstance(module, transposed) else 0


def as_matrix(weight, dim):
    """weight as [size(dim), rest]."""
    return weight.movedim(dim, 0).reshape(weight.shape[dim], -1)


def unit(vector, eps):
    """vector over its norm, or over eps where that is smaller."""
    return _core.normalize(vector, dim=0, eps=eps)


def iterate(matrix, u, v, times, eps):
    """Power iteration, in place: v towards the right singular vector, then u towards the left one."""
    with no_grad():
        for _ in range(times):
            v.copy_(unit(_core.mv(matrix.t(), u), eps))
            u.copy_(unit(_core.mv(matrix, v), eps))


class _Compute:
    def __init__(self, name, dim, times, eps):
        self.name, self.dim, self.times, self.eps = name, dim, times, eps

    def __call__(self, module, training=None):
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if module.training if training is None else training:
            iterate(matrix, u, v, self.times, self.eps)
            if self.times > 0:
                u, v = u.clone(), v.clone()  # what backward needs outlives the next iteration
        return weight / _core.dot(u, _core.mv(matrix, v))


def _table(module):
    return module.__dict__.setdefault("_spectral_norms", {})


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Replaces the parameter called name by name_orig; before each forward it is computed as name_orig over its largest
    singular value, by n_power_iterations of power iteration in training. Buffers name_u and name_v keep the singular
    vectors, whose norms count as eps where they are below it. dim: along which outputs run; None: 1 of transposed
    convolutions, 0 of others. Returns the module. ValueError for n_power_iterations below 1, RuntimeError where it has
    been done.

    >>> layer = nn.utils.spectral_norm(nn.Linear(4, 2))
    >>> layer(sf.ones(1, 4)).shape, layer.weight_orig.shape
    (scaffolding.Size([1, 2]), scaffolding.Size([2, 4]))
    """
    if name in _table(module):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if n_power_iterations <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
    dim = default_dim(module) if dim is None else dim
    weight = take_out(module, name)
    matrix = as_matrix(weight.detach(), dim)
    u, v = (unit(_core.empty(n, dtype=weight.dtype, device=weight.device).normal_(0, 1), eps) for n in matrix.shape)
    module.register_parameter(name + "_orig", weight)
    module.__dict__[name] = weight.detach()
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    _table(module)[name] = ComputedBefore(module, name, _Compute(name, dim, n_power_iterations, eps))
    return module


def remove_spectral_norm(module, name="weight"):
    """Makes the parameter called name one again, of the value that it would have in eval mode. Returns the module.
    ValueError where it has no spectral_norm."""
    hooks = _table(module).pop(name, None)
    if hooks is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    with no_grad():
        weight = hooks.compute(module, training=False)
    hooks.remove(module)
    for part in ("_orig", "_u", "_v"):
        delattr(module, name + part)
    put_back(module, name, Parameter(weight.detach()))
    return module
