"""Optimizers whose numbers can be in device memory, so that their steps can be part of a CUDA graph."""

import weakref

from .. import _core
from .._core import Tensor
from .optimizer import RuleOptimizer

# What each replay takes from the group as it is then; the rest stays as it was captured.
_READ_ANEW = {"params", "lr", "betas", "eps", "weight_decay", "momentum", "dampening"}


class CapturableOptimizer(RuleOptimizer):
    """An optimizer that keeps step count and options of groups with capturable=True in device memory. A replay takes
    learning rate, betas, momentum, eps and weight decay from the group as they are then: numbers, or for lr a CUDA
    tensor. A replay after load_state_dict, or after another option or the list of groups changed, is a RuntimeError."""

    _step_supports_amp_scaling = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._write_settings = staticmethod(getattr(_core, f"_{cls._rule}_write_settings"))

    def _is_capturable(self, group):
        return group["capturable"]

    def _check_group(self, group):
        if isinstance(group["lr"], Tensor) and not self._is_capturable(group):
            raise ValueError(f"{type(self).__name__}: lr as a tensor needs capturable=True")
        super()._check_group(dict(group, lr=float(group["lr"])) if isinstance(group["lr"], Tensor) else group)
        if isinstance(group["lr"], Tensor) and group["lr"].device.type != "cuda":
            raise ValueError(f"{type(self).__name__}: lr as a tensor must be on CUDA, got one on {group['lr'].device}")
        if self._is_capturable(group) and any(p.device.type != "cuda" for p in group.get("params", ())):
            raise ValueError(f"{type(self).__name__}: capturable=True needs parameters on CUDA")

    def __setstate__(self, state):
        # How steps run, and where lr is, stays this optimizer's: a run goes on from a checkpoint of one that captured,
        # and the reverse.
        before = self.__dict__.get("param_groups", ())
        super().__setstate__(state)
        for old, group in zip(before, self.param_groups):
            group["capturable"] = old["capturable"]
            if isinstance(old["lr"], Tensor):
                old["lr"].fill_(float(group["lr"]))
                group["lr"] = old["lr"]
            elif isinstance(group["lr"], Tensor):
                group["lr"] = float(group["lr"])
        self._changed()

    def add_param_group(self, param_group):
        """Adds param_group, a dictionary with "params" and options; options it lacks take the defaults."""
        super().add_param_group(param_group)
        self._changed()

    def _changed(self):
        self._revision = self.__dict__.get("_revision", 0) + 1
        self._settings = []  # of groups, in device memory

    def step(self, closure=None):
        """Updates every parameter that has a gradient. With a closure: calls it first, with recording on,
        and returns its loss.
        """
        return self._step(closure, self._step_group)

    def _step_group(self, group):
        if not self._is_capturable(group):
            return self._update(self.state, group)
        index = next(i for i, g in enumerate(self.param_groups) if g is group)
        while len(self._settings) <= index:
            self._settings.append(_core._DeviceSettings())
        if _core._cuda_is_capturing():
            there = self._settings[index].there(type(self).__name__)
            if isinstance(group["lr"], Tensor):
                there[:1].copy_(group["lr"].detach().reshape(1))
            _core._cuda_before_replay(_BeforeReplay(self, index))
        else:
            there = self._write(index)
        self._update(
            self.state,
            dict(group, lr=0.0, capturable=True, _settings=there, _found_inf=getattr(self, "found_inf", None)),
        )

    def _write(self, index):
        group = self.param_groups[index]
        lr = group["lr"]
        if not isinstance(lr, Tensor):
            return self._write_settings(self._settings[index], group)
        there = self._write_settings(self._settings[index], dict(group, lr=0.0))
        there[:1].copy_(lr.detach().reshape(1))
        return there

    def _frozen(self, index):
        """What a captured step of a group is built from."""
        group = self.param_groups[index]
        options = tuple(
            (name, value) for name, value in group.items() if name in self.defaults and name not in _READ_ANEW
        )
        lr = id(group["lr"]) if isinstance(group["lr"], Tensor) else None
        return self._revision, lr, group.get("momentum", 0) == 0, tuple(map(id, group["params"])), options


class _BeforeReplay:
    """Writes a group's numbers where the graph reads them."""

    def __init__(self, optimizer, index):
        self.optimizer, self.index, self.frozen = weakref.ref(optimizer), index, optimizer._frozen(index)

    def __call__(self):
        optimizer = self.optimizer()
        if optimizer is None:
            raise RuntimeError(
                "a CUDA graph with an optimizer's step cannot be replayed when the optimizer, which has the state that "
                "it writes, is gone"
            )
        if optimizer._frozen(self.index) != self.frozen:
            raise RuntimeError(
                f"{type(optimizer).__name__}: its state was loaded, its groups or an option that a step is built from "
                "changed since the graph was captured, "
                "which would go on with what was; capture again (reset() of the graphed step)"
            )
        optimizer._write(self.index)
