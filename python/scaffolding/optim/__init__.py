"""Optimizers and schedules of learning rates, with torch.optim's names, options and state dictionaries."""

from .._later import later
from . import lr_scheduler
from .adafactor import Adafactor
from .adam import Adam, AdamW, AdamW8bit
from .optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from .sgd import SGD
from .schedules import SchedulerType, get_scheduler
from .ema import EMAModel

_LATER = {
    name: name.lower()
    for name in ("ASGD", "Adadelta", "Adagrad", "Adamax", "LBFGS", "Lion", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop")
} | {"swa_utils": None, "functional": None, "swap_in_optimizer_params_and_state": "swap_in"}
__getattr__, __dir__ = later(__name__, _LATER)
