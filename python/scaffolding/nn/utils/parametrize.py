"""Parametrisations: a parameter or buffer becomes the result of modules, which own what it is computed from.

The class of the module becomes a subclass of it, ParametrizedLinear say, in which the name is a property."""

import copy
from contextlib import contextmanager

from ... import _core
from ..._core import Tensor
from ...autograd.grad_mode import no_grad
from ..container import ModuleDict, ModuleList
from ..parameter import Parameter
from .computed_members import put_back, take_out

_cache_depth = 0
_cache = {}


@contextmanager
def cached():
    """While active, a parametrised tensor is computed once and kept."""
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


def _same_storage(tensor, value):
    """Puts a value into a tensor that keeps its identity."""
    if tensor.shape == value.shape and tensor.dtype == value.dtype:
        with no_grad():
            tensor.copy_(value)
    else:
        tensor.data = value.detach()


class ParametrizationList(ModuleList):
    """The modules that make a tensor from `original`, or from original0, original1, ... where the right_inverse of the
    last one, which then is the first to be called, returned several."""

    def __init__(self, modules, original, unsafe=False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass  # the original values stay
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            if new is not original:
                _same_storage(original, new)
            self._own("original", original)
        else:
            if not isinstance(new, (tuple, list)) or not all(isinstance(t, Tensor) for t in new):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                    f"{type(new).__name__}"
                )
            for i, tensor in enumerate(new):
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor.detach(), original.requires_grad)
                self._own(f"original{i}", tensor)
        if not unsafe:
            value = self()
            if not isinstance(value, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
            if value.dtype != dtype or value.shape != shape:
                raise ValueError(
                    "Registering a parametrization may not change the shape or the dtype of the tensor, unless the "
                    f"`unsafe` flag is enabled.\noriginal: {list(shape)} {dtype}\nparametrized: {list(value.shape)} "
                    f"{value.dtype}"
                )

    def _own(self, name, tensor):
        if isinstance(tensor, Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value):
        """Sets the originals so that the result is value, as far as the modules' right_inverse reach it."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            values = [value] if self.is_tensor else list(value)
            if len(values) != self.ntensors:
                raise ValueError(f"'right_inverse' must return {self.ntensors} tensors. Got {len(values)}.")
            for tensor, new in zip(self._originals(), values):
                _same_storage(tensor, new)

    def forward(self):
        modules = list(self)
        value = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value


ParametrizationList.__module__ = "scaffolding.nn.utils.parametrize"


def _names(module):
    return list(module.parametrizations) if is_parametrized(module) else []


def _with_tensors(method, tensor_of):
    """A method of a layer in C++, called while tensor_of(module, name) is in the place of each parametrised tensor."""

    def call(self, *args, **kwargs):
        computed = self.__dict__.get("_computed_members", ())
        for name in computed:
            _core._place_tensor(self, name, tensor_of(self, name))
        try:
            return method(self, *args, **kwargs)
        finally:
            for name in computed:
                _core._place_tensor(self, name, None)

    return call


def _an_original(module, name):
    return module.parametrizations[name]._originals()[0]


def _subclass(module):
    """Makes the module one of a subclass of its class, whose parametrised names are assigned by right_inverse."""
    base = type(module)

    def __setattr__(self, name, value):
        if is_parametrized(self, name):
            self.parametrizations[name].right_inverse(value)
        else:
            base.__setattr__(self, name, value)

    members = {"__module__": base.__module__, "_parametrized_base": base, "__setattr__": __setattr__}
    if module._is_native:
        members["forward"] = _with_tensors(base.forward, getattr)
        members["extra_repr"] = _with_tensors(base.extra_repr, _an_original)  # it says whether there is one
    module.__class__ = type("Parametrized" + base.__name__, (base,), members)


def _property(cls, name):
    def get(self):
        parametrization = self.parametrizations[name]
        if not _cache_depth:
            return parametrization()
        key = id(self), name
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    setattr(cls, name, property(get))


def is_parametrized(module, tensor_name=None):
    """Whether a module has parametrisations, or one of tensor_name.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    >>> nn.utils.parametrize.is_parametrized(layer), nn.utils.parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Makes module.tensor_name the result of parametrization(original), which must keep shape and dtype unless unsafe;
    further ones are called with the result of those before. Where it has right_inverse(tensor), that gives the
    original values, or several. Returns the module. ValueError for a name that is no parameter or buffer.

    >>> class Positive(nn.Module):
    ...     def forward(self, x): return x.exp()
    >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(2, 2), "weight", Positive())
    >>> (layer.weight > 0).all()
    tensor(True)
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        listed = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            made = parametrization(value)
            if not isinstance(made, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            if made.shape != value.shape or made.dtype != value.dtype:
                raise ValueError(
                    "Registering a parametrization may not change the shape or the dtype of the tensor, unless the "
                    f"`unsafe` flag is enabled.\nmodule.{tensor_name}: {list(value.shape)} {value.dtype}\n"
                    f"parametrization(module.{tensor_name}): {list(made.shape)} {made.dtype}"
                )
            if hasattr(parametrization, "right_inverse"):
                inverse = parametrization.right_inverse(made)
                if not isinstance(inverse, Tensor) or inverse.shape != value.shape or inverse.dtype != value.dtype:
                    raise ValueError(
                        "The tensor returned by parametrization.right_inverse must have the shape and dtype of "
                        f"module.{tensor_name}, {list(value.shape)} {value.dtype}."
                    )
        listed.append(parametrization)
        listed.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    parametrizations = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    take_out(module, tensor_name)
    if not is_parametrized(module):
        _subclass(module)
        module.parametrizations = ModuleDict()
    _property(type(module), tensor_name)
    module.parametrizations[tensor_name] = parametrizations
    return module


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Makes tensor_name a parameter or buffer of the module again: of its value, or with leave_parametrized=False of
    the original (where there is one). Returns the module. ValueError where it has no parametrisation.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    >>> type(nn.utils.parametrize.remove_parametrizations(layer, "weight")).__name__
    'Linear'
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach()
        originals = parametrizations._originals()
        trained = any(isinstance(t, Parameter) for t in originals)
        if parametrizations.is_tensor:
            tensor = originals[0]
            tensor.data = value
        else:
            tensor = Parameter(value, any(t.requires_grad for t in originals)) if trained else value
    else:
        if not parametrizations.is_tensor:
            raise ValueError(
                "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
                "sequence of tensors."
            )
        tensor = parametrizations.original
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(tensor, Parameter) or tensor_name in module.__dict__.get("_computed_members", ()):
        put_back(module, tensor_name, tensor)
    else:
        module.register_buffer(tensor_name, tensor)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module)._parametrized_base
    return module


def type_before_parametrizations(module):
    """The class that a module had before it was parametrised."""
    return type(module)._parametrized_base if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Gives to_module copies of from_module's parametrisations (all, or those of tensor_name) and of what they are
    computed from. Returns to_module."""
    for name in _names(from_module) if tensor_name is None else [tensor_name]:
        if not is_parametrized(from_module, name):
            raise ValueError(f"Module {from_module} does not have a parametrization on {name}")
        if (
            name not in to_module._parameters
            and name not in to_module._buffers
            and not is_parametrized(to_module, name)
        ):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        source = from_module.parametrizations[name]
        for module in source:
            register_parametrization(to_module, name, copy.deepcopy(module), unsafe=True)
        for to, tensor in zip(to_module.parametrizations[name]._originals(), source._originals()):
            _same_storage(to, tensor)
    return to_module
