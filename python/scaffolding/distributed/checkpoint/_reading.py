"""Loading: every process reads the rows that it needs, whoever wrote them, and checks what it reads."""

import json
import os
import time
import zlib

from ... import _core
from ...autograd.grad_mode import no_grad
from .._objects import _decoded
from . import _layout
from ._tree import Rows, built, is_tensor, leaves, put
from ._writing import FORMAT, MANIFEST, recover

_REMEDY = "load an older checkpoint, or bring the file back"
_MOST_BYTES = 1 << 31  # of a manifest


class Checkpoint:
    """A checkpoint's folder as one moment had it: its files are open, and stay so if another takes its place."""

    def __init__(self, folder):
        self.folder = os.path.abspath(os.fspath(folder))
        self._files = {}
        for attempt in range(20):
            try:
                text, mark = self._read_manifest()
                self._parse(text)
                for file in self._sizes:
                    self._open(file)
                if self._mark() == mark:
                    return
            except OSError as e:
                last = e
            else:
                last = RuntimeError(f"{self.folder}: is replaced again and again while it is read")
            self.close()
            if not os.path.isdir(self.folder):
                recover(self.folder)
            time.sleep(0.01 * attempt)
            if not os.path.isdir(self.folder):
                raise RuntimeError(f"{self.folder}: there is no checkpoint; save writes one")
        raise RuntimeError(f"{self.folder}: cannot be read: {last}")

    def _mark(self):
        facts = os.stat(os.path.join(self.folder, MANIFEST))
        return facts.st_ino, facts.st_dev, facts.st_mtime_ns

    def _read_manifest(self):
        path = os.path.join(self.folder, MANIFEST)
        if os.path.isdir(self.folder) and not os.path.exists(path):
            raise RuntimeError(f"{path}: is missing; the folder holds no whole checkpoint")
        mark = self._mark()
        if os.path.getsize(path) > _MOST_BYTES:
            raise RuntimeError(f"{path}: is damaged: larger than {_MOST_BYTES} bytes")
        with open(path, encoding="utf-8") as f:
            return f.read(), mark

    def _parse(self, text):
        path = os.path.join(self.folder, MANIFEST)
        try:
            content = json.loads(text)
            if content["format"] != FORMAT or content["version"] != 1:
                raise ValueError(f"format {content['format']!r}, version {content['version']!r} are not known here")
            self._sizes = {str(file): int(size) for file, size in content["sizes"].items()}
            if any(os.path.basename(file) != file or file in ("", ".", "..") for file in self._sizes):
                raise ValueError("a file lies outside of the folder")
            self.tensors = {name: self._stored(name, facts) for name, facts in content["tensors"].items()}
            self.values = {}
            for keys, value in content["values"]:
                _check_path(keys)
                self.values[".".join(str(k[0] if isinstance(k, list) else k) for k in keys)] = keys, _decoded(value, {})
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as e:
            raise RuntimeError(f"{path}: is damaged or of another version: {e}") from None

    def _stored(self, name, facts):
        tensor = _layout.Stored(name, facts["dtype"], [int(n) for n in facts["shape"]])
        _check_path(facts["path"])
        tensor.path, tensor.file, tensor.at = facts["path"], facts["file"], int(facts["at"])
        tensor.ends = [int(end) for end, _ in facts["pieces"]]
        tensor.checksums = [int(checksum) for _, checksum in facts["pieces"]]
        ascending = all(a < b <= a + _layout.PIECE for a, b in zip([0, *tensor.ends], tensor.ends))
        if tensor.dtype not in _layout.ITEM_BYTES or any(n < 0 for n in tensor.shape):
            raise ValueError(f"{name!r} has dtype {tensor.dtype!r} and shape {tensor.shape}")
        if (
            not ascending
            or (tensor.ends[-1] if tensor.ends else 0) != tensor.bytes
            or not 0 <= tensor.at <= tensor.at + tensor.bytes <= self._sizes[tensor.file]
        ):
            raise ValueError(f"the pieces of {name!r} do not make it up")
        return tensor

    def _open(self, file):
        path = os.path.join(self.folder, file)
        if file in self._files:
            return self._files[file]
        if os.path.isdir(self.folder) and not os.path.exists(path):
            raise RuntimeError(f"{path}: is missing from the checkpoint")
        self._files[file] = fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(fd).st_size
        if size != self._sizes[file]:
            raise RuntimeError(f"{path}: has {size} bytes, {self._sizes[file]} were written")
        return fd

    def close(self):
        for fd in self._files.values():
            os.close(fd)
        self._files = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def read(self, tensor, begin, end):
        """The bytes [begin, end) of a tensor, as (where they go, bytes) in pieces that have been checked."""
        path = os.path.join(self.folder, tensor.file)
        for i, first, last in tensor.pieces():
            if last <= begin or first >= end:
                continue
            data = self._exactly(self._files[tensor.file], last - first, tensor.at + first, path)
            if zlib.crc32(data) != tensor.checksums[i]:
                raise RuntimeError(
                    f"{path}: bytes {tensor.at + first} to {tensor.at + last}, of {tensor.name!r}, are damaged: their "
                    "checksum is not the one that was written"
                )
            low, high = max(begin, first), min(end, last)
            yield low - begin, memoryview(data)[low - first : high - first]

    @staticmethod
    def _exactly(fd, size, at, path):
        data = bytearray(size)
        view = memoryview(data)
        while len(view):
            n = os.preadv(fd, [view], at)
            if n == 0:
                raise RuntimeError(f"{path}: ends before byte {at + len(view)}")
            view, at = view[n:], at + n
        return data

    def tensor(self, stored, first=0, rows=None):
        """A new tensor of the CPU with the rows first, first + 1, ... of a stored one, all of them without rows."""
        shape = list(stored.shape)
        begin, end = 0, stored.bytes
        if rows is not None:
            shape[0] = rows
            begin, end = first * stored.row_bytes, (first + rows) * stored.row_bytes
        raw = _core.empty(end - begin, dtype=_core.uint8)
        into = memoryview(raw.numpy())
        for at, data in self.read(stored, begin, end):
            into[at : at + len(data)] = data
        if end == begin:
            return _core.empty(shape, dtype=getattr(_core, stored.dtype))
        return raw.view(getattr(_core, stored.dtype)).reshape(shape)


