"""sf.save and sf.load: nested Python objects with tensors, in PyTorch's file format."""

import os

from . import _core

__all__ = ["load", "save"]


def _path_or_data(f, method):
    """A path as str, or the object itself where it has the method of a file."""
    if isinstance(f, (str, os.PathLike)):
        return os.fspath(f) if not isinstance(os.fspath(f), bytes) else os.fsdecode(os.fspath(f))
    if hasattr(f, method):
        return f
    raise TypeError(
        f"{'load' if method == 'read' else 'save'}: f must be a path or a file object with {method}(), got "
        f"{type(f).__name__}"
    )


def save(obj, f, *, pickle_protocol=2, _use_new_zipfile_serialization=True):
    """Writes obj to f, a path or a file object, as torch.save does (pickle_protocol: 2); torch.load(weights_only=True)
    reads the file.

    obj: tensors, parameters, numbers, strings, bytes, None, dtypes, devices, and dicts, OrderedDicts, Counters, lists,
    tuples, sets and Sizes of them. Tensors that share memory share it again after loading; subclasses of Tensor but for
    Parameter are saved as tensors, tensors without their Python attributes, NumPy's scalars as Python's numbers.
    A path is replaced as a whole:
    until everything is on the disk, it keeps what it had. A path that ends in .safetensors gets that format, for which
    obj must be a dict of names and tensors.

    TypeError names the place of an object that cannot be saved; RuntimeError says why a file cannot be written.

    >>> sf.save({"weight": sf.tensor([1., 2.])}, "state.pt")
    >>> sf.load("state.pt")
    {'weight': tensor([1., 2.])}
    """
    if pickle_protocol != 2:
        raise ValueError(f"save: pickle_protocol must be 2, which every reader knows, got {pickle_protocol}")
    if not _use_new_zipfile_serialization:
        raise ValueError("save: writes the zip format only; leave _use_new_zipfile_serialization out")
    f = _path_or_data(f, "write")
    if callable(getattr(obj, "state_dict", None)):
        name = type(obj).__name__
        folder = ", or model.save_pretrained(folder) with its config" if hasattr(obj, "save_pretrained") else ""
        raise TypeError(
            f"save: a {name} is code and weights; a file holds the weights: save(x.state_dict(), f), and for a {name} "
            f"made anew x.load_state_dict(load(f)){folder}"
        )
    if isinstance(f, str) and f.endswith(".safetensors"):
        from .safetensors import save_file

        if not isinstance(obj, dict):
            raise TypeError(f"save: a .safetensors file holds a dict of tensors, got {type(obj).__name__}")
        save_file(obj, f)
    else:
        _core._save_torch(obj, f)


def _default_place(location):
    device = _core.device(location)
    if device.type == "cuda" and not _core._backend_available("cuda")[0]:
        raise RuntimeError(
            f"load: a tensor was saved from {location}, and there is no CUDA here "
            f"({_core._backend_available('cuda')[1]}); "
            "pass map_location='cpu'"
        )
    return device


def _placing(map_location):
    """The function from a saved location ("cpu", "cuda:0") to a device."""
    if map_location is None:
        return _default_place
    if isinstance(map_location, dict):
        return (
            lambda location: _core.device(map_location[location])
            if location in map_location
            else _default_place(location)
        )
    if callable(map_location):

        def place(location):
            # what torch hands over is a storage on the CPU; the answer tells where it should be
            storage = _core.empty(0)
            answer = map_location(storage, location)
            return _default_place(location) if answer is None else getattr(answer, "device", answer)

        return place
    device = _core.device(map_location)
    return lambda location: device


def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None, placeholders=False):
    """Reads what sf.save or torch.save wrote (.pt .pth .bin .ckpt, zip or older format), or a .safetensors file.

    f: a path or a file object. pickle_module: None. map_location: where tensors go, whatever device they were saved
    from: a device, a dict of names, or a function of (storage, location). Without it they go where they were. mmap:
    tensors borrow the file's pages, which are read when they are touched (the default; the file must not be truncated
    meanwhile), or with False the whole file is read now.

    Nothing in a file is executed: weights_only must be True. Classes other than those that checkpoints are made of are
    a ValueError that names them; with placeholders=True they become scaffolding.io.Placeholder, which does nothing.
    ValueError for damaged files, RuntimeError for unreadable ones,
    NotImplementedError for complex and quantised tensors.

    >>> sf.save({"weight": sf.tensor([1., 2.])}, "state.pt")
    >>> sf.load("state.pt")
    {'weight': tensor([1., 2.])}
    """
    if not weights_only:
        raise ValueError(
            "load: weights_only must be True: files can run no code here; placeholders=True reads those with unknown "
            "classes"
        )
    if pickle_module is not None:
        raise ValueError("load: takes no pickle_module: no pickle is executed")
    place = _placing(map_location)
    f = _path_or_data(f, "read")
    if not isinstance(f, str):
        return _core._load_torch(f.read(), place, True, placeholders)
    if f.endswith(".safetensors"):
        from .safetensors import load_file

        return load_file(f, device=place("cpu"))
    return _core._load_torch(f, place, mmap is None or mmap, placeholders)
