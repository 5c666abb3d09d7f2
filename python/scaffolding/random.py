"""The default generators, under torch.random's names."""

import contextlib

from . import cuda
from ._missing import help_modules
from ._random import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, *, device_type="cuda"):
    """Inside, random numbers are drawn as always; afterwards the generators are as they were before.

    Of the CPU, and of `devices`: indices or devices of CUDA; None means all that there are. device_type may be "cuda"
    or "cpu". With enabled=False it does nothing.

    >>> with sf.random.fork_rng():
    ...     _ = sf.manual_seed(0)
    ...     noise = sf.randn(3)
    """
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"fork_rng: device_type must be 'cuda' or 'cpu', got {device_type!r}")
    if not enabled:
        yield
        return
    if devices is None:
        devices = range(cuda.device_count()) if device_type == "cuda" and cuda.is_available() else ()
    devices = list(devices)
    own, theirs = get_rng_state(), [cuda.get_rng_state(d) for d in devices]
    try:
        yield
    finally:
        set_rng_state(own)
        for device, state in zip(devices, theirs):
            cuda.set_rng_state(state, device)


help_modules()
