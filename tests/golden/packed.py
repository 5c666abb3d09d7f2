"""Golden files under gzip: tensors as safetensors, of whose bytes it takes a third away, and descriptions as JSON;
under xz what repeats itself over more than gzip sees, and only Python reads. No PyTorch here: tests read tensors with
the library's `safetensors.load`, the scripts write with safetensors' `save`.
"""

import gzip
import json
import lzma

SUFFIX, JSON_SUFFIX, LONG_JSON_SUFFIX = ".safetensors.gz", ".json.gz", ".json.xz"


def read_json(path):
    unpack = lzma.decompress if path.name.endswith(LONG_JSON_SUFFIX) else gzip.decompress
    return json.loads(unpack(path.read_bytes()))


def write_json(path, text):
    """text: of the JSON. The same text makes the same file."""
    if path.name.endswith(LONG_JSON_SUFFIX):
        path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    else:
        write_text(path, text)


def write_text(path, text):
    assert path.suffix == ".gz", path
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_families(folder):
    """{family: its JSON} of a folder of FAMILY.json.gz."""
    return {path.name.removesuffix(JSON_SUFFIX): read_json(path) for path in sorted(folder.glob("*" + JSON_SUFFIX))}


def unpacked(path):
    """The bytes of the safetensors file in it."""
    return gzip.decompress(path.read_bytes())


def write_packed(path, raw):
    """raw: bytes of a safetensors file. The same bytes make the same file."""
    assert path.name.endswith(SUFFIX), path
    path.write_bytes(gzip.compress(raw, mtime=0))
    path.chmod(0o644)
