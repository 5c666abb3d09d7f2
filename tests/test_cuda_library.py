"""libscaffolding_cuda.so on a machine without a GPU: what is in it, what it needs, what it says. Nothing here runs a kernel."""

import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest


def output(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, **options).stdout


@pytest.fixture(scope="module")
def library(build_dir):
    path = build_dir / "libscaffolding_cuda.so"
    if not path.exists():
        pytest.skip("libscaffolding_cuda.so was not built: cmake -DSF_BUILD_CUDA=ON")
    return path


def architectures(library):
    """Compute capabilities with machine code, read from the headers of the entries in section .nv_fatbin."""
    section = re.search(r"\.nv_fatbin\s+\S+\s+\S+\s+(\S+)\s+(\S+)", output("readelf", "-SW", library))
    offset, size = int(section[1], 16), int(section[2], 16)
    data, found, at = library.read_bytes()[offset : offset + size], set(), 0
    while (at := data.find(b"\x50\xed\x55\xba", at)) >= 0:  # a container: magic, version, bytes of the header, bytes of the entries
        header, length = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header, at + header + length
        while entry < end:
            kind, own, payload = struct.unpack_from("<HxxIQ", data, entry)
            if kind == 2:  # an ELF file of machine code; 1 is PTX
                found.add(struct.unpack_from("<I", data, entry + 28)[0])
            entry += own + payload
        at = end
    return found


def test_there_is_machine_code_for_each_gpu_that_was_asked_for(build_dir, library):
    asked = re.search(r"SF_CUDA_ARCHS:\w+=(.*)", (build_dir / "CMakeCache.txt").read_text())[1]
    asked = "80;86;89;90a;100;120" if asked == "release" else asked
    assert architectures(library) == {int(re.match(r"\d+", a)[0]) for a in asked.split(";") if not a.endswith("-virtual")}


def test_there_are_kernels(library):
    kernels = [line for line in output("nm", "-C", library).split("\n") if "elementwise_kernel" in line]
    assert len(kernels) > 500


def test_neither_library_needs_the_driver_or_the_toolkit_to_load(build_dir, library):
    for path in (build_dir / "libscaffolding.so", library):
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", path))
        assert not [n for n in needed if re.match(r"lib(cuda|cudart|nvidia|cublas|cudnn)", n)], needed
    undefined = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", library).split("\n") if line]
    assert not [s for s in undefined if re.match(r"cu[A-Z]|cuda[A-Z]|__cuda", s)]
    exported = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library).split("\n") if line]
    assert not [s for s in exported if re.match(r"cu[A-Z]|cuda[A-Z]", s)], "a second CUDA runtime of the process would meet this one"


def test_a_missing_driver_is_named(build_dir, library, tmp_path):
    elsewhere = pathlib.Path(shutil.copy(library, tmp_path))
    said = output(build_dir / "scaffolding", "devices", env=os.environ | {"SF_CUDA_LIBRARY": str(elsewhere)})
    if "cuda:0: available" in said:
        pytest.skip("a GPU is here")
    assert "cuda: not available: " in said
    if "libcuda.so.1" not in output("ldconfig", "-p"):
        assert "cuda: not available: the NVIDIA driver is missing: libcuda.so.1" in said


def test_a_library_that_is_not_there_is_named(build_dir, tmp_path):
    missing = tmp_path / "libscaffolding_cuda.so"
    said = output(build_dir / "scaffolding", "devices", env=os.environ | {"SF_CUDA_LIBRARY": str(missing)})
    assert f"cuda: not available: libscaffolding_cuda.so is not at {missing}" in said
