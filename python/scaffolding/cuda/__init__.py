"""CUDA devices: whether there are any, and how many."""

from .. import _core


def is_available():
    """Whether the CUDA library loads and sees a GPU."""
    return _core._backend_available("cuda")[0]


def device_count():
    """The number of CUDA devices."""
    return _core._device_count("cuda")


def why_not():
    """Why CUDA is not available: the missing library, driver or GPU; empty when it is."""
    return _core._backend_available("cuda")[1]


def synchronize(device=None):
    """Waits until the device has done what it was given."""
    _core._synchronize(_core.device("cuda", device) if isinstance(device, int) else device or "cuda")


def __getattr__(name):
    if name == "amp":  # scaffolding.amp needs this module
        import importlib

        return importlib.import_module(".amp", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