def _check_path(path):
    """As _tree.leaves gives them, from a file that may lie."""
    for key in path:
        inner = key[0] if isinstance(key, list) and len(key) == 1 else key
        if type(inner) not in ((int,) if isinstance(key, list) else (int, str)):
            raise ValueError(f"{path!r} is no path of keys")


def wanted(state, checkpoint):
    """[(name, path, value, stored tensor or None)] of a state dict's leaves. RuntimeError for what cannot be loaded."""
    out = []
    for name, (path, value) in leaves(state).items():
        if not is_tensor(value):
            if name not in checkpoint.values:
                raise RuntimeError(f"{checkpoint.folder}: has no value {name!r}; {_has(checkpoint)}")
            out.append((name, path, value, None))
            continue
        stored = checkpoint.tensors.get(name)
        if stored is None:
            raise RuntimeError(f"{checkpoint.folder}: has no tensor {name!r}; {_has(checkpoint)}")
        shape = tuple(value.shape) if not isinstance(value, Rows) else (value.total, *value.tensor.shape[1:])
        if shape != stored.shape:
            raise RuntimeError(
                f"{checkpoint.folder}: {name!r} has shape {list(stored.shape)} there, {list(shape)} in this state"
            )
        out.append((name, path, value, stored))
    return out


def _has(checkpoint):
    names = sorted([*checkpoint.tensors, *checkpoint.values])
    return f"it has {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"


