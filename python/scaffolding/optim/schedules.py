"""diffusers' schedules by name: a warm-up, then a curve, as factors of the optimizer's rate."""

import enum

from .. import _core
from .lr_scheduler import LambdaLR
from .scheduler_base import _require_positive

_formula = _core._schedule


class SchedulerType(enum.Enum):
    """The names that get_scheduler knows."""

    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    POLYNOMIAL = "polynomial"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    PIECEWISE_CONSTANT = "piecewise_constant"


def _check_counts(who, num_warmup_steps, num_training_steps=1, num_cycles=1):
    if num_warmup_steps < 0:
        raise ValueError(f"{who}: num_warmup_steps must not be negative, got {num_warmup_steps}")
    _require_positive(who, "num_training_steps", num_training_steps)
    if not num_cycles > 0:
        raise ValueError(f"{who}: num_cycles must be positive, got {num_cycles}")


def get_constant_schedule(optimizer, last_epoch=-1):
    """The optimizer's rate throughout. last_epoch: the step before the first one; -1: begin anew.

    >>> schedule = sf.diffusion.get_constant_schedule(optim.SGD([sf.ones(1)], lr=0.5))
    >>> schedule.get_last_lr()
    [0.5]
    """
    return LambdaLR(optimizer, lambda _: 1, last_epoch)


def get_constant_schedule_with_warmup(optimizer, num_warmup_steps, last_epoch=-1):
    """The optimizer's rate: up from 0 in num_warmup_steps, then constant. last_epoch: see get_constant_schedule.

    >>> schedule = sf.diffusion.get_constant_schedule_with_warmup(optim.SGD([sf.ones(1)], lr=1.0), 4)
    >>> [schedule.lr_lambdas[0](step) for step in (0, 1, 4, 100)]
    [0.0, 0.25, 1.0, 1.0]
    """
    _check_counts("constant_with_warmup", num_warmup_steps)
    return LambdaLR(optimizer, lambda step: _formula.constant_with_warmup(step, num_warmup_steps), last_epoch)


def get_piecewise_constant_schedule(optimizer, step_rules, last_epoch=-1):
    """step_rules "1:10,0.1:20,0.005": the optimizer's rate times 1 before step 10, times 0.1 before step 20, then times
    0.005. last_epoch: see get_constant_schedule.

    >>> schedule = sf.diffusion.get_piecewise_constant_schedule(optim.SGD([sf.ones(1)], lr=1.0), "1:10,0.1:20,0.005")
    >>> [schedule.lr_lambdas[0](step) for step in (0, 10, 20)]
    [1.0, 0.1, 0.005]
    """
    return LambdaLR(optimizer, lambda step, pieces=_formula.Pieces(step_rules): pieces.factor(step), last_epoch)


