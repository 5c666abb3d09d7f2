"""Checkpoint files of every kind: one way into all of them, shards, NumPy's and llama.cpp's formats; pictures
(data/image.py), videos (data/video.py) and sound (data/audio.py).

Files are mapped: tensors borrow their pages where the format allows it,
and the files must not be truncated while they live.
Damaged files are a ValueError, unreadable ones a RuntimeError or FileNotFoundError,
types that do not exist here NotImplementedError.
"""

import os
import re

from . import _core
from ._documents import describe as _describe
from .data.audio import load_audio, load_wav, save_wav
from .data.image import (
    can_write_animation,
    decode_image,
    encode_image,
    image_info,
    read_image,
    save_animation,
    write_image,
)
from .data.video import VideoReader, VideoWriter, can_write_video, read_video, save_video
from .serialization import _path_or_data

__all__ = [
    "Checkpoint",
    "GGUFFile",
    "Placeholder",
    "VideoReader",
    "VideoWriter",
    "can_write_animation",
    "can_write_video",
    "decode_image",
    "encode_image",
    "image_info",
    "load_audio",
    "load_checkpoint",
    "load_gguf",
    "load_npy",
    "load_npz",
    "load_wav",
    "open_checkpoint",
    "read_image",
    "read_video",
    "save_animation",
    "save_npy",
    "save_npz",
    "save_sharded",
    "save_video",
    "save_wav",
    "write_image",
]


class Placeholder:
    """Stands for an object of a checkpoint whose class is not known here: its name, arguments and state, and nothing
    else.

    Hashable by identity, since checkpoints have classes as keys.

    >>> sf.io.Placeholder("omegaconf.DictConfig", ({"steps": 20},))
    Placeholder('omegaconf.DictConfig')
    """

    def __init__(self, name, arguments=(), state=None):
        self.name, self.arguments, self.state = name, arguments, state

    def __repr__(self):
        return f"Placeholder({self.name!r})"


# ---- any kind of checkpoint


class Checkpoint:
    """A checkpoint file opened by open_checkpoint: its tensors by name, read one by one. kind: "safetensors",
    "sharded", "torch", "gguf", "npz" or "npy"."""

    def __init__(self, file):
        self._file = file

    @property
    def kind(self):
        return self._file.kind

    def keys(self):
        return self._file.keys()

    def __contains__(self, name):
        return isinstance(name, str) and self._file.contains(name)

    def __len__(self):
        return len(self._file.keys())

    def get_tensor(self, name, device="cpu"):
        """The tensor; ValueError for a name that is not there."""
        return self._file.get(name).to(device)

    def get_shape(self, name):
        """A tensor's, without reading it."""
        return self._file.describe(name)[1]

    def get_dtype(self, name):
        """As the format spells it: "F32", "float32", "Q4_K"."""
        return self._file.describe(name)[0]

    def metadata(self):
        """A dict of strings; empty where the format has none."""
        return self._file.metadata()


def open_checkpoint(path):
    """Opens a checkpoint, whose kind is recognised by its content: safetensors, the index of a sharded one
    (*.index.json; shards are opened when their first tensor is asked for), PyTorch's files, GGUF, .npz, .npy; or a
    folder with one of them.

    Of PyTorch's files the tensors of nested dicts are named with their keys joined by dots: "state_dict.conv.weight".

    >>> sf.safetensors.save_file({"weight": sf.ones(2, 3)}, "model.safetensors")
    >>> file = sf.io.open_checkpoint("model.safetensors")
    >>> file.kind, file.keys(), file.get_tensor("weight").shape
    ('safetensors', ['weight'], scaffolding.Size([2, 3]))
    """
    return Checkpoint(_core._open_checkpoint(os.fspath(path)))


def load_checkpoint(path, device="cpu"):
    """All tensors of a checkpoint of any kind, by name.

    >>> sf.save({"weight": sf.ones(2)}, "model.pt")
    >>> sf.io.load_checkpoint("model.pt")
    {'weight': tensor([1., 1.])}
    """
    file = open_checkpoint(path)
    return {name: file.get_tensor(name, device) for name in file.keys()}


