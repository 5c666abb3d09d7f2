"""How CUDA computes, and scaffolding.cuda under its second name."""

from .. import _core
from ..cuda import is_available


def is_built():
    """Whether this build has a CUDA library beside it."""
    return is_available()


class _Matmul:
    """Matrix products."""

    @property
    def allow_tf32(self):
        """Whether products of float32 matrices may round their operands to TF32 for the tensor cores. False at first."""
        return _core._cuda_allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, value):
        _core._cuda_set_allow_tf32(bool(value))


matmul = _Matmul()
