"""Paths the API promises."""

from . import checkpoint, data, tensorboard
