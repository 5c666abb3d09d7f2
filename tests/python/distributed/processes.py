"""Runs a program as several processes, each a fresh interpreter, joined over this machine's loopback."""

import os
import socket
import subprocess
import sys
import textwrap

COMMON = """
import datetime, os
import scaffolding as sf
from scaffolding import distributed as dist, nn
from scaffolding.nn.parallel import DistributedDataParallel

sf.set_num_threads(1)
if "SF_TEST_IN_PLACE" in os.environ:  # every gradient travels from where it lies, as large ones do
    nn.parallel.distributed.IN_PLACE_BYTES = 1


def net(seed=3):
    sf.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))


def plain(seed=3):
    sf.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


sf.manual_seed(11)
X, Y = sf.randn(24, 6), sf.randint(0, 3, (24,))


def close(a, b, limit=1e-6):
    return all((x - y).abs().max().item() < limit for x, y in zip(a, b, strict=True))
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def together(program, size=2, timeout=120, **variables):
    """The outputs of `size` processes that run the program as torchrun would start them."""
    port = free_port()
    path = os.pathsep.join(p for p in sys.path if p)
    runs = []
    for rank in range(size):
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "PYTHONPATH": path,
            **variables,
        }
        command = [sys.executable, "-c", COMMON + textwrap.dedent(program)]
        runs.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        outputs = [run.communicate(timeout=timeout) for run in runs]
    finally:  # none outlives its test
        for run in runs:
            run.kill()
    for run, (_, error) in zip(runs, outputs):
        assert run.returncode == 0, error
    return [out.strip() for out, _ in outputs]
