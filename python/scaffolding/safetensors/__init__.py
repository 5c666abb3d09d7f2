"""safetensors files, with the interface of the package of that name.

A file is mapped: its tensors borrow its pages, which are read when they are touched, and writing into one changes
memory, never the file. The file must not be truncated while tensors of it live.
"""

import os

from .._documents import describe as _describe
from .._missing import help_modules
from .. import _core

__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]

SafetensorError = ValueError  # what a damaged file raises


def load_file(filename, device="cpu"):
    """The tensors of a file, by name. device: where they go.

    >>> sf.safetensors.save_file({"weight": sf.ones(2), "bias": sf.zeros(1)}, "a.safetensors")
    >>> sf.safetensors.load_file("a.safetensors")
    {'bias': tensor([0.]), 'weight': tensor([1., 1.])}
    """
    with safe_open(filename, framework="sf", device=device) as f:
        return f._get_tensors()


def load(data):
    """The tensors of data, a file's bytes, by name.

    >>> sf.safetensors.load(sf.safetensors.save({"weight": sf.ones(2)}))
    {'weight': tensor([1., 1.])}
    """
    file = _core._SafetensorsFile(data)
    return {name: file.get(name) for name in file.keys()}


def _checked(tensors, metadata):
    if not isinstance(tensors, dict):
        raise TypeError(f"save_file: tensors must be a dict, got {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, _core.Tensor):
            raise TypeError(
                f"save_file: tensors must be a dict of names and tensors, got {name!r}: {type(tensor).__name__}"
            )
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"save_file: metadata must be strings, got {key!r}: {value!r}")
    return dict(tensors), dict(metadata or {})


def save_file(tensors, filename, metadata=None):
    """Writes a dict of tensors to a path, which keeps what it had until everything is on the disk.

    Equal content gives equal bytes. metadata: a dict of strings. Tensors may be strided and may share memory:
    each is written by itself.

    >>> sf.safetensors.save_file({"weight": sf.ones(2, 3)}, "a.safetensors", metadata={"format": "pt"})
    >>> sf.safetensors.load_file("a.safetensors")["weight"].shape
    scaffolding.Size([2, 3])
    """
    _core._save_safetensors(_checked(tensors, metadata)[0], os.fspath(filename), dict(metadata or {}))


def save(tensors, metadata=None):
    """The bytes of the file that save_file writes of these tensors and metadata.

    >>> raw = sf.safetensors.save({"weight": sf.ones(2)})
    >>> len(raw)
    80
    """
    import io

    data = io.BytesIO()
    tensors, metadata = _checked(tensors, metadata)
    _core._save_safetensors(tensors, data, metadata)
    return data.getvalue()


class _Slice:
    """One tensor of a file, of which only the indexed part is read."""

    def __init__(self, file, name, device):
        self._file, self._name, self._device = file, name, device

    def get_shape(self):
        return list(self._file.describe(self._name)[1])

    def get_dtype(self):
        """As the file spells it: "F32", "BF16"."""
        return self._file.describe(self._name)[0]

    def __getitem__(self, index):
        return self._file.get(self._name)[index].to(self._device)


class safe_open:  # noqa: N801  (the package's name)
    """A file opened for reading by name; also a context manager.

    framework: any of the names that the package knows; the tensors are Scaffolding's. device: where tensors go. On
    their way to a GPU they take a few pinned buffers of host memory (SF_UPLOAD_BUFFERS, SF_UPLOAD_BUFFER_MB),
    however large the file is.

    >>> sf.safetensors.save_file({"weight": sf.ones(2, 3)}, "a.safetensors")
    >>> with sf.safetensors.safe_open("a.safetensors") as file:
    ...     file.keys(), file.get_tensor("weight").shape
    (['weight'], scaffolding.Size([2, 3]))
    """

    def __init__(self, filename, framework="pt", device="cpu"):
        self._device = _core.device(device) if not isinstance(device, int) else _core.device("cuda", device)
        self._file = _core._SafetensorsFile(os.fspath(filename))
        self._ring = _core._upload_ring(self._device)

    def _open(self):
        if self._file is None:
            raise RuntimeError("safe_open: the file is closed")
        return self._file

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *exception):
        self._file = self._ring = None

    def keys(self):
        """The names, sorted."""
        return sorted(self._open().keys())

    def offset_keys(self):
        """The names in the order of their data."""
        return self._open().keys()

    def metadata(self):
        """The file's metadata, a dict of strings; None where it has none."""
        return self._open().metadata() or None

    def get_tensor(self, name):
        """The tensor; ValueError for a name the file does not have."""
        tensor = self._open().get(name)
        if self._ring is None:
            return tensor.to(self._device)
        tensor = self._ring.upload(tensor)
        self._ring.finish()
        return tensor

    def _get_tensors(self):
        file = self._open()
        if self._ring is None:
            return {name: file.get(name).to(self._device) for name in sorted(file.keys())}
        tensors = {name: self._ring.upload(file.get(name)) for name in file.keys()}  # in the order of the bytes
        self._ring.finish()
        return dict(sorted(tensors.items()))

    def get_slice(self, name):
        """A handle that reads part of a tensor: f.get_slice("weight")[:2]."""
        self._open().describe(name)
        return _Slice(self._open(), name, self._device)


from .models import load_model, save_model  # noqa: E402  (it needs what is above)

_describe(globals())
help_modules()  # this one is imported after the others
