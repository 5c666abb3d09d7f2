"""Host memory of tensors, under the names that torch.cuda uses for a GPU's."""

from .. import _core


def memory_allocated():
    """Bytes in use by tensors now."""
    return _core._cpu_memory()[0]


def max_memory_allocated():
    """The most bytes in use since reset_peak_memory_stats."""
    return _core._cpu_memory()[1]


def memory_reserved():
    """Bytes in use, and freed ones kept for reuse."""
    return _core._cpu_memory()[0] + _core._cpu_memory()[2]


def reset_peak_memory_stats():
    """Starts a new peak."""
    _core._cpu_reset_peak()


def empty_cache():
    """Gives freed bytes back to the system."""
    _core._cpu_empty_cache()


def instruction_sets():
    """The instruction sets of this processor that kernels were compiled for and may use, best last."""
    return _core._instruction_sets()


def providers():
    """Whose kernels this process has: "native", "onednn"."""
    return sorted(_core._providers())
