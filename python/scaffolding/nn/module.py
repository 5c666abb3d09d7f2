"""Module: the base of all layers and models. The class is in C++ (bind_nn_module.cpp);
this file adds what reads better in Python.
"""

import copyreg
from collections import OrderedDict, namedtuple

from .. import _core
from .._core import Tensor
from .._core import _Module as Module
from . import hooks, state_hooks
from .members import MemberTable
from .parameter import Buffer

Module.__module__ = "scaffolding.nn"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self):
        return (
            "<All keys matched successfully>"
            if not self.missing_keys and not self.unexpected_keys
            else super().__repr__()
        )

    __str__ = __repr__


def _method(function):
    setattr(Module, function.__name__, function)
    return function


def _init_subclass(cls, **kwargs):
    super(Module, cls).__init_subclass__(**kwargs)
    _core._init_module_subclass(cls)


Module.__init_subclass__ = classmethod(_init_subclass)
_core._register_buffer_type(Buffer)
Module.dump_patches = False
Module._version = 1


@_method
def compile(self, *args, **kwargs):
    """Nothing: see scaffolding.compile."""
    from .._compile import compile

    compile(self, *args, **kwargs)


# ---- members


def _table(kind):
    python = "_python_" + kind

    def get(self):
        return MemberTable(self, kind) if self._is_native else getattr(self, python)

    def set(self, value):
        setattr(self, python, value)

    return property(get, set, doc=f"The module's own {kind} by name.")


for _kind in ("parameters", "buffers", "modules"):
    setattr(Module, "_" + _kind, _table(_kind))


@_method
def __dir__(self):
    names = (
        set(object.__dir__(self)) | set(self.__dict__) | set(self._parameters) | set(self._buffers) | set(self._modules)
    )
    return sorted(n for n in names if not n[:1].isdigit())


@_method
def get_submodule(self, target):
    """The module of a dotted path, target; '' is the module itself."""
    if target == "":
        return self
    module = self
    for name in target.split("."):
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        module = getattr(module, name)
        if not isinstance(module, Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
    return module


@_method
def set_submodule(self, target, module, strict=False):
    """Puts a module under a dotted path, target. strict: only where there is one."""
    if target == "":
        raise ValueError("Cannot set the submodule without a target name!")
    path, _, name = target.rpartition(".")
    parent = self.get_submodule(path)
    if strict and not hasattr(parent, name):
        raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
    setattr(parent, name, module)


def _get_tensor(self, target, table, kind):
    path, _, name = target.rpartition(".")
    owner = self.get_submodule(path)
    if not hasattr(owner, name):
        raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
    if name not in getattr(owner, table):
        raise AttributeError(f"`{name}` is not {kind}")
    return getattr(owner, name)


@_method
def get_parameter(self, target):
    """The parameter of a dotted path, target."""
    return _get_tensor(self, target, "_parameters", "an nn.Parameter")


@_method
def get_buffer(self, target):
    """The buffer of a dotted path, target."""
    return _get_tensor(self, target, "_buffers", "a buffer")


# ---- state


@_method
def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
    """Parameters and persistent buffers by dotted name behind prefix, in the order of the modules, in destination where
        it is given. The tensors share the module's
    memory and are detached unless keep_vars."""
    if args:  # torch's positional form: destination, prefix, keep_vars
        destination, prefix, keep_vars = (list(args) + [prefix, keep_vars][len(args) - 1 :])[:3]
    state = OrderedDict() if destination is None else destination
    if state_hooks.any_below(self, state_hooks.SAVING):
        return state_hooks.save(self, state, prefix, keep_vars)
    state.update(_core._state_dict(self, prefix, keep_vars))
    return state


@_method
def load_state_dict(self, state_dict, strict=True, assign=False):
    """Copies the values of state_dict into the module; with assign the module takes the given tensors' memory and
    dtype instead.

    RuntimeError lists missing, unexpected and wrong-shaped keys with the closest names, and nothing is changed;
    strict=False passes over missing and unexpected ones. Returns (missing_keys, unexpected_keys)."""
    if not hasattr(state_dict, "items"):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    if not state_hooks.any_below(self, state_hooks.LOADING):
        return _IncompatibleKeys(*_core._load_state_dict(self, state_dict, strict, assign))
    state = state_hooks.before_loading(self, state_dict, strict)
    hooked_after = state_hooks.any_below(self, ["load_state_dict_post"])
    keys = _IncompatibleKeys(*_core._load_state_dict(self, state, strict and not hooked_after, assign))
    if hooked_after:
        state_hooks.after_loading(self, keys, strict)
    return keys


# ---- mode, device, dtype


@_method
def eval(self):
    """train(False)."""
    return self.train(False)


def to_arguments(args, kwargs):
    """(device, dtype, memory_format) of a call of to(), None for what is not given."""
    device, dtype, memory_format = (
        kwargs.pop("device", None),
        kwargs.pop("dtype", None),
        kwargs.pop("memory_format", None),
    )
    kwargs.pop("non_blocking", None)
    if kwargs:
        raise TypeError(f"to: unexpected argument '{next(iter(kwargs))}'; it takes device, dtype, memory_format")
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, bool):
            continue  # non_blocking
        elif isinstance(arg, _core.dtype):
            dtype = arg
        elif arg is not None:
            device = arg
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
    return device, dtype, memory_format


