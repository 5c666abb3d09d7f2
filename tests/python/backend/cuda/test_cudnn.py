"""Which of cuDNN's plans run: settings, the cache on disk. On the emulator, whose stand-in for cuDNN counts: its engine
0 rounds float32 to TF32, 1 adds in no fixed order, 2 is plain, 3 refuses to be a plan and is proposed first."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding import cuda
from scaffolding.backends import cudnn

LIBRARY = pathlib.Path(os.environ.get("SF_CUDA_LIBRARY", "")).parent / "libcudnn.so.9"


@pytest.fixture
def engines():
    if not cuda.is_available():
        pytest.skip(f"unproven here: {cuda.why_not()}")
    if not LIBRARY.exists():
        pytest.skip("unproven here: needs the emulator's stand-in for cuDNN")
    library = ctypes.CDLL(str(LIBRARY))
    library.sf_cudnn_emulator_runs.restype = ctypes.c_int64
    library.sf_cudnn_emulator_runs.argtypes = [ctypes.c_int64]
    yield lambda: [library.sf_cudnn_emulator_runs(i) for i in range(4)]
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = True, False, False


def new_runs(engines, f):
    before = engines()
    f()
    return [a - b for a, b in zip(engines(), before, strict=True)]


def convolve(width, backward=False):
    x, w = sf.randn(1, 3, width, 5, device="cuda"), sf.randn(4, 3, 3, 3, device="cuda", requires_grad=backward)
    y = sf.nn.functional.conv2d(x, w, padding=1)
    if backward:
        y.sum().backward()
    cuda.synchronize()
    return y


def test_settings_are_torchs():
    assert cudnn.enabled is True and cudnn.benchmark is False and cudnn.deterministic is False
    cudnn.allow_tf32 = True
    assert sf.backends.cudnn.allow_tf32 is True
    if not cuda.is_available():
        assert cudnn.version() is None and not cudnn.is_available()


def test_the_version_is_asked_of_the_library(engines):
    assert cudnn.is_available() and cudnn.version() == 91900


def test_float32_keeps_its_bits_unless_tf32_is_allowed(engines):
    assert new_runs(engines, lambda: convolve(7)) == [0, 0, 1, 0]
    cudnn.allow_tf32 = True
    assert new_runs(engines, lambda: convolve(7)) == [1, 0, 0, 0]


def test_disabled_means_not_asked(engines):
    cudnn.enabled = False
    assert new_runs(engines, lambda: convolve(7)) == [0, 0, 0, 0]


def test_deterministic_leaves_out_what_adds_in_any_order(engines):
    cudnn.allow_tf32 = True
    assert new_runs(engines, lambda: convolve(8, backward=True)) == [1, 1, 0, 0]  # the filter's gradient by engine 1
    cudnn.deterministic = True
    assert new_runs(engines, lambda: convolve(8, backward=True)) == [2, 0, 0, 0]


def test_benchmark_runs_every_plan_once_per_shape(engines):
    cudnn.allow_tf32 = cudnn.benchmark = True
    first = new_runs(engines, lambda: convolve(9))
    assert first[0] > 1 and first[2] > 1 and first[3] == 0
    assert sum(new_runs(engines, lambda: convolve(9))) == 1


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % (1 << 64)
    return h


def with_text(file, text):
    """A file of a plan with another text of cuDNN's in it, whole in every other way."""
    at, parts = len(b"scaffolding kernel 1\n"), []
    for _ in range(3):
        size = int.from_bytes(file[at : at + 8], "little")
        parts.append(file[at + 8 : at + 8 + size])
        at += 8 + size
    key, entry, plan = parts
    choice = plan.split(b"\n", 1)[0]
    parts = [key, entry, choice + b"\n" + text if text else choice]
    body = b"scaffolding kernel 1\n" + b"".join(len(p).to_bytes(8, "little") + p for p in parts)
    return body + fnv(body).to_bytes(8, "little")


