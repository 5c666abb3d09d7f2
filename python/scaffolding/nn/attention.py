"""torch.nn.attention's names for choosing a kernel of scaled_dot_product_attention: accepted, since programs use them.

There is one kernel for each device and dtype, which never holds the matrix of scores; there is nothing to choose.
"""

import contextlib
import enum

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Checks its arguments, backends and set_priority, and changes nothing: attention here has one kernel for a device
    and dtype, of the kind of FLASH_ATTENTION, and its numbers are within rounding of MATH's. TypeError for what is not
    an SDPBackend."""
    for backend in [backends] if isinstance(backends, SDPBackend) else list(backends):
        if not isinstance(backend, SDPBackend):
            raise TypeError(f"sdpa_kernel: needs SDPBackend or a list of them, got {backend!r}")
    yield