def _bytes_of_size(size):
    """5000000000 of "5GB"; GB is 10^9 bytes and GiB 2^30, as in diffusers."""
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(i?)B", size, re.IGNORECASE) if isinstance(size, str) else None
    if not found:
        raise ValueError(
            f'save_sharded: max_shard_size must be a number of bytes or a text such as "5GB" or "200MiB", got {size!r}'
        )
    return int(found[1]) * (1024 if found[3] else 1000) ** " KMGT".index(found[2].upper() or " ")


def save_sharded(tensors, path, max_shard_size="5GB", metadata=None):
    """Writes a dict of tensors as path ("folder/model.safetensors"), or as several files of at most max_shard_size and
    path + ".index.json", with the names that diffusers and transformers give them. Returns the file to open.

    All files are on the disk before the first takes its place;
    what an earlier save left under these names is removed then.

    >>> tensors = {f"blocks.{i}": sf.zeros(1000) for i in range(4)}
    >>> sf.io.save_sharded(tensors, "model.safetensors", max_shard_size="9KB")
    'model.safetensors.index.json'
    """
    from .safetensors import _checked

    size = _bytes_of_size(max_shard_size)
    tensors, metadata = _checked(tensors, metadata)
    if size <= 0:
        raise ValueError(f"save_sharded: max_shard_size must be positive, got {max_shard_size!r}")
    return _core._save_sharded(tensors, os.fspath(path), size, metadata)


# ---- NumPy


def _source(f):
    f = _path_or_data(f, "read")
    return f if isinstance(f, str) else f.read()


def load_npy(f):
    """The array of an .npy file (a path or a file object) as a tensor. Column-major arrays keep their strides; uint16,
    uint32 and uint64 come as int32, int64 and int64. Arrays of objects, structures, text,
    dates and complex numbers are refused.

    >>> sf.io.save_npy(sf.arange(3), "a.npy")
    >>> sf.io.load_npy("a.npy")
    tensor([0, 1, 2])
    """
    return _core._load_npy(_source(f))


def save_npy(tensor, f):
    """Writes a tensor as .npy, row-major. TypeError for bfloat16 and float8, which NumPy does not have.

    >>> sf.io.save_npy(sf.ones(2, 3), "a.npy")
    >>> sf.io.load_npy("a.npy").shape
    scaffolding.Size([2, 3])
    """
    _core._save_npy(tensor, _path_or_data(f, "write"))


def load_npz(f):
    """The arrays of an .npz file, by name, compressed or not.

    >>> sf.io.save_npz({"x": sf.ones(2)}, "a.npz")
    >>> sf.io.load_npz("a.npz")
    {'x': tensor([1., 1.])}
    """
    return _core._load_npz(_source(f))


def save_npz(tensors, f):
    """Writes a dict of tensors as .npz, uncompressed.

    >>> sf.io.save_npz({"images": sf.zeros(2, 3), "labels": sf.tensor([0, 1])}, "a.npz")
    >>> sf.io.load_npz("a.npz")["labels"]
    tensor([0, 1])
    """
    from .safetensors import _checked

    _core._save_npz(_checked(tensors, None)[0], _path_or_data(f, "write"))


# ---- GGUF


class GGUFFile:
    """A GGUF file, version 2 or 3, opened for reading by name."""

    def __init__(self, path):
        self._file = _core._GgufFile(_source(path))

    @property
    def version(self):
        return self._file.version

    def keys(self):
        return self._file.keys()

    def metadata(self):
        """All keys and values of the file, as a dict."""
        return self._file.metadata()

    def get_shape(self, name):
        """In PyTorch's order: the last dimension is the fastest."""
        return self._file.describe(name)[1]

    def get_dtype(self, name):
        """The file's name of the type: "F32", "Q4_K"."""
        return self._file.describe(name)[0]

    def get_tensor(self, name, dtype=None):
        """The tensor. Quantised ones are converted to dtype: float32 (the default), float16 or bfloat16; others keep
        their type. NotImplementedError for the IQ, TQ and MXFP4 types."""
        return self._file.get(name, dtype or _core.float32)


def load_gguf(path, dtype=None):
    """All tensors of a GGUF file, by name; dtype as in GGUFFile.get_tensor."""
    file = GGUFFile(path)
    return {name: file.get_tensor(name, dtype) for name in file.keys()}


_describe(globals())