def get_linear_schedule_with_warmup(
    optimizer, num_warmup_steps, num_training_steps, last_epoch=-1, f_min=0.0, f_max=1.0
):
    """The optimizer's rate: up to f_max times it in num_warmup_steps, then a straight line down to f_min times it at
    num_training_steps. last_epoch: see get_constant_schedule.

    >>> schedule = sf.diffusion.get_linear_schedule_with_warmup(optim.SGD([sf.ones(1)], lr=1.0), 2, 10)
    >>> [schedule.lr_lambdas[0](step) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    _check_counts("linear", num_warmup_steps, num_training_steps)
    return LambdaLR(
        optimizer,
        lambda step: _formula.linear_with_warmup(step, num_warmup_steps, num_training_steps, f_min, f_max),
        last_epoch,
    )


def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, num_cycles=0.5, last_epoch=-1):
    """The optimizer's rate: up in num_warmup_steps, then num_cycles of a cosine to num_training_steps. last_epoch: see
    get_constant_schedule.

    >>> schedule = sf.diffusion.get_cosine_schedule_with_warmup(optim.SGD([sf.ones(1)], lr=1.0), 2, 10)
    >>> [round(schedule.lr_lambdas[0](step), 4) for step in (0, 1, 2, 4, 10)]
    [0.0, 0.5, 1.0, 0.8536, 0.0]
    """
    _check_counts("cosine", num_warmup_steps, num_training_steps, num_cycles)
    return LambdaLR(
        optimizer,
        lambda step: _formula.cosine_with_warmup(step, num_warmup_steps, num_training_steps, num_cycles),
        last_epoch,
    )


def get_cosine_with_hard_restarts_schedule_with_warmup(
    optimizer, num_warmup_steps, num_training_steps, num_cycles=1, last_epoch=-1
):
    """The optimizer's rate: up in num_warmup_steps, then num_cycles half cosines, each from the full rate to 0, to
    num_training_steps. last_epoch: see get_constant_schedule.

    >>> schedule = sf.diffusion.get_cosine_with_hard_restarts_schedule_with_warmup(
    ...     optim.SGD([sf.ones(1)], lr=1.0), 0, 8, num_cycles=2)
    >>> [round(schedule.lr_lambdas[0](step), 4) for step in (0, 2, 3, 4, 8)]
    [1.0, 0.5, 0.1464, 1.0, 0.0]
    """
    _check_counts("cosine_with_restarts", num_warmup_steps, num_training_steps, num_cycles)
    return LambdaLR(
        optimizer,
        lambda step: _formula.cosine_with_restarts(step, num_warmup_steps, num_training_steps, num_cycles),
        last_epoch,
    )


def get_polynomial_decay_schedule_with_warmup(
    optimizer, num_warmup_steps, num_training_steps, lr_end=1e-7, power=1.0, last_epoch=-1
):
    """The optimizer's rate: up in num_warmup_steps, then a power law down to lr_end at num_training_steps. last_epoch:
    see get_constant_schedule.

    >>> schedule = sf.diffusion.get_polynomial_decay_schedule_with_warmup(
    ...     optim.SGD([sf.ones(1)], lr=1.0), 0, 10, lr_end=0.1, power=2.0)
    >>> [round(schedule.lr_lambdas[0](step), 4) for step in (0, 5, 10)]
    [1.0, 0.325, 0.1]
    """
    _check_counts("polynomial", num_warmup_steps, num_training_steps)
    lr_init = optimizer.defaults["lr"]
    if not (lr_init > lr_end):
        raise ValueError(f"lr_end ({lr_end}) must be smaller than initial lr ({lr_init})")
    return LambdaLR(
        optimizer,
        lambda step: _formula.polynomial_with_warmup(
            step, num_warmup_steps, num_training_steps, lr_init, lr_end, power
        ),
        last_epoch,
    )


def get_scheduler(
    name,
    optimizer,
    step_rules=None,
    num_warmup_steps=None,
    num_training_steps=None,
    num_cycles=1,
    power=1.0,
    last_epoch=-1,
):
    """A schedule by its name (a string or SchedulerType), as diffusers.optimization.get_scheduler.

    ValueError for an unknown name, for num_warmup_steps, num_training_steps or step_rules missing where needed, for a
    negative number of warm-up steps, and for numbers of training steps or cycles that are not positive.

    Args:
        optimizer: whose learning rates are set
        num_cycles: waves of cosine schedules, restarts of those with restarts
        power: of the polynomial
        last_epoch: the step before the first one; -1: begin anew

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.get_scheduler("cosine", optimizer, num_warmup_steps=1, num_training_steps=9)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [1.0]
    """
    name = SchedulerType(name)
    if name == SchedulerType.CONSTANT:
        return get_constant_schedule(optimizer, last_epoch)
    if name == SchedulerType.PIECEWISE_CONSTANT:
        if step_rules is None:
            raise ValueError(f"{name} requires `step_rules`, please provide that argument.")
        return get_piecewise_constant_schedule(optimizer, step_rules, last_epoch)
    if num_warmup_steps is None:
        raise ValueError(f"{name} requires `num_warmup_steps`, please provide that argument.")
    if name == SchedulerType.CONSTANT_WITH_WARMUP:
        return get_constant_schedule_with_warmup(optimizer, num_warmup_steps, last_epoch)
    if num_training_steps is None:
        raise ValueError(f"{name} requires `num_training_steps`, please provide that argument.")
    if name == SchedulerType.COSINE_WITH_RESTARTS:
        return get_cosine_with_hard_restarts_schedule_with_warmup(
            optimizer, num_warmup_steps, num_training_steps, num_cycles, last_epoch
        )
    if name == SchedulerType.POLYNOMIAL:
        return get_polynomial_decay_schedule_with_warmup(
            optimizer, num_warmup_steps, num_training_steps, power=power, last_epoch=last_epoch
        )
    make = get_linear_schedule_with_warmup if name == SchedulerType.LINEAR else get_cosine_schedule_with_warmup
    return make(optimizer, num_warmup_steps, num_training_steps, last_epoch=last_epoch)
