"""Tensors of golden files: safetensors under gzip, which takes a third of their bytes away. No PyTorch here: tests read
with the library's `safetensors.load`, the scripts write with safetensors' `save`.
"""

import gzip

SUFFIX = ".safetensors.gz"


def unpacked(path):
    """The bytes of the safetensors file in it."""
    return gzip.decompress(path.read_bytes())


def write_packed(path, raw):
    """raw: bytes of a safetensors file. The same bytes make the same file."""
    assert path.name.endswith(SUFFIX), path
    path.write_bytes(gzip.compress(raw, mtime=0))
    path.chmod(0o644)
