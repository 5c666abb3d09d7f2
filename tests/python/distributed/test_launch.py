"""scaffolding launch: processes of a script, as torchrun starts them."""

import os
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import os, sys, time
from scaffolding import distributed as dist
import scaffolding as sf
dist.init_process_group(timeout=60)
dist.all_reduce(t := sf.tensor([dist.get_rank() + 1]))
dist.barrier()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if "--fail" in sys.argv and dist.get_rank() == 1 and attempt < int(sys.argv[-1]):
    os._exit(3)
if "--sleep" in sys.argv:
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(600)
dist.barrier()
line = f"rank {dist.get_rank()} {dist.get_world_size()} {t.item()} {attempt} {sys.argv[1:]}\\n"
os.write(1, line.encode())      # in one piece, since the others print too
"""


@pytest.fixture
def launch(build_dir, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def start(*options, arguments=()):
        command = [build_dir / "scaffolding", "launch", "--python", sys.executable, *options, script, *arguments]
        return subprocess.Popen(
            list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def test_ranks_and_arguments(launch):
    run = launch("--nproc-per-node", 3, arguments=["--steps", "5", "-m"])
    out, error = run.communicate(timeout=120)
    lines = sorted(out.strip().split("\n"))
    assert run.returncode == 0 and lines == [f"rank {r} 3 6 0 ['--steps', '5', '-m']" for r in range(3)], error


def test_a_failure_ends_all_and_starts_them_again(launch):
    run = launch("--nproc_per_node=2", arguments=["--fail", "1"])
    out, error = run.communicate(timeout=120)
    assert run.returncode != 0 and "launch: rank 1 (process " in error and "ended with exit code 3" in error, error
    run = launch("--nproc-per-node", 2, "--max-restarts", 2, arguments=["--fail", "2"])
    out, error = run.communicate(timeout=240)
    assert run.returncode == 0 and "rank 0 2 3 2 ['--fail', '2']" in out, error
    assert "all start again, 1 times left" in error and "0 times left" in error


def test_fewer_processes_after_a_quick_failure(launch):
    run = launch("--nproc-per-node", "1:4", "--max-restarts", 2, "--regrow-seconds", 600, arguments=["--fail", "1"])
    out, error = run.communicate(timeout=240)
    assert run.returncode == 0 and "all start again as 2 processes, 1 times left" in error, error
    assert sorted(out.split("\n"))[1:] == [f"rank {r} 2 3 1 ['--fail', '1']" for r in (0, 1)]
    run = launch("--nproc-per-node", "1:2", "--max-restarts", 1, "--regrow-seconds", 0, arguments=["--fail", "1"])
    out, error = run.communicate(timeout=240)
    assert run.returncode == 0 and "all start again, 0 times left" in error and "rank 1 2 3 1" in out, error


def test_a_stopped_process_has_failed(launch):
    run = launch("--nproc-per-node", 1, "--stopped-seconds", 0.5, arguments=["--sleep"])
    pid = int(run.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    _, error = run.communicate(timeout=60)
    assert run.returncode != 0 and f"rank 0 (process {pid}) has been stopped for 0.5 s" in error, error
    assert not is_running(pid)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_none_outlives_it(launch, how):
    run = launch("--nproc-per-node", 2, arguments=["--sleep"])
    pids = [int(run.stdout.readline()) for _ in range(2)]
    assert all(map(is_running, pids))
    run.send_signal(how)
    run.communicate(timeout=60)
    assert run.returncode != 0
    deadline = time.time() + 20
    while any(map(is_running, pids)) and time.time() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_what_cannot_be(program, tmp_path):
    for arguments, text in [
        (["launch"], "name a script"),
        (["launch", "--nproc-per-node", "0", "x"], "--nproc-per-node must be a number from 1 to 4096, got '0'"),
        (["launch", "--nproc-per-node", "4:2", "x"], "--nproc-per-node MIN:MAX must have MIN up to MAX, got '4:2'"),
        (["launch", "--nproc-per-node", "1:2", "--nnodes", "2", "x"], "MIN:MAX is for one machine, got --nnodes 2"),
        (["launch", "--no-python", "/nowhere/x"], "could not be started: there is no program /nowhere/x"),
    ]:
        run = program(*arguments)
        assert run.returncode != 0 and text in run.stderr, run.stderr
    empty = os.environ | {"PATH": str(tmp_path)}
    empty.pop("SLURM_JOB_ID", None)
    run = program("launch", "--nnodes", "2", "x", env=empty)
    assert run.returncode != 0 and "needs srun, in a job of Slurm's, or mpirun; neither is here" in run.stderr
    fake = tmp_path / "srun"
    fake.write_text('#!/bin/sh\necho srun "$@"\n')
    fake.chmod(0o755)
    run = program(
        "launch", "--nnodes", "2", "--nproc-per-node", "4", "train.py", "--x", env=empty | {"SLURM_JOB_ID": "7"}
    )
    assert run.stdout == "srun --nodes=2 --ntasks-per-node=4 python3 -u train.py --x\n", run.stdout