@_method
def to(self, *args, **kwargs):
    """to(device), to(dtype), to(device, dtype), to(tensor), memory_format=: moves and converts the module in place, a
    parameter at a time; returns it.

    dtype applies to floating tensors. Parameters keep their identity: an optimizer made before stays valid. From the
    CPU to a GPU large modules go through a few pinned buffers, and memory that shows a file's bytes, such as
    from_pretrained's, is released as it is read."""
    _core._convert_module(self, *to_arguments(args, kwargs))
    return self


def _cast(name, dtype):
    def cast(self):
        return self.to(dtype)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"Converts all floating tensors to {dtype}; returns the module."
    return cast


for _name, _dtype in {
    "float": _core.float32,
    "double": _core.float64,
    "half": _core.float16,
    "bfloat16": _core.bfloat16,
}.items():
    setattr(Module, _name, _cast(_name, _dtype))


@_method
def cpu(self):
    """to("cpu")."""
    return self.to("cpu")


@_method
def cuda(self, device=None):
    """to("cuda"), or to the device of that number."""
    return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


Module.type = lambda self, dst_type: self.to(dst_type)
Module.type.__doc__ = "to(dst_type)."


@_method
def to_empty(self, *, device, recurse=True):
    """Moves to a device without values, with the modules below where recurse is set: the way from the meta device,
    before load_state_dict."""
    for tensor in [*self.parameters(recurse), *self.buffers(recurse)]:
        tensor.data = _core.empty(tensor.shape, dtype=tensor.dtype, device=device)
    return self


@_method
def apply(self, fn):
    """Calls fn(module) for every module below and then for this one; returns the module."""
    for module in self.children():
        module.apply(fn)
    fn(self)
    return self


@_method
def share_memory(self):
    """The module itself: threads share memory already."""
    return self


@_method
def _get_name(self):
    return self.__class__.__name__


@_method
def _release_cpu_shadows(self):
    """Gives back host memory that the module can do without: packed copies of its weights, which the next forward makes
    anew, and freed blocks that the allocator keeps for reuse. The system gets it at once (malloc_trim)."""
    _core._release_host_memory(self)


# ---- copying and pickling. A layer is made from its constructor's arguments without drawing initial values,
# then its members are put in.


def _native_modules(module, prefix=""):
    yield prefix, module
    for name in _core._member_names(module, "modules"):
        child = getattr(module, name)
        if child is not None and name not in module._replaced_modules:
            yield from _native_modules(child, f"{prefix}.{name}" if prefix else name)


@_method
def _rebuild_arguments(self):
    return self._layer_arguments


@_method
def _rebuild(self, arguments):
    _core._rebuild_layer(self, arguments)


