"""Python objects between processes, in a format of our own: no pickle, so that what comes is data and never code.

A message is the length of a JSON text in 8 bytes, the text, and a safetensors file of the tensors in the object.
"""

import base64
import json

from .. import _core
from ._calls import _rank_in, all_gather_into_tensor, broadcast, recv, send
from ._groups import _group, _is_outside

_MAX_DEPTH = 100


def _encoded(value, tensors, depth=0):
    if depth > _MAX_DEPTH:
        raise ValueError(f"object: nested deeper than {_MAX_DEPTH}")
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return value
    if isinstance(value, _core.Tensor):
        tensors[str(len(tensors))] = value.detach().cpu().contiguous()
        return {"tensor": len(tensors) - 1}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, _core.dtype):
        return {"dtype": str(value).rpartition(".")[2]}
    if isinstance(value, _core.device):
        return {"device": str(value)}
    for kind, name in ((list, "list"), (tuple, "tuple"), (set, "set"), (frozenset, "frozenset")):
        if isinstance(value, kind):
            return {name: [_encoded(v, tensors, depth + 1) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(k, tensors, depth + 1), _encoded(v, tensors, depth + 1)] for k, v in value.items()]}
    raise TypeError(
        f"object: a {type(value).__name__} cannot be sent; numbers, strings, bytes, None, tensors, dtypes, devices, "
        "and lists, tuples, sets and dicts of them can"
    )


def _decoded(value, tensors):
    if not isinstance(value, dict):
        return value
    (kind, inner), *more = value.items()
    if more:
        raise ValueError("object: a message is damaged")
    if kind == "tensor":
        return tensors[str(inner)]
    if kind == "bytes":
        return base64.b64decode(inner)
    if kind == "dtype":
        found = getattr(_core, inner, None)
        if not isinstance(found, _core.dtype):
            raise ValueError(f"object: there is no dtype {inner!r}")
        return found
    if kind == "device":
        return _core.device(inner)
    if kind == "dict":
        return {_decoded(k, tensors): _decoded(v, tensors) for k, v in inner}
    kinds = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    if kind not in kinds:
        raise ValueError(f"object: a message has a value of an unknown kind {kind!r}")
    return kinds[kind](_decoded(v, tensors) for v in inner)


def _to_bytes(value):
    from .. import safetensors

    tensors = {}
    text = json.dumps(_encoded(value, tensors)).encode()
    return len(text).to_bytes(8, "little") + text + (safetensors.save(tensors) if tensors else b"")


def _from_bytes(data):
    from .. import safetensors

    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise ValueError(f"object: a message of {len(data)} bytes is damaged")
    try:
        structure = json.loads(data[8 : 8 + size])
        return _decoded(structure, safetensors.load(data[8 + size :]) if len(data) > 8 + size else {})
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as e:
        raise ValueError(f"object: a message is damaged: {e}") from None


def _to_tensor(value):
    import numpy

    return _core.from_numpy(numpy.frombuffer(bytearray(_to_bytes(value)), dtype=numpy.uint8))


def _to_object(tensor):
    return _from_bytes(tensor.numpy().tobytes())


def all_gather_object(object_list, obj, group=None):
    """object_list[i] becomes obj of process i. group: the processes that take part; None: all.

    >>> found = [None] * sf.distributed.get_world_size()
    >>> sf.distributed.all_gather_object(found, {"steps": 20})
    >>> found
    [{'steps': 20}]
    """
    if _is_outside(group):
        return
    g = _group("all_gather_object", group)
    if len(object_list) != g.size():
        raise ValueError(f"all_gather_object: needs a place for each of {g.size()} objects, got {len(object_list)}")
    own = _to_tensor(obj)
    sizes = _core.zeros(g.size(), dtype=_core.int64)
    all_gather_into_tensor(sizes, _core.tensor([own.numel()]), g)
    sizes = sizes.tolist()
    most = max(sizes)
    padded = _core.zeros(most, dtype=_core.uint8)
    padded[: own.numel()] = own
    all_of_them = _core.zeros(most * g.size(), dtype=_core.uint8)
    all_gather_into_tensor(all_of_them, padded, g)
    for i, size in enumerate(sizes):
        object_list[i] = _to_object(all_of_them[i * most : i * most + size])


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """object_gather_list[i] of process dst (of group: group_dst) becomes obj of process i."""
    if _is_outside(group):
        return
    g = _group("gather_object", group)
    root = _rank_in("gather_object", "dst", g, dst, group_dst, otherwise=0)
    if (object_gather_list is not None) != (g.rank() == root):
        raise ValueError("gather_object: object_gather_list must be given in process dst, and there alone")
    objects = [None] * g.size()
    all_gather_object(objects, obj, g)
    if object_gather_list is not None:
        object_gather_list[:] = objects


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """The objects of process src (of group: group_src), into everyone's object_list. device changes nothing."""
    if _is_outside(group):
        return
    g = _group("broadcast_object_list", group)
    root = _rank_in("broadcast_object_list", "src", g, src, group_src, otherwise=0)
    mine = _to_tensor(list(object_list)) if g.rank() == root else None
    size = _core.tensor([mine.numel() if mine is not None else 0])
    broadcast(size, group=g, group_src=root)
    data = _core.zeros(int(size), dtype=_core.uint8) if mine is None else mine
    broadcast(data, group=g, group_src=root)
    objects = _to_object(data)
    if len(objects) != len(object_list):
        raise ValueError(f"broadcast_object_list: src has {len(objects)} objects, this process {len(object_list)}")
    object_list[:] = objects


def scatter_object_list(
    scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
):
    """scatter_object_output_list[0] becomes scatter_object_input_list[this rank] of process src (of
    group: group_src)."""
    if _is_outside(group):
        return
    g = _group("scatter_object_list", group)
    root = _rank_in("scatter_object_list", "src", g, src, group_src, otherwise=0)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_list: scatter_object_output_list must have a place")
    objects = list(scatter_object_input_list or []) if g.rank() == root else [None] * g.size()
    if len(objects) != g.size():
        raise ValueError(f"scatter_object_list: src must give {g.size()} objects, got {len(objects)}")
    broadcast_object_list(objects, group=g, group_src=root)
    scatter_object_output_list[0] = objects[g.rank()]


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None):
    """Sends the objects of object_list to process dst (of group: group_dst). device changes nothing."""
    if _is_outside(group):
        return
    data = _to_tensor(list(object_list))
    send(_core.tensor([data.numel()]), dst, group, group_dst=group_dst)
    send(data, dst, group, group_dst=group_dst)


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """Receives object_list from process src (of group: group_src), whose rank it returns. device changes nothing."""
    if _is_outside(group):
        return -1
    size = _core.tensor([0])
    recv(size, src, group, group_src=group_src)
    data = _core.zeros(int(size), dtype=_core.uint8)
    rank = recv(data, src, group, group_src=group_src)
    objects = _to_object(data)
    if len(objects) != len(object_list):
        raise ValueError(f"recv_object_list: {len(objects)} objects came, the list has {len(object_list)}")
    object_list[:] = objects
    return rank
