"""Optimizer: the base class. Groups, state and state dictionaries are torch.optim.Optimizer's,
subclasses are written the same way.
"""

import functools
import itertools
from collections import OrderedDict, defaultdict
from copy import deepcopy

from .. import _core
from .._core import Tensor
from .._documents import add_to
from ..autograd.grad_mode import enable_grad
from ..backends import cpu as _cpu

_global_pre_hooks = OrderedDict()
_global_post_hooks = OrderedDict()


class _Required:
    """The default of an option that every group must give."""

    def __repr__(self):
        return "<required parameter>"


required = _Required()


class RemovableHandle:
    """A registered hook: remove() takes it off; as a context manager, at the end of the block."""

    _ids = itertools.count()

    def __init__(self, hooks, hook, prepend=False):
        self.id = next(self._ids)
        self._hooks = hooks
        hooks[self.id] = hook
        if prepend:
            hooks.move_to_end(self.id, last=False)

    def remove(self):
        """Takes the hook off; again: does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def register_optimizer_step_pre_hook(hook):
    """hook(optimizer, args, kwargs) before the step of every optimizer; may return new (args, kwargs).

    >>> handle = optim.optimizer.register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: print("step"))
    >>> optim.SGD([sf.ones(1)], lr=0.1).step()
    step
    >>> handle.remove()
    """
    return RemovableHandle(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """hook(optimizer, args, kwargs) after the step of every optimizer."""
    return RemovableHandle(_global_post_hooks, hook)


def _with_hooks(step):
    """A class's step() that calls the hooks; what schedulers and scalers ask is noted too."""

    @functools.wraps(step)
    def hooked_step(self, *args, **kwargs):
        self._opt_called = True
        pre, post = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        if not (pre or post or _global_pre_hooks or _global_post_hooks):
            return step(self, *args, **kwargs)
        for hook in (*_global_pre_hooks.values(), *pre.values()):
            result = hook(self, args, kwargs)
            if result is not None:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                args, kwargs = result
        out = step(self, *args, **kwargs)
        for hook in (*post.values(), *_global_post_hooks.values()):
            hook(self, args, kwargs)
        return out

    hooked_step.hooked = True
    return hooked_step


def _typename(o):
    return (
        f"{type(o).__module__}.{type(o).__qualname__}" if type(o).__module__ not in ("builtins",) else type(o).__name__
    )


