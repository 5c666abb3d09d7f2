"""Batches as flat lists of tensors, which is what a captured step takes."""

from .._core import Tensor


def flatten(batch, place="the batch"):
    """The tensors of nested lists, tuples and dicts, and a key of the nesting. TypeError for anything else in it."""
    if isinstance(batch, Tensor):
        return [batch], "t"
    if isinstance(batch, dict):
        items, keys = [(f"{place}[{k!r}]", v) for k, v in batch.items()], ("dict", *batch)
    elif isinstance(batch, (list, tuple)):
        items, keys = [(f"{place}[{i}]", v) for i, v in enumerate(batch)], (type(batch),)
    else:
        raise TypeError(
            "Trainer: cuda_graph=True needs batches of tensors in lists, tuples and dicts, since a replay would repeat "
            "anything else; "
            f"got {type(batch).__name__} in {place}: make tensors of it in `prepare`"
        )
    tensors, parts = [], []
    for name, value in items:
        some, key = flatten(value, name)
        tensors += some
        parts.append(key)
    return tensors, (keys, tuple(parts))


def rebuild(tensors, key):
    """flatten's inverse; tensors: an iterator."""
    if key == "t":
        return next(tensors)
    (kind, *names), parts = key
    values = [rebuild(tensors, part) for part in parts]
    if kind == "dict":
        return dict(zip(names, values))
    if hasattr(kind, "_fields"):
        return kind(*values)
    return kind(values)
