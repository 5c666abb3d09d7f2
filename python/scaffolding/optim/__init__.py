"""Optimizers and schedules of learning rates, with torch.optim's names, options and state dictionaries."""

from importlib import import_module

from . import lr_scheduler
from .adafactor import Adafactor
from .adam import Adam, AdamW, AdamW8bit
from .optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from .sgd import SGD
from .schedules import SchedulerType, get_scheduler
from .ema import EMAModel

# What few programs use is imported when it is asked for.
_LATER = {
    name: name.lower()
    for name in ("ASGD", "Adadelta", "Adagrad", "Adamax", "LBFGS", "Lion", "NAdam", "RAdam", "RMSprop", "Rprop")
} | {"swa_utils": None}


def __getattr__(name):
    from .._missing import help_modules, missing

    if name not in _LATER:
        raise missing(__name__, name)
    module = import_module("." + (_LATER[name] or name), __name__)
    help_modules()
    found = getattr(module, name) if _LATER[name] else module
    globals()[name] = found
    return found


def __dir__():
    return sorted({*globals(), *_LATER})
