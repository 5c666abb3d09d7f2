"""Making a batch of a list of samples."""

import collections.abc
import sys

from ... import _core


def _is_numpy(data):
    numpy = sys.modules.get("numpy")  # imported by whoever made an array; importing it here would slow every start
    return numpy is not None and isinstance(data, (numpy.ndarray, numpy.generic))


def default_convert(data):
    """data with numpy arrays and scalars as tensors, inside mappings and sequences too."""
    if isinstance(data, _core.Tensor) or isinstance(data, (str, bytes)):
        return data
    if _is_numpy(data):
        return data if data.dtype.kind in "SUO" else _core.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, collections.abc.Sequence):
        return [default_convert(d) for d in data]
    return data


def _like_mapping(of, items):
    try:
        return type(of)(items)
    except TypeError:
        return items


def default_collate(batch):
    """Samples to a batch: tensors, arrays and numbers become tensors with a first dimension of len(batch), mappings,
    tuples and lists are collated by element, strings stay a list. TypeError for other types.

    >>> sf.utils.data.default_collate([{"x": sf.ones(2), "label": 3}, {"x": sf.zeros(2), "label": 5}])
    {'x': tensor([[1., 1.],
            [0., 0.]]), 'label': tensor([3, 5])}
    """
    first = batch[0]
    if isinstance(first, _core.Tensor):
        return _core.stack(list(batch))
    if _is_numpy(first) and first.dtype.kind not in "SUO":
        return _core.stack([_core.as_tensor(b) for b in batch])
    if isinstance(first, float):
        return _core.tensor(list(batch), dtype=_core.float64)
    if isinstance(first, int):
        return _core.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, collections.abc.Mapping):
        return _like_mapping(first, {key: default_collate([d[key] for d in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(samples) for samples in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        if any(len(b) != len(first) for b in batch):
            raise RuntimeError(
                f"default_collate: the samples of a batch must have one length, got {sorted({len(b) for b in batch})}"
            )
        return [default_collate(samples) for samples in zip(*batch)]
    raise TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}"
    )
