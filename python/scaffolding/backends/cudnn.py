"""cuDNN, a provider of the CUDA library's convolutions and attention: torch.backends.cudnn's settings, for the whole
process.

enabled: False leaves its kernels out. benchmark: the first call of a shape times the plans that cuDNN proposes and
keeps the fastest. deterministic: no plan whose sums depend on the order of threads. allow_tf32: float32 convolutions
may round their operands to TF32. A change holds from the next call on."""

import sys
import types

from .. import _core
from ..cuda import is_available as _cuda_available


def is_available():
    """Whether libcudnn was found, on a machine with a GPU."""
    return version() is not None


def version():
    """The version of cuDNN in use, 91900 for 9.19.0, or None."""
    return (_core._cudnn_version() or None) if _cuda_available() else None


def _setting(name):
    def change(module, value):
        _core._cudnn_set(name, bool(value))

    return property(lambda module: _core._cudnn_get(name), change)


class _Settings(types.ModuleType):
    enabled = _setting("enabled")
    benchmark = _setting("benchmark")
    deterministic = _setting("deterministic")
    allow_tf32 = _setting("allow_tf32")


sys.modules[__name__].__class__ = _Settings
