"""Batches in pinned host memory, from which a GPU copies while the program goes on."""

import collections.abc
import warnings

from ... import _core
from .collate import _like_mapping


def pin_memory(data):
    """data with its tensors pinned, inside mappings and sequences too; an object with a method pin_memory()
    is asked for it. Anything else stays as it is.
    """
    if isinstance(data, (str, bytes)):
        return data
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, collections.abc.Mapping):
        return _like_mapping(data, {key: pin_memory(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(d) for d in data))
    if isinstance(data, collections.abc.Sequence):
        items = [pin_memory(d) for d in data]
        return tuple(items) if isinstance(data, tuple) else items
    return data


def pins(loader):
    """Whether a loader's batches are pinned: asked for, and there is a GPU."""
    if not loader.pin_memory:
        return False
    available, why = _core._backend_available("cuda")
    if not available:
        warnings.warn(f"DataLoader: pin_memory has no effect without a GPU: {why}", stacklevel=3)
    return available
