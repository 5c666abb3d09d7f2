"""cuDNN is a provider of the CUDA library's kernels."""

from .. import _core
from ..cuda import is_available as _cuda_available

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True


def is_available():
    """Whether a kernel of this process comes from cuDNN."""
    return _cuda_available() and "cudnn" in _core._providers()


def version():
    """The version of cuDNN in use, or None."""
    return None
