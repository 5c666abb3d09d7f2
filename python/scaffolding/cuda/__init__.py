"""CUDA devices, under torch.cuda's names. Without a GPU is_available() is False, why_not() says why,
and whatever needs one raises that reason.
"""

from .. import _core
from .devices import (
    current_device,
    device_count,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    synchronize,
    why_not,
)
from .._core import OutOfMemoryError
from .graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
    make_graphed_step,
)
from .kernel import Kernel, ensure_kernel
from .memory import (
    empty_cache,
    host_memory_stats,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .streams import Event, Stream, current_stream, default_stream, stream


def manual_seed(seed):
    """Seeds the default generator of the current CUDA device; without a GPU nothing happens, as in torch."""
    if is_available():
        _core._default_generator("cuda").manual_seed(seed)


def manual_seed_all(seed):
    """Seeds the default generators of all CUDA devices."""
    for index in range(device_count()):
        _core._default_generator(_core.device("cuda", index)).manual_seed(seed)


def get_rng_state(device="cuda"):
    """The state of the default generator of a CUDA device ("cuda:1", 1; the first one), a uint8 tensor on the CPU."""
    return _core._default_generator(_device(device)).get_state()


def set_rng_state(new_state, device="cuda"):
    """Restores a state from get_rng_state."""
    _core._default_generator(_device(device)).set_state(new_state)


def get_rng_state_all():
    """The states of the default generators of all CUDA devices, a list."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states):
    """Restores states from get_rng_state_all."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _device(device):
    return _core.device("cuda", device) if isinstance(device, int) else _core.device(device)


def __getattr__(name):
    if name == "amp":  # scaffolding.amp needs this module
        import importlib

        return importlib.import_module(".amp", __name__)
    from .._missing import missing

    raise missing(__name__, name)
