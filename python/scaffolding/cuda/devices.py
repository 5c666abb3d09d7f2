"""Which GPUs there are."""

from collections import namedtuple

from .. import _core


def is_available():
    """Whether the CUDA library loads and sees a GPU.

    >>> device = "cuda" if sf.cuda.is_available() else "cpu"
    """
    return _core._backend_available("cuda")[0]


def why_not():
    """Why CUDA is not available: the missing library, driver or GPU; empty when it is."""
    return _core._backend_available("cuda")[1]


def device_count():
    """The number of CUDA devices.

    >>> devices = [f"cuda:{i}" for i in range(sf.cuda.device_count())]
    """
    return _core._device_count("cuda")


def current_device():
    """The number of the device that "cuda" without a number means: 0. Raises the reason where there is none."""
    return device_index(None)


def device_index(device):
    """The number of a device given as None, a number, a name or a device.
    Raises the reason where there is no such GPU.
    """
    if not isinstance(device, int):
        given = _core.device("cuda" if device is None else device)
        if given.type != "cuda":
            raise ValueError(f"cuda: needs a CUDA device, got {given}")
        device = given.index or 0
    count = device_count()
    if not 0 <= device < count:
        _core._cuda_properties(0)  # why there is no GPU at all
        raise RuntimeError(f"cuda:{device}: not available: this machine has {count} such device(s)")
    return device


DeviceProperties = namedtuple(
    "DeviceProperties", "name total_memory major minor multi_processor_count max_threads_per_multi_processor"
)
DeviceProperties.__doc__ = (
    "What a GPU is: its name, bytes of memory, compute capability (major, minor) and multiprocessors."
)


def get_device_properties(device=None):
    """The DeviceProperties of a GPU.

    Args:
        device: which GPU; None: the current one
    """
    return DeviceProperties(*_core._cuda_properties(device_index(device)))


def get_device_name(device=None):
    """The GPU's name.

    Args:
        device: which GPU; None: the current one
    """
    return get_device_properties(device).name


def get_device_capability(device=None):
    """The GPU's compute capability, (9, 0) for example.

    Args:
        device: which GPU; None: the current one
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def synchronize(device=None):
    """Waits until the device has done what it was given."""
    _core._synchronize(_core.device("cuda", device_index(device)))