class Convolved:
    """A process that convolves: what it asked of the stand-in, and what it said."""

    def __init__(self, folder, width=6):
        program = f"""
import ctypes, scaffolding as sf
y = sf.nn.functional.conv2d(sf.ones(1, 2, 6, {width}, device="cuda"), sf.ones(3, 2, 3, 3, device="cuda"))
assert float(y.sum()) == 3 * 4 * ({width} - 2) * 18, float(y.sum())
library = ctypes.CDLL({str(LIBRARY)!r})
print(library.sf_cudnn_emulator_questions(), library.sf_cudnn_emulator_compiled())
"""
        environment = os.environ | {"SF_KERNEL_CACHE": str(folder), "SF_TRACE": "1"}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        self.questions, self.compiled = map(int, run.stdout.split())
        self.anew = [line for line in run.stderr.split("\n") if "made anew" in line]


def test_a_plan_is_read_from_disk_and_damage_is_made_anew(engines, tmp_path):
    first = Convolved(tmp_path)
    assert (first.questions, first.compiled, first.anew) == (2, 1, [])  # the two modes of the heuristics
    (file,) = [f for f in tmp_path.iterdir() if b"cudnn plan" in f.read_bytes()]
    again = Convolved(tmp_path)
    assert (again.questions, again.compiled, again.anew) == (0, 0, [])
    whole = file.read_bytes()
    assert b"cuDNN 91900, driver " in whole and b"sm_90" in whole
    for damaged in (b"", whole[:-1], whole.replace(b"cudnn plan", b"cudnn plaN"), b"\0" * len(whole)):
        file.write_bytes(damaged)
        found = Convolved(tmp_path)
        assert (found.questions, found.compiled) == (2, 1)
        assert len(found.anew) == 1 and str(file) in found.anew[0] and "damaged" in found.anew[0]
        assert file.read_bytes() == whole and [f.name for f in tmp_path.iterdir()] == [file.name]


def test_a_text_that_cudnn_refuses_is_made_anew_from_the_choice(engines, tmp_path):
    Convolved(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    text = whole[whole.index(b'{"cudnn_emulator"') : -8]
    assert with_text(whole, text) == whole
    for foreign in (b"{}", text[:-2], text.replace(b"91900", b"91800"), text.replace(b" 6 ", b" 7 ")):
        file.write_bytes(with_text(whole, foreign))
        found = Convolved(tmp_path)
        assert (found.questions, found.compiled) == (0, 1)
        assert len(found.anew) == 1 and "another version, or changed" in found.anew[0]
        assert file.read_bytes() == whole
    file.write_bytes(with_text(whole, b""))  # an engine whose plans cuDNN does not write
    found = Convolved(tmp_path)
    assert (found.questions, found.compiled, found.anew) == (0, 1, [])
    other = tmp_path / "other"
    Convolved(other, width=7)
    (of_other,) = other.iterdir()
    of_other.write_bytes(whole)  # another shape's file in its place
    found = Convolved(other, width=7)
    assert (found.questions, found.compiled, len(found.anew)) == (2, 1, 1)


def test_without_a_cudnn_that_starts_the_next_provider_computes(engines, build_dir, tmp_path):
    for file in (LIBRARY.with_name("libscaffolding_cuda.so"), LIBRARY.with_name("libcublasLt.so.13")):
        # beside them there is no cuDNN; a real one of the toolkit does not start without a GPU
        shutil.copy(file, tmp_path)
    environment = os.environ | {
        "SF_CUDA_LIBRARY": str(tmp_path / "libscaffolding_cuda.so"),
        "SF_CUDA_LIBRARY_PATH": str(tmp_path),
        "SF_TRACE": "1",
    }
    program = """
import scaffolding as sf
y = sf.nn.functional.conv2d(sf.ones(1, 2, 6, 6, device="cuda"), sf.ones(3, 2, 3, 3, device="cuda"))
assert float(y.sum()) == 3 * 16 * 18, float(y.sum())
assert sf.backends.cudnn.version() is None and not sf.backends.cudnn.is_available()
"""
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "conv_forward" in run.stderr and "cudnn" not in run.stderr
    said = subprocess.run(
        [build_dir / "scaffolding", "devices"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "cuDNN: not available: " in said and (
        "libcudnn.so.9 is missing: it was looked for in" in said or "cudnnCreate" in said
    )
