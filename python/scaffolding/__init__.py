"""Scaffolding: tensors with gradients on CPU and CUDA, with PyTorch's vocabulary."""
from ._core import *  # noqa: F401,F403
from . import _core
