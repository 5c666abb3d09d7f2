"""How CUDA computes, and scaffolding.cuda under its second name."""

from .. import _core
from ..cuda import device_count, get_device_name, get_device_properties, is_available  # noqa: F401


def is_built():
    """Whether this build has a CUDA library beside it."""
    return is_available()


class _Matmul:
    """Matrix products."""

    @property
    def allow_tf32(self):
        """Whether products of float32 matrices may round their operands to TF32 for the tensor cores.
        False at first: set_float32_matmul_precision is "highest". True makes it "high" unless it is lower already.
        """
        return _core._cuda_allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, value):
        _core._cuda_set_allow_tf32(bool(value))

    @property
    def fp32_precision(self):
        """allow_tf32 in words: "ieee" or "tf32"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value):
        if value not in ("ieee", "tf32"):
            raise ValueError(f"fp32_precision: must be 'ieee' or 'tf32', got {value!r}")
        self.allow_tf32 = value == "tf32"

    @property
    def benchmark(self):
        """Whether the first product of a kind times the algorithms that cuBLASLt proposes and keeps the fastest, in
        SF_KERNEL_CACHE too, as backends.cudnn.benchmark does for convolutions. False at first.
        Another algorithm may round differently."""
        return _core._cuda_matmul_benchmark()

    @benchmark.setter
    def benchmark(self, value):
        _core._cuda_set_matmul_benchmark(bool(value))


matmul = _Matmul()
