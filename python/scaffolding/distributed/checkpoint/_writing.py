"""Saving: every process writes its own bytes into files that all share, beside the checkpoint, and a rename ends it."""

import contextlib
import ctypes
import errno
import glob
import json
import os
import shutil
import time
import zlib

from .._objects import _encoded
from . import _layout
from ._peers import bytes_of
from ._tree import Rows, is_tensor, leaves

MANIFEST = "manifest.json"
FORMAT = "scaffolding.distributed.checkpoint"
_REMEDY = "the checkpoint that was there before is whole; make room or name another folder, and save again"


class Saving:
    """One save, in its phases: agree() on the layout, hold() what this process writes, write() it, commit()."""

    def __init__(self, peers, state, folder, gather, max_shard_bytes):
        self.peers, self.gather, self.max_shard_bytes = peers, gather, max_shard_bytes
        self.folder = os.path.abspath(os.fspath(folder))
        self.leaves = leaves(state)
        self.held = {}  # (name, piece): its bytes
        self._dense = None, None  # the name of the tensor whose pieces are given now, and its values in one row

    def agree(self):
        """The same layout in all processes, from what each has."""

        def describe():
            tensors, values = [], []
            for name, (path, value) in self.leaves.items():
                if isinstance(value, Rows):
                    tensors.append(_layout.described(name, list(path), value.tensor, value.first, value.total))
                elif is_tensor(value):
                    tensors.append(_layout.described(name, list(path), value, 0, None))
                else:
                    try:
                        values.append([name, list(path), json.dumps(_encoded(value, _NoTensors()))])
                    except TypeError as e:
                        raise TypeError(f"{name!r}: {e}") from None
            token = f"{time.time_ns():x}-{os.getpid()}"
            return [self.folder, self.gather, token, tensors, values]

        everyones = self.peers.phase("state", describe, "give every process a state that can be saved")
        folders = {(folder, gather) for folder, gather, *_ in everyones}
        if len(folders) > 1 and not self.gather:
            raise RuntimeError(f"checkpoint: every process must name one folder and gather, got {sorted(folders)}")
        # All have the same descriptions: what is wrong with them is the same error everywhere.
        self.tensors = _layout.merged([tensors for *_, tensors, _ in everyones])
        self.values = {}
        for *_, values in everyones:  # the lowest rank's, where several have one
            for name, path, text in values:
                self.values.setdefault(name, (path, text))
        twice = sorted(set(self.tensors) & set(self.values))
        if twice:
            raise RuntimeError(f"checkpoint: {twice[0]!r} is a tensor in one process and a value in another")
        self.headers, self.sizes, self.indexes = _layout.in_files(self.tensors, self.max_shard_bytes)
        self.beside = f"{self.folder}.{everyones[0][2]}.tmp"

    def _own(self):
        """(tensor, piece, begin, end) of what this process gives."""
        for tensor in self.tensors.values():
            for i, begin, end in tensor.pieces():
                if tensor.owners[i] == self.peers.rank:
                    yield tensor, i, begin, end

    def hold(self):
        """Copies what this process writes: training may go on while it is written."""
        for tensor, i, begin, end in self._own():
            self.held[tensor.name, i] = self._bytes(tensor, begin, end).copy()
        self.leaves, self._dense = {}, (None, None)

    def _bytes(self, tensor, begin, end):
        value = self.leaves[tensor.name][1]
        if isinstance(value, Rows):
            shift = value.first * tensor.row_bytes
            begin, end, value = begin - shift, end - shift, value.tensor
        if self._dense[0] != tensor.name:
            self._dense = tensor.name, value.detach().contiguous().reshape(-1)
        flat = self._dense[1]  # of a tensor on a GPU, only these items come to the host
        return bytes_of(flat[begin // tensor.item : end // tensor.item])

    def _piece(self, tensor, i, begin, end):
        held = self.held.pop((tensor.name, i), None)
        return self._bytes(tensor, begin, end) if held is None else held

    def run(self):
        """Everything after agree(). The folder's path."""
        try:
            self.peers.phase("making the files", self._begin, _REMEDY)
            if self.gather:
                checksums = self.peers.phase("writing", self._write_gathered, _REMEDY)[:1]
            else:
                self.peers.phase(
                    "looking for the files that rank 0 has made",
                    self._find,
                    "name a folder that all processes share, or pass gather=True so that rank 0 writes everything",
                )
                checksums = self.peers.phase("writing", self._write, _REMEDY)
            for theirs in checksums:
                for name, i, checksum in theirs:
                    self.tensors[name].checksums[i] = checksum
            self.peers.phase("the last step", self._commit, _REMEDY)
        except BaseException:
            # Everyone: rank 0 may be the one that has gone.
            shutil.rmtree(self.beside, ignore_errors=True)
            raise
        return self.folder

    def _begin(self):
        for tensor in self.tensors.values():
            tensor.checksums = [None] * len(tensor.ends)
        if self.peers.rank != 0:
            return
        recover(self.folder)
        if os.path.lexists(self.folder) and not is_checkpoint(self.folder):
            raise RuntimeError(
                f"{self.folder}: is there and is no checkpoint; nothing was replaced, name another folder"
            )
        for left in glob.glob(glob.escape(self.folder) + ".*.tmp"):
            shutil.rmtree(left, ignore_errors=True)  # of a run that was killed
        os.makedirs(self.beside)
        for file, header in self.headers.items():
            path = os.path.join(self.beside, file)
            with _naming(path), open(path, "wb") as f:
                f.write(header)
                f.truncate(self.sizes[file])

    def _find(self):
        for file, size in self.sizes.items():
            path = os.path.join(self.beside, file)
            if os.stat(path).st_size != size:
                raise RuntimeError(f"{path}: has not the {size} bytes that rank 0 gave it")

    def _write(self):
        return _written(self.beside, ((t, i, b, e, self._piece(t, i, b, e)) for t, i, b, e in self._own()))

    def _write_gathered(self):
        group, rank = self.peers.group, self.peers.rank
        if rank != 0:
            for tensor, i, begin, end in self._own():
                group._isend(_tensor_of(self._piece(tensor, i, begin, end)), 0, _TAG)._wait(group._timeout)
            return []

        def pieces():
            for tensor in self.tensors.values():
                for i, begin, end in tensor.pieces():
                    owner = tensor.owners[i]
                    if owner == 0:
                        yield tensor, i, begin, end, self._piece(tensor, i, begin, end)
                        continue
                    came = _tensor_of(None, end - begin)
                    group._irecv(came, owner, _TAG)._wait(group._timeout)
                    yield tensor, i, begin, end, came.numpy()

        todo = pieces()
        try:
            return _written(self.beside, todo)
        except OSError:
            for _ in todo:  # the others are still sending
                pass
            raise

    def _commit(self):
        if self.peers.rank != 0:
            return
        for file, content in self.indexes.items():
            _write_text(os.path.join(self.beside, file), json.dumps(content, indent=2) + "\n")
        tensors = {
            t.name: {
                "path": t.path,
                "dtype": t.dtype,
                "shape": list(t.shape),
                "file": t.file,
                "at": t.at,
                "pieces": [[end, checksum] for end, checksum in zip(t.ends, t.checksums)],
            }
            for t in self.tensors.values()
        }
        text = json.dumps(
            {
                "format": FORMAT,
                "version": 1,
                "sizes": self.sizes,
                "values": [[path, json.loads(text)] for path, text in self.values.values()],
                "tensors": tensors,
            }
        )
        _write_text(os.path.join(self.beside, MANIFEST), text + "\n")
        _sync_folder(self.beside)
        _take_place(self.beside, self.folder)
        _sync_folder(os.path.dirname(self.folder))


_TAG = (1 << 26) - 7  # of pieces that are sent to rank 0


class _NoTensors(dict):
    def __setitem__(self, key, value):
        raise TypeError("a set or another value with a tensor in it cannot be saved; lists and dicts of tensors can")


def _tensor_of(array, size=None):
    from ... import _core

    return _core.empty(size, dtype=_core.uint8) if array is None else _core.from_numpy(array)


class _naming:
    """OSError within it names the path."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, f"{self.path}: cannot write: {os.strerror(error.errno or 0)}") from error


def _written(folder, pieces):
    """Writes (tensor, piece, begin, end, bytes); (name, piece, checksum) of each, once all are on the disk."""
    out, files = [], {}
    try:
        for tensor, i, begin, _, data in pieces:
            path = os.path.join(folder, tensor.file)
            with _naming(path):
                if path not in files:
                    files[path] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                view, at = memoryview(data), tensor.at + begin
                out.append((tensor.name, i, zlib.crc32(view)))
                while len(view):
                    n = os.pwrite(files[path], view, at)
                    view, at = view[n:], at + n
        for path, fd in files.items():
            with _naming(path):
                os.fsync(fd)
    finally:
        for fd in files.values():
            os.close(fd)
    return out


def _write_text(path, text):
    with _naming(path), open(path, "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def _sync_folder(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


def is_checkpoint(folder):
    """Whether a save has written the folder; an empty one may become a checkpoint too."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    names = os.listdir(folder)
    return not names or MANIFEST in names


def _take_place(new, folder):
    """new gets the name of folder. Where there is one, the two are exchanged in one step, and the old one goes."""
    if not os.path.lexists(folder):
        os.rename(new, folder)
        return
    if _exchange(new, folder):
        shutil.rmtree(new, ignore_errors=True)
        return
    # A file system that cannot exchange: recover() gives the old one its name back where this is cut in two.
    old = new.removesuffix(".tmp") + ".old"
    for attempt in range(100):
        try:
            os.rename(folder, old)
            os.rename(new, folder)
            break
        except OSError as e:  # a reader has given the old one its name back in between
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == 99:
                raise
    shutil.rmtree(old, ignore_errors=True)


def recover(folder):
    """A checkpoint that was cut off between the two renames of _take_place gets its name back."""
    for old in glob.glob(glob.escape(folder) + ".*.old"):
        if os.path.exists(folder):
            shutil.rmtree(old, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # another process did so now
                os.rename(old, folder)


def _exchange(a, b):
    """Whether the two paths have changed places, at once (Linux's renameat2)."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, f"{b}: cannot be replaced: {os.strerror(code)}")
