"""diffusers' path of its schedules of learning rates: scaffolding.optim.schedules."""

from ..optim.schedules import (
    SchedulerType,
    get_constant_schedule,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_hard_restarts_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_piecewise_constant_schedule,
    get_polynomial_decay_schedule_with_warmup,
    get_scheduler,
)

__all__ = [
    "SchedulerType",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_linear_schedule_with_warmup",
    "get_piecewise_constant_schedule",
    "get_polynomial_decay_schedule_with_warmup",
    "get_scheduler",
]
