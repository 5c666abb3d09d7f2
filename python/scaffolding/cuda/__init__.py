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
from .random import (
    get_rng_state,
    get_rng_state_all,
    manual_seed,
    manual_seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, current_stream, default_stream, stream


def __getattr__(name):
    if name == "amp":  # scaffolding.amp needs this module
        import importlib

        return importlib.import_module(".amp", __name__)
    from .._missing import missing

    raise missing(__name__, name)
