"""Training: Trainer, the loop around a step function."""

from .trainer import FitResult, Trainer
