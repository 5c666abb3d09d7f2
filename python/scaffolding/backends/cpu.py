"""Host memory of tensors, under the names that torch.cuda uses for a GPU's."""

import warnings

from .. import _core


def memory_allocated():
    """Bytes in use by tensors now.

    >>> before, x = sf.backends.cpu.memory_allocated(), sf.zeros(1 << 20)
    >>> sf.backends.cpu.memory_allocated() - before >= 4 << 20
    True
    """
    return _core._cpu_memory()[0]


def max_memory_allocated():
    """The most bytes in use since reset_peak_memory_stats."""
    return _core._cpu_memory()[1]


def memory_reserved():
    """Bytes in use, and freed ones kept for reuse."""
    return _core._cpu_memory()[0] + _core._cpu_memory()[2]


def mem_get_info():
    """(free, total) bytes of host memory: free is what this process may still take, by the least of memory_limits()."""
    return _core._free_host_memory()[:2]


def memory_limits():
    """{limit: bytes that it leaves}, the least first: MemAvailable, the memory of cgroups, RLIMIT_AS, RLIMIT_DATA and
    SF_CPU_MEMORY_LIMIT_MB, each where there is one.
    """
    return dict(_core._free_host_memory()[2])


def reset_peak_memory_stats():
    """Starts a new peak."""
    _core._cpu_reset_peak()


def empty_cache():
    """Gives freed bytes back to the system."""
    _core._cpu_empty_cache()


def instruction_sets():
    """The instruction sets of this processor that kernels were compiled for and may use, best last: "base", "avx2",
    "avx512", "avx512bf16", and "avx512amx" where there are tiles (AMX) and the operating system gives them to this
    process. SF_ISA in the environment names the best that may be used.

    >>> sf.backends.cpu.instruction_sets()[0]
    'base'
    """
    return _core._instruction_sets()


def providers():
    """Whose kernels this process has: "native", "onednn"."""
    return sorted(_core._providers())


def units():
    """{unit: operations per second} of what multiplies and adds in this processor, such as "AMX bfloat16": what loops
    that do nothing else reach now, on get_num_threads() threads."""
    return dict(_core._cpu_units())


def has_bf16():
    """Whether the processor multiplies bfloat16 itself (AVX512-BF16, AMX) and kernels for it were compiled; elsewhere
    bfloat16 is emulated: computed in float32 and rounded, correct but not faster than float32."""
    return "avx512bf16" in _core._instruction_sets()


_warned_of_bf16 = False


def _warn_if_bf16_is_emulated():
    """Once in a process."""
    global _warned_of_bf16
    if _warned_of_bf16 or has_bf16():
        return
    _warned_of_bf16 = True
    warnings.warn(
        "bfloat16 on this CPU is emulated: it is computed in float32 and rounded, which saves memory but no time "
        "(scaffolding.backends.cpu.has_bf16() tells; float32 is as fast)",
        UserWarning,
        stacklevel=4,
    )