class Optimizer:
    """Holds parameter groups (dictionaries with "params" and options) and, for each parameter, a dictionary of state.

    params: an iterable of tensors, of (name, tensor) pairs, or of dictionaries. defaults: options of groups that do not
    give their own. ValueError for an empty list, a parameter that is no leaf or is in two groups.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=0.1)
    >>> isinstance(optimizer, optim.Optimizer), optimizer.param_groups[0]["lr"]
    (True, 0.1)
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(__package__ + "."):
            add_to(cls, "optim")
        if "step" in cls.__dict__ and not getattr(cls.__dict__["step"], "hooked", False):
            cls.step = _with_hooks(cls.__dict__["step"])

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{_typename(params)}"
            )
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. "
                "Please use a list instead."
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        param_groups = list(params)
        if len(param_groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(param_groups[0], dict):
            param_groups = [{"params": param_groups}]
        for param_group in param_groups:
            self.add_param_group(param_group)

    def _make_hooks(self):
        for name in (
            "step_pre",
            "step_post",
            "state_dict_pre",
            "state_dict_post",
            "load_state_dict_pre",
            "load_state_dict_post",
        ):
            self.__dict__.setdefault(f"_optimizer_{name}_hooks", OrderedDict())

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_hooks()

    def __repr__(self):
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    def add_param_group(self, param_group):
        """Adds param_group, a dictionary with "params" and options; options it lacks take the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. "
                "Please use a list instead."
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        if names and len(names) != len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(param)}")
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        # Nothing of the caller's dictionary changes before all of it is known to be right.
        complete = dict(param_group, params=params)
        if names:
            complete["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in complete:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            complete.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            raise ValueError("some parameters appear more than once in a parameter group")
        known = set()
        for group in self.param_groups:
            known.update(id(p) for p in group["params"])
            if ("param_names" in complete) != ("param_names" in group):
                kind = "with names" if "param_names" in complete else "without names"
                raise ValueError(
                    f"all optimizer param groups should be with/without names. cannot add param group {kind} to the "
                    "optimizer"
                )
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self._check_group(complete)
        if any(p.dtype is _core.bfloat16 and p.device.type == "cpu" for p in params):
            _cpu._warn_if_bf16_is_emulated()
        param_group.update(complete)
        self.param_groups.append(param_group)

    def _check_group(self, group):
        """Refuses options that are out of range; for subclasses."""

    def zero_grad(self, set_to_none=True):
        """Drops every gradient, or with set_to_none=False fills it with zeros."""
        zero = _core._zero_grad
        for group in self.param_groups:
            zero(group["params"], set_to_none)

    def step(self, closure=None):
        """One step of optimization; closure computes the loss anew and returns it."""
        raise NotImplementedError

    # ---- hooks

    def register_step_pre_hook(self, hook):
        """hook(optimizer, args, kwargs) before each step; may return new (args, kwargs)."""
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """hook(optimizer, args, kwargs) after each step."""
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """hook(optimizer) before state_dict(); prepend: before the other hooks."""
        return RemovableHandle(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """hook(optimizer, state_dict) after state_dict(); may return another; prepend: before the other hooks."""
        return RemovableHandle(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """hook(optimizer, state_dict) before load_state_dict(); may return another; prepend: before the other hooks."""
        return RemovableHandle(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """hook(optimizer) after load_state_dict(); prepend: before the other hooks."""
        return RemovableHandle(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # ---- saving

    def state_dict(self):
        """{"state": {index: {name: tensor}}, "param_groups": [options and indices]}, as torch's: plain dictionaries,
        lists, numbers and tensors, which are shared with the optimizer."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        index = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                index.setdefault(id(p), len(index))
            packed["params"] = [index[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(index[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        state_dict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            result = hook(self, state_dict)
            if result is not None:
                state_dict = result
        return state_dict

    def _state_dtype(self, param, name, value):
        """The dtype that a loaded tensor of a parameter's state takes, or None to keep its own."""
        return param.dtype if param.is_floating_point() else None

    def _cast_state(self, param, value, name=None):
        if isinstance(value, Tensor):
            if name == "step":
                return value.clone()
            dtype = self._state_dtype(param, name, value) or value.dtype
            return value.to(param.device).to(dtype, copy=True)
        if isinstance(value, dict):
            return {k: self._cast_state(param, v, k) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast_state(param, v) for v in value)
        return deepcopy(value)

    def load_state_dict(self, state_dict):
        """Takes over state and options that state_dict(), or torch's, gave. Tensors are copied.

        ValueError when the groups differ in number or size; nothing has changed then."""
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            result = hook(self, state_dict)
            if result is not None:
                state_dict = result
        groups, saved_groups = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        params = {}
        for group, saved in zip(groups, saved_groups):
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
                )
            params.update(zip(saved["params"], group["params"]))
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = self._cast_state(params[key], value)
            else:
                state[key] = value
        for group, saved in zip(groups, saved_groups):
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)


def _refuse(name, **options):
    """Options of torch that ask for something this library does not do."""
    for option, value in options.items():
        if value:
            why = (
                "AdamW, Adam, AdamW8bit and SGD can be part of a CUDA graph"
                if option == "capturable"
                else "steps are not recorded"
            )
            raise ValueError(f"{name}: {option}=True is not supported; {why}")


class RuleOptimizer(Optimizer):
    """An optimizer whose step is a rule in C++ (scaffolding/optim/): one call for each group."""

    _rule = None  # its C++ name

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls._rule is not None:
            cls._update = staticmethod(getattr(_core, f"_{cls._rule}_step"))
            cls._check = staticmethod(getattr(_core, f"_{cls._rule}_check"))
            cls._check_state = staticmethod(getattr(_core, f"_{cls._rule}_check_state"))

    def _begin(self, given):
        """The work of a constructor whose arguments, its locals(), are the parameters and the options."""
        defaults = {name: value for name, value in given.items() if name not in ("self", "params")}
        _refuse(self._rule, **{o: defaults.get(o) for o in ("capturable", "differentiable")})
        self._check(defaults)
        super().__init__(given["params"], defaults)

    def _check_group(self, group):
        self._check(group)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:  # saved by a version, or a PyTorch, with fewer options
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    def _cast_state(self, param, value, name=None):
        if isinstance(value, Tensor) and isinstance(name, str):
            self._check_state(param, name, value)
        return super()._cast_state(param, value, name)

    def _state_dtype(self, param, name, value):
        # Statistics of 16-bit parameters are float32.
        return (
            value.dtype
            if not value.is_floating_point()
            else _core.float64
            if param.dtype == _core.float64
            else _core.float32
        )

    def step(self, closure=None):
        """Updates every parameter that has a gradient. With a closure: calls it first, with recording on,
        and returns its loss.
        """
        state, update = self.state, self._update
        return self._step(closure, lambda group: update(state, group))

    def _step(self, closure, step_group):
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            step_group(group)
        return loss
