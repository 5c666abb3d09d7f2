"""Which of cuBLASLt's algorithms products run by. On the emulator, whose stand-in proposes three: 1 refuses to run,
0 and 2 compute.
"""

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding import cuda

LIBRARY = pathlib.Path(os.environ.get("SF_CUDA_LIBRARY", "")).parent / "libcublasLt.so.13"
matmul = sf.backends.cuda.matmul


@pytest.fixture
def algorithms():
    if not cuda.is_available():
        pytest.skip(f"unproven here: {cuda.why_not()}")
    if not LIBRARY.exists():
        pytest.skip("unproven here: needs the emulator's stand-in for cuBLASLt")
    library = ctypes.CDLL(str(LIBRARY))
    library.sf_cublaslt_emulator_runs.restype = ctypes.c_int64
    library.sf_cublaslt_emulator_runs.argtypes = [ctypes.c_int64]
    matmul.benchmark = True
    yield lambda: [library.sf_cublaslt_emulator_runs(i) for i in range(3)]
    matmul.benchmark = False


def new_runs(algorithms, f):
    before = algorithms()
    f()
    return [a - b for a, b in zip(algorithms(), before, strict=True)]


def test_it_is_off_at_first():
    assert matmul.benchmark is False


def test_the_first_product_of_a_shape_times_every_algorithm(algorithms):
    a, b = sf.randn(6, 8, device="cuda"), sf.randn(8, 5, device="cuda")
    want = (a.cpu() @ b.cpu()).flatten().tolist()
    got = []
    first = new_runs(algorithms, lambda: got.append(a @ b))
    # one call and five that are timed, and the product itself by the one that won
    assert sorted(first) == [0, 6, 7] and first[1] == 0
    winner = first.index(7)
    again = new_runs(algorithms, lambda: got.append(a @ b))
    assert sum(again) == again[winner] == 1
    for y in got:
        assert y.cpu().flatten().tolist() == pytest.approx(want, abs=1e-5)
    matmul.benchmark = False
    assert new_runs(algorithms, lambda: a @ b) == [1, 0, 0]


def test_what_a_product_adds_to_is_added_once(algorithms):
    c, a, b = sf.ones(4, 7, device="cuda"), sf.ones(4, 9, device="cuda"), sf.ones(9, 7, device="cuda")
    y = sf.addmm(c, a, b, beta=2)
    assert set(y.cpu().flatten().tolist()) == {11.0} and set(c.cpu().flatten().tolist()) == {1.0}


def test_a_captured_product_is_timed_by_the_next_call_outside(algorithms):
    a, b = sf.ones(3, 11, device="cuda"), sf.ones(11, 4, device="cuda")
    a @ sf.ones(11, 2, device="cuda")  # the library is loaded
    graph = cuda.CUDAGraph()
    cuda.synchronize()
    with cuda.graph(graph):
        y = a @ b
    assert sum(new_runs(algorithms, lambda: a @ b)) == 13
    graph.replay()
    assert set(y.cpu().flatten().tolist()) == {11.0}


def test_a_choice_is_read_from_disk_and_damage_is_timed_anew(algorithms, tmp_path):
    program = f"""
import ctypes, scaffolding as sf
sf.backends.cuda.matmul.benchmark = True
y = sf.ones(4, 6, device="cuda") @ sf.ones(6, 5, device="cuda")
assert float(y.sum()) == 120, float(y.sum())
lib = ctypes.CDLL({str(LIBRARY)!r})
print(sum(lib.sf_cublaslt_emulator_runs(ctypes.c_int64(i)) for i in range(3)))
"""

    def runs():
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"SF_KERNEL_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        return int(run.stdout)

    assert runs() == 13
    (file,) = [f for f in tmp_path.iterdir() if b"cublaslt algorithm" in f.read_bytes()]
    assert runs() == 1
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole.replace(b"cublaslt", b"cublasLt"), b"\0" * len(whole)):
        file.write_bytes(damaged)
        assert runs() == 13
        assert b"cublaslt algorithm" in file.read_bytes() and [f.name for f in tmp_path.iterdir()] == [file.name]
