"""Schedules of learning rates: torch.optim.lr_scheduler's classes, arguments and state.
The formulas are in C++ (optim/schedule.h).
"""

import types
from bisect import bisect_right
from collections import Counter

from .. import _core
from .plateau import ReduceLROnPlateau
from .scheduler_base import LRScheduler, _check_optimizer, _per_group, _require_ascending, _require_positive

_formula = _core._schedule


class _LambdaScheduler(LRScheduler):
    """Saves the attributes of factors that are objects; functions cannot be saved."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        _check_optimizer(optimizer)
        if not isinstance(lr_lambda, (list, tuple)):
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        elif len(lr_lambda) != len(optimizer.param_groups):
            raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}")
        else:
            self.lr_lambdas = list(lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self):
        """Everything but the optimizer and factors that are functions."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict):
        """Takes over what state_dict() gave."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        # C++ keeps nothing of its functions
        for function, saved in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ())):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_LambdaScheduler):
    """base_lr * lr_lambda(epoch); one function, or one for each group.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def get_lr(self):
        return [base * factor(self.last_epoch) for factor, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_LambdaScheduler):
    """lr * lr_lambda(epoch).

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        return [lr * factor(self.last_epoch) for factor, lr in zip(self.lr_lambdas, self._rates(), strict=True)]


class StepLR(LRScheduler):
    """lr times gamma every step_size epochs.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        _require_positive("StepLR", "step_size", step_size)
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._each(_formula.step, self.step_size, self.gamma)

    def _get_closed_form_lr(self):
        return self._each_base(_formula.step_closed, self.step_size, self.gamma)


class MultiStepLR(LRScheduler):
    """lr times gamma at each of the milestones.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones = Counter(milestones)
        _require_ascending("MultiStepLR", sorted(self.milestones))
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._each(_formula.multi_step, sorted(self.milestones.elements()), self.gamma)

    def _get_closed_form_lr(self):
        return self._each_base(_formula.multi_step_closed, sorted(self.milestones.elements()), self.gamma)


class ConstantLR(LRScheduler):
    """lr times factor until epoch total_iters.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.ConstantLR(optimizer, factor=0.25, total_iters=10)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        if total_iters < 0:
            raise ValueError(f"ConstantLR: total_iters must not be negative, got {total_iters}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._each(_formula.constant, self.factor, self.total_iters)

    def _get_closed_form_lr(self):
        return self._each_base(_formula.constant_closed, self.factor, self.total_iters)


class LinearLR(LRScheduler):
    """lr times a factor that goes from start_factor to end_factor in total_iters epochs.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=4)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.875]
    """

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        _require_positive("LinearLR", "total_iters", total_iters)
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial and self.last_epoch > 0:
            return self._rates()
        return self._each(_formula.linear, self.start_factor, self.end_factor, self.total_iters)

    def _get_closed_form_lr(self):
        return self._each_base(_formula.linear_closed, self.start_factor, self.end_factor, self.total_iters)


class ExponentialLR(LRScheduler):
    """lr times gamma every epoch.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._rates() if self._is_initial else [lr * self.gamma for lr in self._rates()]

    def _get_closed_form_lr(self):
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """base_lr * (1 - epoch / total_iters) ** power.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        _require_positive("PolynomialLR", "total_iters", total_iters)
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._rates() if self._is_initial else self._each(_formula.polynomial, self.total_iters, self.power)

    def _get_closed_form_lr(self):
        return self._each_base(_formula.polynomial_closed, self.total_iters, self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base rate to eta_min in T_max epochs, and back in the next T_max.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        _require_positive("CosineAnnealingLR", "T_max", T_max)
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        return [
            _formula.cosine_annealing(lr, base, self.last_epoch, self.T_max, self.eta_min)
            for base, lr in zip(self.base_lrs, self._rates(), strict=True)
        ]

    def _get_closed_form_lr(self):
        return self._each_base(_formula.cosine_annealing_closed, self.T_max, self.eta_min)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the base rate to eta_min, in T_0 epochs, then T_0 * T_mult, and so on.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=6)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [_formula.cosine_annealing_closed(base, self.T_cur, self.T_i, self.eta_min) for base in self.base_lrs]

    def step(self, epoch=None):
        """Goes to the next epoch, or to any, whole or not."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self.T_cur, T_i = _formula.restart_at(epoch, self.T_0, self.T_mult)
            self.T_i = int(T_i)
        self.last_epoch = int(epoch)
        self._set(self.get_lr())


class OneCycleLR(LRScheduler):
    """The one-cycle policy: from max_lr / div_factor up to max_lr and down to far below in total_steps (or epochs *
    steps_per_epoch) steps; momentum, or the first beta, goes the other way.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.9504846320134737]
    """

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            for name, value in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
                if not isinstance(value, int) or value <= 0:
                    raise ValueError(f"Expected positive integer {name}, but got {value}")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, float) or pct_start < 0 or pct_start > 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.total_steps = total_steps
        self.pct_start = pct_start
        self.three_phase = three_phase
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _prepare_momentum(optimizer, base_momentum, max_momentum, last_epoch == -1)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, max_lrs):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}"
            )
        phase, fraction = _formula.one_cycle(self.last_epoch, self.total_steps, self.pct_start, self.three_phase)
        cosine = self._anneal_func_type == "cos"
        rates = (
            ("initial_lr", "max_lr", "initial_lr", "min_lr") if self.three_phase else ("initial_lr", "max_lr", "min_lr")
        )
        momenta = ("max_momentum", "base_momentum", "max_momentum", "max_momentum")
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                _set_momentum(
                    group,
                    self.use_beta1,
                    _formula.anneal(group[momenta[phase]], group[momenta[phase + 1]], fraction, cosine),
                )
        return [
            _formula.anneal(group[rates[phase]], group[rates[phase + 1]], fraction, cosine)
            for group in self.optimizer.param_groups
        ]


def _prepare_momentum(optimizer, base_momentum, max_momentum, begins):
    """Whether the first beta is what is cycled, not momentum."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    use_beta1 = "betas" in optimizer.defaults
    base, highest = (
        _per_group("base_momentum", optimizer, base_momentum),
        _per_group("max_momentum", optimizer, max_momentum),
    )
    if begins:
        for group, low, high in zip(optimizer.param_groups, base, highest):
            _set_momentum(group, use_beta1, high)
            group["max_momentum"] = high
            group["base_momentum"] = low
    return use_beta1


