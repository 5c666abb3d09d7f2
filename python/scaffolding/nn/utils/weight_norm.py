"""Weight normalisation (Salimans & Kingma 2016): a weight as its norm g times its direction v."""

from ... import _core
from ..parameter import Parameter
from .computed_members import ComputedBefore, put_back, take_out


def norm_except_dim(v, pow=2, dim=0):
    """The pow-norms of v over all dimensions but dim, which stay as sizes of 1; dim=-1: the norm of all."""
    if dim == -1:
        return _core.vector_norm(v, pow)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return _core.vector_norm(v, pow, others, True) if others else v.abs()


def normed(v, g, dim):
    """g v / |v|."""
    return v * (g / norm_except_dim(v, 2, dim))


def _compute(name, dim):
    def weight(module):
        return normed(getattr(module, name + "_v"), getattr(module, name + "_g"), dim)

    return weight


def _table(module):
    return module.__dict__.setdefault("_weight_norms", {})


def weight_norm(module, name="weight", dim=0):
    """Replaces the parameter called name by name_g, its norms over all dimensions but dim (None: of the whole), and
    name_v; before each forward it is computed from them. Returns the module. RuntimeError where it has been done.

    >>> layer = nn.utils.weight_norm(nn.Linear(4, 2))
    >>> layer.weight_g.shape, layer.weight_v.shape
    (scaffolding.Size([2, 1]), scaffolding.Size([2, 4]))
    """
    if name in _table(module):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    dim = -1 if dim is None else dim
    weight = take_out(module, name)
    module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), 2, dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    compute = _compute(name, dim)
    module.__dict__[name] = compute(module)
    _table(module)[name] = ComputedBefore(module, name, compute)
    return module


def remove_weight_norm(module, name="weight"):
    """Makes the parameter called name one again. Returns the module. ValueError where it has no weight_norm."""
    hooks = _table(module).pop(name, None)
    if hooks is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    weight = hooks.compute(module)
    hooks.remove(module)
    delattr(module, name + "_g")
    delattr(module, name + "_v")
    put_back(module, name, Parameter(weight.detach()))
    return module
