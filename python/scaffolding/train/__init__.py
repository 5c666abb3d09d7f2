"""Training: Trainer, the loop around a step function."""

from .._missing import help_modules
from .trainer import FitResult, Trainer

help_modules()  # this one is imported after the others
