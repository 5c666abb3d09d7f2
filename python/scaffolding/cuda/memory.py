"""Memory of a GPU: what tensors use, and what is kept for the next ones. In bytes."""

from .. import _core
from .devices import device_index


def _statistics(device):
    return _core._cuda_memory(device_index(device))


def memory_allocated(device=None):
    """Bytes in use by tensors now."""
    return _statistics(device)[0]


def max_memory_allocated(device=None):
    """The most bytes in use since reset_peak_memory_stats."""
    return _statistics(device)[1]


def memory_reserved(device=None):
    """Bytes in use, and freed ones kept for reuse."""
    return _statistics(device)[2]


def max_memory_reserved(device=None):
    """The most bytes reserved since reset_peak_memory_stats."""
    return _statistics(device)[3]


def mem_get_info(device=None):
    """(free, total) bytes of the device, whoever uses it."""
    return _statistics(device)[4:6]


def reset_peak_memory_stats(device=None):
    """Starts new peaks."""
    _core._cuda_reset_peak(device_index(device))


def empty_cache():
    """Gives freed bytes of all GPUs back to them; without a GPU there are none."""
    for index in range(_core._device_count("cuda")):
        _core._cuda_empty_cache(index)


def memory_summary(device=None):
    """The figures above as a table to print."""
    index = device_index(device)
    names = ("in tensors", "in tensors at most", "reserved", "reserved at most", "free on the device", "of the device")
    lines = [f"cuda:{index} memory, MiB"]
    lines += [f"  {name:<20}{value / 2**20:>12.1f}" for name, value in zip(names, _core._cuda_memory(index))]
    return "\n".join(lines)