class Loading:
    """One load into a state dict, in all processes."""

    def __init__(self, peers, state, folder, gather):
        self.peers, self.state, self.folder, self.gather = peers, state, folder, gather

    def run(self):
        if self.gather and self.peers.size > 1:
            self._from_rank_0()
        else:
            self.peers.phase("loading", self._read, _REMEDY)

    def _read(self):
        with Checkpoint(self.folder) as checkpoint:
            for _, path, value, stored in wanted(self.state, checkpoint):
                if stored is None:
                    put(self.state, path, checkpoint.values[_name(path)][1])
                elif isinstance(value, Rows):
                    _fill(value.tensor, checkpoint.tensor(stored, value.first, value.tensor.shape[0]))
                else:
                    _fill(value, checkpoint.tensor(stored))

    def _from_rank_0(self):
        """Rank 0 alone reads; what all need is broadcast, rows are sent."""
        peers = self.peers

        def needs():
            out = []
            for name, (_, value) in leaves(self.state).items():
                rows = isinstance(value, Rows)
                if is_tensor(value):
                    shape = [value.total, *value.tensor.shape[1:]] if rows else list(value.shape)
                    out.append([name, shape, [value.first, value.tensor.shape[0]] if rows else None])
                else:
                    out.append([name, None, None])
            return out

        asked = peers.phase("state", needs, "give every process a state that can be loaded")
        checkpoint = None

        def look():
            nonlocal checkpoint
            if peers.rank != 0:
                return None
            checkpoint = Checkpoint(self.folder)
            values, dtypes = {}, {}
            for theirs in asked:
                for name, shape, rows in theirs:
                    if shape is None:
                        if name not in checkpoint.values:
                            raise RuntimeError(f"{self.folder}: has no value {name!r}; {_has(checkpoint)}")
                        values[name] = checkpoint.values[name][1]
                        continue
                    stored = checkpoint.tensors.get(name)
                    if stored is None or list(stored.shape) != shape:
                        there = "no such tensor" if stored is None else f"shape {list(stored.shape)}"
                        raise RuntimeError(f"{self.folder}: {name!r} has shape {shape} in a state, and {there} there")
                    dtypes[name] = stored.dtype
                    first, n = rows or (0, shape[0] if shape else 1)
                    size = stored.row_bytes if shape else stored.bytes
                    for _ in checkpoint.read(stored, first * size, (first + n) * size):
                        pass  # damage is found before anything is sent
            return [values, dtypes]

        try:
            values, dtypes = peers.phase("loading", look, _REMEDY)[0]
            own = leaves(self.state)
            for name in sorted({name for theirs in asked for name, shape, _ in theirs if shape is not None}):
                self._share(
                    name, [dict((n, (s, r)) for n, s, r in theirs) for theirs in asked], own, checkpoint, dtypes
                )
            for name, (path, value) in own.items():
                if not is_tensor(value):
                    put(self.state, path, values[name])
        finally:
            if checkpoint is not None:
                checkpoint.close()

    def _share(self, name, asked, own, checkpoint, dtypes):
        group, rank = self.peers.group, self.peers.rank
        dtype = getattr(_core, dtypes[name])
        value = own[name][1] if name in own else None
        if all(name in theirs and theirs[name][1] is None for theirs in asked):
            whole = checkpoint.tensor(checkpoint.tensors[name]) if rank == 0 else _core.empty(value.shape, dtype=dtype)
            group._broadcast(whole, 0, False)
            _fill(value, whole)
            return
        if rank != 0:
            if value is not None:
                target = value.tensor if isinstance(value, Rows) else value
                came = _core.empty(target.shape, dtype=dtype)
                if came.numel():
                    group._irecv(came, 0, _TAG)._wait(group._timeout)
                _fill(target, came)
            return
        for peer, theirs in enumerate(asked):
            if name not in theirs:
                continue
            rows = theirs[name][1]
            values = checkpoint.tensor(checkpoint.tensors[name], *(rows or ()))
            if peer == 0:
                _fill(value.tensor if isinstance(value, Rows) else value, values)
            elif values.numel():
                group._isend(values, peer, _TAG)._wait(group._timeout)


_TAG = (1 << 26) - 6  # of rows that rank 0 sends


@no_grad()
def _fill(target, values):
    if target.numel():
        target.detach().copy_(values)


def _name(path):
    return ".".join(str(key[0] if isinstance(key, list) else key) for key in path)


def whole_state(checkpoint, keys):
    """A new state dict of the checkpoint; keys: names, or what names begin with before a dot; None for everything."""

    def is_asked(name):
        return keys is None or any(name == key or name.startswith(key + ".") for key in keys)

    entries = [(t.path, checkpoint.tensor(t)) for name, t in checkpoint.tensors.items() if is_asked(name)]
    entries += [(path, value) for name, (path, value) in checkpoint.values.items() if is_asked(name)]
    if not entries and keys is not None:
        raise RuntimeError(f"{checkpoint.folder}: has nothing named {sorted(keys)}; {_has(checkpoint)}")
    return built(entries)