def _set_momentum(group, use_beta1, value):
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """Triangles between base_lr and max_lr, of constant height ("triangular"), halved each cycle ("triangular2"), times
    gamma ** step ("exp_range"), or times scale_fn of the cycle or step.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=1.0, step_size_up=3)
    >>> for epoch in range(3): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [1.0]
    """

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        _require_positive("CyclicLR", "step_size_up", step_size_up)
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.step_size_up = float(step_size_up)
        self.step_size_down = self.step_size_up if step_size_down is None else float(step_size_down)
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _prepare_momentum(optimizer, base_momentum, max_momentum, last_epoch == -1)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                group["lr"] = lr
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """The height of a triangle, by x, the number of the cycle or of the step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self):
        height, cycle = _formula.triangle(self.last_epoch, self.step_size_up, self.step_size_down)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                _set_momentum(
                    group,
                    self.use_beta1,
                    group["max_momentum"] - (group["max_momentum"] - group["base_momentum"]) * height,
                )
        return [base + (high - base) * height for base, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self):
        """Everything but the optimizer and a scale_fn that is a function."""
        state = super().state_dict()
        function = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = (
            None if function is None or isinstance(function, types.FunctionType) else dict(function.__dict__)
        )
        return state

    def load_state_dict(self, state_dict):
        """Takes over what state_dict() gave."""
        saved = state_dict["_scale_fn_custom"]
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)


class _Combined(LRScheduler):
    def _check(self, optimizer, schedulers):
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} expects at least one scheduler, but got no scheduler.")
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires a metric when calling "
                    f"`step`, but got one at index {i}."
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but the one at index {i} has "
                    "another."
                )

    def state_dict(self):
        """Everything but the optimizer, with the state of each scheduler."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict):
        """Takes over what state_dict() gave."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(saved)


class SequentialLR(_Combined):
    """One schedule after the other: schedulers[i] begins at epoch milestones[i - 1].

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> warmup = optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    >>> decay = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
    >>> for epoch in range(4): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        self._check(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                "milestone points, "
                f"but got number of schedulers {len(schedulers)} and the number of milestones to be equal to "
                f"{len(milestones)}"
            )
        _require_ascending("SequentialLR", milestones)
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self._undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo(self, scheduler):
        """Takes back the steps that the schedulers' constructors made."""
        if hasattr(scheduler, "_schedulers"):
            for s in scheduler._schedulers:
                self._undo(s)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self):
        """Goes to the next epoch."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """All schedules at once: each changes what the one before left.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> both = optim.lr_scheduler.ConstantLR(optimizer, 0.5), optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> schedule = optim.lr_scheduler.ChainedScheduler(both)
    >>> for epoch in range(2): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def __init__(self, schedulers, optimizer=None):
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        self._check(optimizer, schedulers)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = self._rates()

    def step(self):
        """Steps every scheduler."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()
