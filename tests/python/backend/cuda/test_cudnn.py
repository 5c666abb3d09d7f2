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


def test_a_choice_is_read_from_disk_and_damage_is_chosen_anew(engines, tmp_path):
    program = f"""
import ctypes, scaffolding as sf
y = sf.nn.functional.conv2d(sf.ones(1, 2, 6, 6, device="cuda"), sf.ones(3, 2, 3, 3, device="cuda"))
assert float(y.sum()) == 3 * 16 * 18, float(y.sum())
print(ctypes.CDLL({str(LIBRARY)!r}).sf_cudnn_emulator_questions())
"""

    def questions():
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"SF_KERNEL_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        return int(run.stdout)

    assert questions() == 2  # the two modes of the heuristics
    (file,) = [f for f in tmp_path.iterdir() if b"cudnn plan" in f.read_bytes()]
    assert questions() == 0
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole.replace(b"cudnn plan", b"cudnn plaN"), b"\0" * len(whole)):
        file.write_bytes(damaged)
        assert questions() == 2
        assert file.read_bytes() == whole and [f.name for f in tmp_path.iterdir()] == [file.name]


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
