"""Memory of a GPU: what tensors use, and what is kept for the next ones. In bytes."""

from .. import _core
from .devices import device_index


def _statistics(device):
    return _core._cuda_memory(device_index(device))


def memory_allocated(device=None):
    """Bytes in use by tensors now.

    Args:
        device: which GPU; None: the current one
    """
    return _statistics(device)[0]


def max_memory_allocated(device=None):
    """The most bytes in use since reset_peak_memory_stats.

    Args:
        device: which GPU; None: the current one
    """
    return _statistics(device)[1]


def memory_reserved(device=None):
    """Bytes in use, and freed ones kept for reuse.

    Args:
        device: which GPU; None: the current one
    """
    return _statistics(device)[2]


def max_memory_reserved(device=None):
    """The most bytes reserved since reset_peak_memory_stats.

    Args:
        device: which GPU; None: the current one
    """
    return _statistics(device)[3]


def mem_get_info(device=None):
    """(free, total) bytes of the device, whoever uses it."""
    return _core._cuda_device_memory(device_index(device))


def set_per_process_memory_fraction(fraction, device=None):
    """Tensors of this process may take that fraction of the device's memory, in [0, 1], with what is kept for the next
    ones; more is an OutOfMemoryError, as where the device has no more. 1 takes the limit off. What is taken already
    stays.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"set_per_process_memory_fraction: fraction must be a number, got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: fraction must be in [0, 1], got {fraction}")
    index = device_index(device)
    total = mem_get_info(index)[1]
    _core._cuda_set_memory_limit(index, 0 if fraction == 1 else max(1, int(total * fraction)))


def reset_peak_memory_stats(device=None):
    """Starts new peaks.

    Args:
        device: which GPU; None: the current one
    """
    _core._cuda_reset_peak(device_index(device))


def empty_cache():
    """Gives freed bytes of all GPUs back to them; without a GPU there are none."""
    for index in range(_core._device_count("cuda")):
        _core._cuda_empty_cache(index)


def host_memory_stats():
    """Pinned host memory in bytes, by torch's names: in tensors (active)
    and with what is kept for the next ones (allocated).
    """
    active, allocated, most = _core._cuda_pinned_memory()
    return {"active_bytes.current": active, "allocated_bytes.current": allocated, "allocated_bytes.peak": most}


def memory_summary(device=None):
    """The figures above as a table to print, with what is reserved and cannot be used for a large tensor:
    fragmentation.

    Args:
        device: which GPU; None: the current one
    """
    index = device_index(device)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    rows = {
        "in tensors": stats["allocated_bytes.all.current"],
        "in tensors at most": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.current"],
        "reserved at most": stats["reserved_bytes.all.peak"],
        "free beside tensors": stats["inactive_split_bytes.all.current"],
        "largest free block": stats["largest_free_block"],
        "of captured graphs": stats["graph_pool_bytes"],
        "free on the device": free,
        "of the device": total,
    }
    lines = [f"cuda:{index} memory, MiB"]
    lines += [f"  {name:<20}{value / 2**20:>12.1f}" for name, value in rows.items()]
    lines.append(
        f"  {stats['segment.all.current']} segments, {stats['free_blocks']} free blocks; "
        f"{stats['num_alloc_retries']} allocations emptied the cache, {stats['num_ooms']} failed"
    )
    return "\n".join(lines)


def memory_stats(device=None):
    """What is known of the GPU's memory, under torch's keys where it has them.

    Args:
        device: which GPU; None: the current one
    """
    s = _statistics(device)
    return {
        "allocated_bytes.all.current": s[0],
        "allocated_bytes.all.peak": s[1],
        "reserved_bytes.all.current": s[2],
        "reserved_bytes.all.peak": s[3],
        "segment.all.current": s[4],
        "inactive_split_bytes.all.current": s[7],
        "free_blocks": s[5],
        "largest_free_block": s[6],
        "graph_pool_bytes": s[8],
        "num_alloc_retries": s[9],
        "num_ooms": s[10],
    }
