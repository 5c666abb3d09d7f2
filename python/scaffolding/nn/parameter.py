"""Parameter: a tensor that a module trains."""

from .. import _core
from .._core import Tensor
from .._documents import add_to


class Parameter(Tensor):
    """A leaf that requires a gradient; modules register it by attribute.

    >>> module = nn.Module()
    >>> module.scale = nn.Parameter(sf.ones(2))
    >>> [name for name, _ in module.named_parameters()]
    ['scale']
    """

    _is_parameter_class = True

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _core.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data must be a tensor, got {type(data).__name__}")
        return _core._make_subclass(cls, data, requires_grad, True)


_core._register_parameter_type(Parameter)


class Buffer(Tensor):
    """A tensor that is part of a module's state but is not trained.

    >>> module = nn.Module()
    >>> module.mean = nn.Buffer(sf.zeros(2))
    >>> module.state_dict()
    OrderedDict([('mean', tensor([0., 0.]))])
    """

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _core.empty(0)
        buffer = _core._make_subclass(cls, data, data.requires_grad, False)
        buffer.persistent = persistent
        return buffer


for _class in (Parameter, Buffer):
    add_to(_class, "nn")
