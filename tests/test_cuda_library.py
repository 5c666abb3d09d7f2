"""libscaffolding_cuda.so on a machine without a GPU: what is in it, what it needs, what it says.
Nothing here runs a kernel.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "scaffolding"


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
    # a container: magic, version, bytes of the header, bytes of the entries
    while (at := data.find(b"\x50\xed\x55\xba", at)) >= 0:
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
    assert architectures(library) == {
        int(re.match(r"\d+", a)[0]) for a in asked.split(";") if not a.endswith("-virtual")
    }


def test_the_library_of_all_gpus_is_small_enough_for_a_package(library):
    assert library.stat().st_size < 60e6


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
    assert not [
        s for s in exported if re.match(r"cu[A-Z]|cuda[A-Z]", s)
    ], "a second CUDA runtime of the process would meet this one"


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


@dataclasses.dataclass
class Kernel:
    """What ptxas says of a kernel; bytes of a thread's stack and spills, and of a block's static shared memory."""

    name: str
    arch: str
    stack: int
    spills: int
    registers: int
    shared: int


@pytest.fixture(scope="module")
def kernels(build_dir, library):
    """Every kernel, from the reports that cmake/keep_resource_report.sh kept."""
    pattern = (
        r"Compiling entry function '(\S+)' for '(\w+)'\n(?:ptxas info +: Function properties for \S+\n)?"
        r" +(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\nptxas info +: Used (\d+) "
        r"registers(.*)"
    )
    found = []
    for report in (build_dir / "CMakeFiles" / "scaffolding_cuda.dir").rglob("*.resources"):
        for name, arch, stack, stores, loads, registers, rest in re.findall(pattern, report.read_text()):
            shared = re.search(r"(\d+) bytes smem", rest)
            found.append(
                Kernel(
                    name, arch, int(stack), int(stores) + int(loads), int(registers), int(shared[1]) if shared else 0
                )
            )
    names = output("c++filt", input="\n".join(k.name for k in found)).split("\n")
    for kernel, name in zip(found, names):
        kernel.name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    assert len(found) > 1000
    return found


def constant(file, name):
    return int(re.search(rf"constexpr int {name} = (\d+);", (SOURCES / file).read_text())[1])


def threads_of(name):
    """Of a kernel's blocks; those of CUB are CUB's matter."""
    if "_mma" in name:
        return constant("ops/attention/attention_mma.cuh", "kMmaThreads")
    if forward := re.search(r"whole_groups<.*, (?:true|false), (\d+)>\(", name):
        return int(forward[1])
    if "whole_groups<" in name:
        return constant("ops/group_norm/group_norm_backward.cu", "kGroupThreads")
    return 0 if "cub::" in name else constant("backend/cuda/launch.cuh", "kThreads")


def test_every_kernel_fits_the_block_that_it_is_launched_with(kernels):
    wrong = []
    for k in kernels:
        registers = -(-k.registers // 8) * 8 * threads_of(k.name)  # given out in eights a thread
        if registers > 65536 or k.shared > 48 << 10:
            wrong.append(
                f"{k.name} for {k.arch}: {k.registers} registers in blocks of {threads_of(k.name)}, {k.shared} bytes "
                "of shared memory"
            )
    assert not wrong, "\n".join(wrong)


# Kernels that keep more than eight registers in local memory, bytes of a thread at most: CUDA's own reduction of large
# angles, then ours, each a loss of speed.
LOCAL_MEMORY = {
    "sin_fn": 40,
    "cos_fn": 40,
    "tan_fn": 40,
    "philox::Normal<double>": 48,
    "gemm_tiles": 144,  # where cuBLASLt is not
}


def test_no_kernel_but_those_known_uses_local_memory(kernels):
    def known(k):
        return max((most for name, most in LOCAL_MEMORY.items() if name in k.name), default=32)

    wrong = [
        f"{k.name} for {k.arch}: {k.stack} bytes of stack, {k.spills} of spills"
        for k in kernels
        if k.stack > known(k) and "cub::" not in k.name
    ]
    assert not wrong, "\n".join(wrong)
