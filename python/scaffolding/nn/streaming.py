"""Modules whose weights come when they are needed: what diffusers' offloading calls set (docs/internals/streaming.md).

A module has one streamer, and may store its weights in a narrower dtype besides."""

import atexit
import itertools
import os
import weakref

from .. import _core
from .._core import _streaming
from .module import Module

_attached = {}  # id(module): _Attached
_file_numbers = itertools.count(1)


class _Attached:
    """A module's streamer, the hooks of parts that only Python sees called, and the call that made it. Goes before the
    module."""

    def __init__(self, module):
        self.streamer = self.casting = None
        self.by = ""
        self.handles = []
        key = id(module)
        self.module = weakref.ref(module, lambda _, all=_attached: all.pop(key).close())

    def watch(self):
        self.handles = _watch(self.streamer)

    def detach(self):
        for handle in self.handles:
            handle.remove()
        streamer, self.streamer = self.streamer, None
        if streamer is not None:
            streamer.close()
        self.handles, self.by = [], ""

    def close(self):
        self.detach()
        if self.casting is not None:
            self.casting.close()


class _Place:
    """A module that Python calls. Each call that entered leaves."""

    def __init__(self, of, number):
        self.of, self.number, self.inside = of, number, 0

    def enter(self, module, args):
        self.of.enter(self.number)
        self.inside += 1

    def leave(self, module, args, output):
        if self.inside > 0:
            self.inside -= 1
            self.of.leave(self.number)


def _watch(of, last=False):
    """Handles of the hooks that tell a streamer, or a casting, of calls that only Python sees. last: it enters after
    those that are there, and leaves before them."""
    handles = []
    for part, number in of.python_places():
        place = _Place(of, number)
        handles.append(part.register_forward_pre_hook(place.enter, prepend=not last))
        handles.append(part.register_forward_hook(place.leave, prepend=last, always_call=True))
    return handles


@atexit.register
def _detach_all():
    """Modules that live until the end may go before their streamers then, without a word to anybody."""
    for attached in list(_attached.values()):
        attached.detach()


def _of(module):
    return _attached.get(id(module))


def streamer_of(module):
    """The module's streamer, or None."""
    found = _of(module)
    return found.streamer if found else None


def streamed_by(module):
    """The call that streams the module's weights: "enable_group_offload", ...; "" where none does."""
    found = _of(module)
    return found.by if found else ""


def attach(module, by, *, device, disk_path=None, **options):
    """Streams the module's weights. ValueError where another call does so already."""
    found = _of(module)
    if found and found.streamer:
        raise ValueError(
            f"{by}: the weights of {type(module).__name__} come and go already, by {found.by}; call "
            "remove_all_hooks() first"
        )
    if disk_path is not None:
        _move_to_disk(module, disk_path)
    streamer = _streaming.Streamer(module, device=device, **options)
    found = found or _attached.setdefault(id(module), _Attached(module))
    found.streamer, found.by = streamer, by
    found.watch()
    return streamer


def detach(module):
    """All weights are in host memory again; does nothing where they are not streamed."""
    found = _of(module)
    if found is None or found.streamer is None:
        return
    found.detach()
    if found.casting is None:
        _attached.pop(id(module), None)


def cast(module, storage_dtype, compute_dtype, skip):
    """Stores the module's weights in another dtype. ValueError where they are stored so already, or streamed."""
    found = _of(module)
    if found and (found.casting or found.streamer):
        raise ValueError(
            f"enable_layerwise_casting: the weights of {type(module).__name__} "
            + (
                "are cast already"
                if found.casting
                else f"come and go by {found.by}; cast first, then offload: what is copied is narrow then"
            )
        )
    casting = _streaming.LayerwiseCasting(module, storage_dtype, compute_dtype, skip)
    found = found or _attached.setdefault(id(module), _Attached(module))
    found.casting = casting
    _watch(casting)  # for good


class _Widened:
    def __init__(self, module, dtype):
        self.weights = _streaming.WidenedWeights(module, dtype)
        self.handles = _watch(self.weights, last=True)

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.weights.close()


class _Converted:
    def __init__(self, module, dtype):
        self.module, self.before = module, module.dtype
        module.to(dtype=dtype)

    def close(self):
        self.module.to(dtype=self.before)


def widened(module, dtype):
    """Lets a module compute in a wider dtype until close() of what is returned: weights of a Module stay as they are
    stored, anything else is converted and back."""
    return (_Widened if isinstance(module, Module) else _Converted)(module, dtype)


def _move_to_disk(module, folder):
    """The module's weights become pages of a file there. A disk that is full changes nothing."""
    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"group_{type(module).__name__}_{os.getpid()}_{next(_file_numbers)}.safetensors")
    seen, state = set(), {}
    for name, tensor in module.state_dict().items():
        if tensor.data_ptr() not in seen or tensor.numel() == 0:
            seen.add(tensor.data_ptr())
            state[name] = tensor
    from ..safetensors import load_file, save_file

    save_file(state, path)
    module.load_state_dict(load_file(path), strict=False, assign=True)


def group_offload_options(
    who,
    onload_device,
    offload_device="cpu",
    offload_type="block_level",
    num_blocks_per_group=None,
    non_blocking=False,
    use_stream=False,
    record_stream=False,
    low_cpu_mem_usage=False,
    offload_to_disk_path=None,
    block_modules=None,
):
    """diffusers' arguments as a streamer's. ValueError for those that contradict each other."""
    device = _core.device(onload_device) if isinstance(onload_device, str) else onload_device
    away = _core.device(offload_device) if isinstance(offload_device, str) else offload_device
    if away.type != "cpu":
        raise ValueError(f"{who}: offload_device must be the CPU, got {away}; for a disk pass offload_to_disk_path")
    if offload_type not in ("block_level", "leaf_level"):
        raise ValueError(f"{who}: offload_type must be 'block_level' or 'leaf_level', got {offload_type!r}")
    if offload_type == "block_level" and num_blocks_per_group is None:
        raise ValueError(f"{who}: offload_type 'block_level' needs num_blocks_per_group")
    if use_stream and device.type == "cpu":
        raise ValueError(f"{who}: use_stream needs a GPU as onload_device, got {device}; pass use_stream=False")
    if record_stream and not use_stream:
        raise ValueError(f"{who}: record_stream needs use_stream=True")
    if low_cpu_mem_usage and not use_stream:
        raise ValueError(f"{who}: low_cpu_mem_usage is about pinned memory, which use_stream=True needs")
    del non_blocking, record_stream  # copies never block, and slots are never freed while a stream uses them
    return {
        "device": device,
        "leaves": offload_type == "leaf_level",
        "blocks_per_group": 1 if num_blocks_per_group is None else num_blocks_per_group,
        "use_stream": use_stream,
        "pin_weights": not low_cpu_mem_usage,
        "pinned_bytes": 2**62 if use_stream else 0,
        "disk_path": offload_to_disk_path,
        "only": [] if block_modules is None or offload_type == "leaf_level" else _names(who, block_modules),
    }


def _names(who, names):
    names = [names] if isinstance(names, str) else list(names)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{who}: block_modules must be names of modules, got {names!r}")
    return names
