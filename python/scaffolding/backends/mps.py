"""The "mps" device: the CPU of a Mac with Apple's Accelerate preferred."""

from .. import _core


def is_available():
    """Whether this machine has Accelerate."""
    return _core._backend_available("mps")[0]


def is_built():
    """Whether this build uses Accelerate."""
    return is_available()
