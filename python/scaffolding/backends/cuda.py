"""scaffolding.cuda under its second name."""

from ..cuda import is_available


def is_built():
    """Whether this build has a CUDA library beside it."""
    return is_available()
