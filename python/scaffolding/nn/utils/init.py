"""Modules without initial values."""

from ..module import Module


def skip_init(module_cls, *args, **kwargs):
    """module_cls(*args, **kwargs) with memory for its parameters but no values in it. RuntimeError where the class is
    no Module or takes no device."""
    import inspect  # not at import: it is slow to load

    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", None) or "cpu"
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
