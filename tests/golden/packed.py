"""Golden files: tensors as safetensors, descriptions as JSON. Under xz, which takes a tenth less than gzip, or under
gzip as older ones are: both languages read either. Folders too. No PyTorch here: tests read tensors with the
library's `safetensors.load`, the scripts write with safetensors' `save`.
"""

import gzip
import json
import lzma
import pathlib
import tarfile
import tempfile

import numpy as np

SUFFIX, JSON_SUFFIX = ".safetensors.gz", ".json.gz"
LONG_SUFFIX, LONG_JSON_SUFFIX = ".safetensors.xz", ".json.xz"
# Which bits of a place and of the byte before it xz looks at: for numbers of four bytes, of eight, and for bytes.
PLACES = [{"lc": 0, "lp": 2, "pb": 2}, {"lc": 0, "lp": 3, "pb": 3}, {"lc": 3, "lp": 0, "pb": 2}]


def read_json(path):
    unpack = lzma.decompress if path.name.endswith(LONG_JSON_SUFFIX) else gzip.decompress
    return json.loads(unpack(path.read_bytes()))


def write_json(path, text):
    """text: of the JSON. The same text makes the same file."""
    write_text(path, text)


def write_text(path, text):
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    else:
        assert path.suffix == ".gz", path
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_families(folder):
    """{family: its JSON} of a folder of FAMILY.json.gz."""
    return {path.name.removesuffix(JSON_SUFFIX): read_json(path) for path in sorted(folder.glob("*" + JSON_SUFFIX))}


def unpacked_folder(path):
    """The folder in a .tar.xz, as a tempfile.TemporaryDirectory: there as long as somebody holds it."""
    folder = tempfile.TemporaryDirectory()
    with tarfile.open(path, "r:xz") as archive:
        archive.extractall(folder.name, filter="data")
    return folder


def write_packed_folder(path, folder):
    """A .tar.xz of the files in folder. The same files make the same archive."""
    with tarfile.open(path, "w:xz", preset=9 | lzma.PRESET_EXTREME) as archive:
        for file in sorted(p for p in pathlib.Path(folder).rglob("*") if p.is_file()):
            info = tarfile.TarInfo(str(file.relative_to(folder)))
            info.size = file.stat().st_size
            with file.open("rb") as data:
                archive.addfile(info, data)


def write_member(path, name, text):
    """Another file in a .tar.xz of texts, or the same one with another text."""
    with tempfile.TemporaryDirectory() as folder:
        if path.exists():
            with tarfile.open(path, "r:xz") as archive:
                archive.extractall(folder, filter="data")
        (pathlib.Path(folder) / name).write_text(text)
        write_packed_folder(path, folder)


def unpacked(path):
    """The bytes of the safetensors file in it."""
    unpack = lzma.decompress if path.name.endswith(LONG_SUFFIX) else gzip.decompress
    return unpack(path.read_bytes())


def with_shorter_gradients(raw):
    """Gradients of float32 to 17 bits after the point, 4e-6: the rest would not compress, and tests ask for 1e-4."""
    begin, data = 8 + int.from_bytes(raw[:8], "little"), bytearray(raw)
    for name, entry in json.loads(raw[8:begin]).items():
        if "gradient" in name and entry.get("dtype") == "F32":
            first, end = (begin + at for at in entry["data_offsets"])
            bits = np.frombuffer(raw[first:end], np.uint32)
            finite = bits & 0x7F800000 != 0x7F800000
            data[first:end] = np.where(finite, bits + np.uint32(32) & np.uint32(0xFFFFFFC0), bits).tobytes()
    return bytes(data)


def write_packed(path, raw):
    """raw: bytes of a safetensors file. The same bytes make the same file."""
    if path.name.endswith(LONG_SUFFIX):
        raw = with_shorter_gradients(raw)
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME} | places for places in PLACES]
        path.write_bytes(min((lzma.compress(raw, filters=[f]) for f in filters), key=len))
    else:
        assert path.name.endswith(SUFFIX), path
        path.write_bytes(gzip.compress(raw, mtime=0))
    path.chmod(0o644)