@_method
def __getstate__(self):
    state = {"training": self.training, "attributes": dict(self.__dict__), "hooks": self._hooks}
    for kind in ("parameters", "buffers", "modules"):
        state[kind] = OrderedDict(getattr(self, "_python_" + kind))
    state["transient"] = set(self._non_persistent_buffers_set)
    if self._is_native:
        arguments = self._rebuild_arguments()
        if arguments is None:
            raise TypeError(f"{self._get_name()}: is a part of a C++ module and cannot be copied or pickled by itself")
        state["arguments"] = arguments
        state["native"] = {
            path: (
                module.training,
                {name: getattr(module, name) for name in _core._layer_fields(module)},
                {
                    name: None if name in module.__dict__.get("_computed_members", ()) else getattr(module, name)
                    for kind in ("parameters", "buffers")
                    for name in _core._member_names(module, kind)
                },
            )
            for path, module in _native_modules(self)
        }
        state["replaced"] = {
            path: dict(module._replaced_modules) for path, module in _native_modules(self) if module._replaced_modules
        }
    return state


@_method
def __setstate__(self, state):
    if "native" in state:
        self._rebuild(state["arguments"])
        for path, (training, fields, tensors) in state["native"].items():
            module = self.get_submodule(path)
            module.training = training
            for name, value in fields.items():
                setattr(module, name, value)
            for name, tensor in tensors.items():
                module._set_member(name, tensor)
        for path, replaced in state.get("replaced", {}).items():
            for name, child in replaced.items():
                self.get_submodule(path)._set_member(name, child)
    else:
        Module.__init__(self)
    self.training = state["training"]
    for kind in ("parameters", "buffers", "modules"):
        getattr(self, "_python_" + kind).update(state[kind])
    self._non_persistent_buffers_set = state["transient"]
    self.__dict__.update(state["attributes"])
    if state["hooks"]:
        self._hooks = state["hooks"]


@_method
def __reduce_ex__(self, protocol):
    return copyreg.__newobj__, (self.__class__,), self.__getstate__()


# ---- hooks


@_method
def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
    """hook(module, args) before forward; what it returns replaces the arguments. with_kwargs: hook(module, args,
    kwargs) -> (args, kwargs). prepend: before the other hooks.
    """
    return hooks.register(self, "forward_pre", hook, prepend, with_kwargs)


@_method
def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
    """hook(module, args, output) after forward; what it returns replaces the output. with_kwargs: hook(module, args,
    kwargs, output).
    always_call: also after an exception. prepend: before the other hooks."""
    return hooks.register(self, "forward", hook, prepend, with_kwargs, always_call)


@_method
def register_full_backward_hook(self, hook, prepend=False):
    """hook(module, grad_input, grad_output) when the gradients of the module's inputs are known;
    what it returns replaces grad_input. prepend: before the other hooks.
    """
    return hooks.register(self, "backward", hook, prepend)


@_method
def register_full_backward_pre_hook(self, hook, prepend=False):
    """hook(module, grad_output) before the gradients of the module are computed;
    what it returns replaces grad_output. prepend: before the other hooks.
    """
    return hooks.register(self, "backward_pre", hook, prepend)


@_method
def register_state_dict_pre_hook(self, hook):
    """hook(module, prefix, keep_vars) before state_dict() collects the module's tensors."""
    return hooks.register(self, "state_dict_pre", hook)


@_method
def register_state_dict_post_hook(self, hook):
    """hook(module, state_dict, prefix, local_metadata) after state_dict() has the module's tensors and those below it;
    it may change the dict in place.
    """
    hook._from_public_api = True
    return hooks.register(self, "state_dict", hook)


@_method
def _register_state_dict_hook(self, hook):
    """As register_state_dict_post_hook; what the hook returns replaces the dict."""
    return hooks.register(self, "state_dict", hook)


@_method
def register_load_state_dict_pre_hook(self, hook):
    """hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before
    load_state_dict() looks at the dict; it may change in place the copy that it is given:
    of all keys that begin with prefix."""
    return hooks.register(self, "load_state_dict_pre", hook)


@_method
def _register_load_state_dict_pre_hook(self, hook, with_module=False):
    """As register_load_state_dict_pre_hook; the hook is not given the module unless with_module."""
    return self.register_load_state_dict_pre_hook(hook if with_module else lambda module, *args: hook(*args))


@_method
def register_load_state_dict_post_hook(self, hook):
    """hook(module, incompatible_keys) after load_state_dict() has copied; it may take names off
    incompatible_keys.missing_keys and .unexpected_keys.
    """
    return hooks.register(self, "load_state_dict_post", hook)
