"""LRScheduler, what every schedule of learning rates shares, and the checks of its arguments."""

import warnings

from .. import _core
from .._core import Tensor
from .._documents import add_to
from .optimizer import Optimizer


def _per_group(name, optimizer, value):
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, param_groups "
            f"has {len(optimizer.param_groups)}."
        )
    return list(value)


def _check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _require_positive(who, name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ValueError(f"{who}: {name} must be a positive number of steps, got {value}")


def _require_ascending(who, milestones):
    if any(b < a for a, b in zip([0, *milestones], milestones)):
        raise ValueError(f"{who}: milestones must ascend from 0 on, got {list(milestones)}")


def _number(lr):
    return lr.item() if isinstance(lr, Tensor) else lr


class LRScheduler:
    """Sets group["lr"] of every group of an optimizer when it is made and at each step(). Subclasses define get_lr(),
    the rates for self.last_epoch, and may define _get_closed_form_lr(), the same from self.base_lrs alone.

    >>> class Halving(optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base * 0.5**self.last_epoch for base in self.base_lrs]
    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = Halving(optimizer)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    _is_initial = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(__package__ + "."):
            add_to(cls, "optim")

    def __init__(self, optimizer, last_epoch=-1):
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", _number(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                        "last_epoch >= 0; "
                        "load the optimizer's state first"
                    )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self.optimizer._opt_called = False
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial

    def state_dict(self):
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        """Takes over what state_dict() gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        """The rates that were set last, by group."""
        return self._last_lr

    def get_lr(self):
        """The rates for self.last_epoch, by group; for subclasses. To ask for the present rates: get_last_lr()."""
        raise NotImplementedError

    def step(self, epoch=None):
        """Goes to the next epoch, or jumps to one; call it after optimizer.step()."""
        if epoch is None and self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first value of the schedule is "
                "skipped. "
                "Call `optimizer.step()` first.",
                UserWarning,
                stacklevel=2,
            )
        if _core._cuda_is_capturing():
            raise RuntimeError(
                f"{type(self).__name__}.step: a schedule counts on the host, where no replay would call it; step it "
                "between the replays"
            )
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            values = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        self._set(values)

    def _set(self, values):
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)  # where a captured step reads it
            else:
                group["lr"] = lr
        self._last_lr = self._rates()

    def _rates(self):
        return [_number(group["lr"]) for group in self.optimizer.param_groups]

    def _each(self, formula, *args):
        return [formula(lr, self.last_epoch, *args) for lr in self._rates()]

    def _each_base(self, formula, *args):
        return [formula(base, self.last_epoch, *args) for base in self.base_lrs]


_LRScheduler = LRScheduler
