"""Where the bytes of a checkpoint lie: which files there are, where each tensor is in them, and who writes what.

Tensors of one top-level key are in one set of ordinary safetensors files, in their order. Rows are contiguous in such a
file, so that every process writes its own. A tensor's bytes are cut into pieces of at most PIECE, each with a checksum.
"""

import json
import math
import re

PIECE = 4 << 20  # bytes: what is read and checked at once
ITEM_BYTES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}


class Stored:
    """A tensor of the checkpoint: dtype by name, shape, its file, where its bytes begin in it, and its pieces."""

    def __init__(self, name, dtype, shape):
        self.name, self.dtype, self.shape = name, dtype, tuple(shape)
        self.file = self.at = None
        self.ends, self.owners = [], []  # of the pieces: where they end, in bytes of the tensor; who writes them
        self.checksums = []  # CRC-32 of the pieces

    @property
    def item(self):
        return ITEM_BYTES[self.dtype][1]

    @property
    def bytes(self):
        return math.prod(self.shape) * self.item

    @property
    def row_bytes(self):
        return math.prod(self.shape[1:]) * self.item

    def pieces(self):
        """(number, begin, end) of each."""
        begin = 0
        for i, end in enumerate(self.ends):
            yield i, begin, end
            begin = end


def described(name, path, tensor, first, total):
    """What a process tells the others of a tensor that it holds rows of, all of them where total is None."""
    dtype = str(tensor.dtype).rpartition(".")[2]
    if dtype not in ITEM_BYTES:
        raise TypeError(f"checkpoint: {name!r} has dtype {dtype}, which safetensors files do not have")
    shape = list(tensor.shape)
    if total is None:
        return [name, path, dtype, shape, None]
    return [name, path, dtype, [total, *shape[1:]], [first, first + shape[0]]]


def merged(descriptions):
    """The tensors of all processes' descriptions, by name, with the pieces of each and who writes them.

    RuntimeError naming the ranks where they differ, and the rows that nobody or two processes hold.
    """
    tensors, holders, seen = {}, {}, {}
    for rank, theirs in enumerate(descriptions):
        for name, path, dtype, shape, rows in theirs:
            facts = (path, dtype, shape, rows is None)
            first_rank, first = seen.setdefault(name, (rank, facts))
            if first != facts:
                a, b = (f"{s} {d}{'' if whole else ' in rows'}" for _, d, s, whole in (first, facts))
                raise RuntimeError(
                    f"checkpoint: {name!r} must be alike in all processes, rank {first_rank} has {a}, rank {rank} "
                    f"has {b}"
                )
            if name not in tensors:
                tensors[name] = Stored(name, dtype, shape)
                tensors[name].path = path
            holders.setdefault(name, []).append((rank, rows))
    _divide([t for t in tensors.values() if seen[t.name][1][3]], holders, len(descriptions))
    for tensor in tensors.values():
        if not seen[tensor.name][1][3]:
            _by_rows(tensor, holders[tensor.name])
    return tensors


def _divide(tensors, holders, size):
    """What several hold alike: each writes as many bytes, neighbours where it can be."""
    total, before = sum(t.bytes for t in tensors), 0
    for tensor in tensors:
        ranks = [rank for rank, _ in holders[tensor.name]]
        for begin in range(0, tensor.bytes, PIECE):
            end = min(begin + PIECE, tensor.bytes)
            wanted = min(size - 1, (before + begin) * size // total)
            tensor.ends.append(end)
            tensor.owners.append(min(ranks, key=lambda rank: abs(rank - wanted)))
        before += tensor.bytes


def _by_rows(tensor, holders):
    at = 0
    for rank, (first, end) in sorted(holders, key=lambda h: (h[1], h[0])):
        if first == end:
            continue
        if first != at:
            raise RuntimeError(
                f"checkpoint: rows {at} to {first} of {tensor.name!r} are held by no process; each row must be"
                if first > at
                else f"checkpoint: row {first} of {tensor.name!r} is held by rank {rank} and another; one must hold it"
            )
        for begin in range(first * tensor.row_bytes, end * tensor.row_bytes, PIECE):
            tensor.ends.append(min(begin + PIECE, end * tensor.row_bytes))
            tensor.owners.append(rank)
        at = end
    if at != tensor.shape[0]:
        raise RuntimeError(
            f"checkpoint: rows {at} to {tensor.shape[0]} of {tensor.name!r} are held by no process; each row must be"
        )


def set_of(path, flat):
    """The set that a tensor is in, and its name there."""
    if flat or len(path) == 1:
        return ("model" if flat else "tensors"), ".".join(_text(key) for key in path)
    return _text(path[0]), ".".join(_text(key) for key in path[1:])


def _text(key):
    return str(key[0] if isinstance(key, list) else key)


def in_files(tensors, max_shard_bytes):
    """Gives every tensor its place; {file: header bytes}, {file: size}, and {index file: its dict}."""
    flat = all(len(t.path) == 1 for t in tensors.values())
    sets = {}
    for tensor in tensors.values():
        name, within = set_of(tensor.path, flat)
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}", name):
            raise ValueError(
                f"checkpoint: a top-level key names files, letters, digits, '_', '.' and '-' alone, got {name!r}"
            )
        sets.setdefault(name, []).append((within, tensor))
    headers, sizes, indexes = {}, {}, {}
    for name, members in sets.items():
        shards = [[]]
        size = 0
        for within, tensor in members:
            if shards[-1] and size + tensor.bytes > max_shard_bytes:
                shards.append([])
                size = 0
            shards[-1].append((within, tensor))
            size += tensor.bytes
        for i, shard in enumerate(shards):
            file = f"{name}.safetensors" if len(shards) == 1 else f"{name}-{i + 1:05}-of-{len(shards):05}.safetensors"
            headers[file], sizes[file] = _placed(file, shard)
        if len(shards) > 1:
            indexes[f"{name}.safetensors.index.json"] = {
                "metadata": {"total_size": sum(t.bytes for _, t in members)},
                "weight_map": {within: tensor.file for within, tensor in members},
            }
    return headers, sizes, indexes


def _placed(file, shard):
    # Wider items first: each begins at a multiple of its size, as readers that map the file want it.
    shard = sorted(shard, key=lambda member: -member[1].item)
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for within, tensor in shard:
        entries[within] = {
            "dtype": ITEM_BYTES[tensor.dtype][0],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.bytes],
        }
        tensor.file, tensor.at = file, at
        at += tensor.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    for _, tensor in shard:
        tensor.at += 8 + len(text)
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + at
