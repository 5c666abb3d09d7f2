"""The backend mpi, by a real mpirun, of Open MPI or MPICH as it was built with; and gloo by its variables."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from processes import COMMON, free_port

from scaffolding import distributed


@pytest.fixture(autouse=True)
def starter(build_dir):
    """The mpirun beside the compiler that this was built with. Skips where MPI was not there then, or not asked for; a
    library that is not found is a fault.
    """
    cache = (build_dir / "CMakeCache.txt").read_text()
    if "SF_MPI:BOOL=OFF" in cache or "SF_MPICC:FILEPATH=SF_MPICC-NOTFOUND" in cache:
        pytest.skip("built without MPI (libopenmpi-dev, openmpi-bin)")
    compiler = pathlib.Path(re.search(r"^SF_MPICC:FILEPATH=(.+)$", cache, re.M)[1])
    program = compiler.with_name(compiler.name.replace("mpicc", "mpirun"))
    assert distributed.is_mpi_available() and shutil.which(program)
    return program


PROGRAM = """
import os, pathlib, sys, time
dist.init_process_group(sys.argv[1], timeout=60)
r, n = dist.get_rank(), dist.get_world_size()
t = sf.ones(700001) * (r + 1)
work = dist.all_reduce(t, async_op=True)
work.wait()
assert t[-1].item() == n * (n + 1) / 2
dist.reduce(t := sf.tensor([r]), 1)
assert t.item() == (6 if r == 1 else r)
dist.broadcast(t := sf.tensor([r]), src=1)
assert t.item() == 1
parts = [sf.zeros(2) for _ in range(n)]
dist.all_gather(parts, sf.ones(2) * r)
assert [p[0].item() for p in parts] == [0, 1, 2, 3]
dist.reduce_scatter_tensor(mine := sf.zeros(2), sf.arange(8.0))
assert mine.tolist() == [8 * r, 8 * r + 4]
dist.all_to_all_single(out := sf.zeros(4, dtype=sf.int64), sf.arange(4) + 10 * r)
assert out.tolist() == [r, 10 + r, 20 + r, 30 + r]
dist.gather(sf.ones(2) * r, parts if r == 1 else None, dst=1)
dist.scatter(t := sf.zeros(1), [sf.tensor([5.0 * i]) for i in range(4)] if r == 3 else None, src=3)
assert t.item() == 5 * r
big, came = sf.ones(300000) * r, sf.zeros(300000)
ops = [dist.P2POp(dist.isend, big, (r + 1) % 4), dist.P2POp(dist.irecv, came, (r + 3) % 4)]
[work.wait() for work in dist.batch_isend_irecv(ops)]
assert came[-1].item() == (r + 3) % 4
dist.all_gather_object(objects := [None] * n, {"rank": r})
assert [o["rank"] for o in objects] == [0, 1, 2, 3]
half = dist.new_group([0, 3])
dist.all_reduce(t := sf.tensor([r]), group=half)
assert t.item() == (3 if r in (0, 3) else r)
model, alone = DistributedDataParallel(plain()), plain()
rows = slice(r * 6, r * 6 + 6)
nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
nn.functional.cross_entropy(alone(X), Y).backward()
assert close([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()])
try:
    dist.all_reduce(sf.ones(2 + (r == 2)))
except RuntimeError as e:
    assert "rank 2 makes all_reduce of 3 float32" in str(e), e
    os.write(1, f"ok {r} {n} {dist.get_backend()}\\n".encode())  # in one piece
# mpirun ends all as soon as one has gone, and after a failed call none can wait in another.
said = pathlib.Path(sys.argv[2])
(said / str(r)).touch()
until = time.monotonic() + 60
while len(list(said.iterdir())) < n and time.monotonic() < until:
    time.sleep(0.02)
time.sleep(0.2)
"""


def mpirun(starter, program, *arguments, size=4):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        "MASTER_PORT": str(free_port()),
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # which containers forbid
    }
    version = subprocess.run([starter, "--version"], capture_output=True, text=True).stdout
    allowed = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version else []
    command = [starter, *allowed, "-n", str(size), sys.executable, "-c", COMMON + program, *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_every_call(backend, starter, tmp_path):
    code, out, error = mpirun(starter, PROGRAM, backend, str(tmp_path))
    lines = sorted(line for line in out.split("\n") if line.startswith("ok"))
    assert lines == [f"ok {r} 4 {backend}" for r in range(4)], error


def test_without_mpirun():
    program = "from scaffolding import distributed as d; d.init_process_group('mpi', rank=1, world_size=2, timeout=5)"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "MASTER_PORT": str(free_port()),
    }
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode != 0 and "nobody answers" in run.stderr, run.stderr
