"""Files of weights under RLIMIT_DATA and RLIMIT_AS, and an allocation that fails: each in a process of its own."""

import json
import os
import struct
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding.safetensors import save_file

TENSORS, SIZE = 4, 50 << 20  # bytes of each

BEGIN = f"""
import resource, sys
import scaffolding as sf
from scaffolding.safetensors import load_file, safe_open
TENSORS, SIZE = {TENSORS}, {SIZE}
path = sys.argv[1]
sf.set_num_threads(1)

def taken(what):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))

def limit(which, what, room):
    resource.setrlimit(which, (taken(what) + (room << 20),) * 2)

def refused(f, text):
    try:
        f()
    except sf.OutOfMemoryError as e:
        assert text in str(e), e
    else:
        raise AssertionError("it was not refused")
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """200 MB of zeros that take no disk; the first byte of each tensor is its number."""
    path = tmp_path_factory.mktemp("limits") / "weights.safetensors"
    entries = {
        f"t{i}": {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]} for i in range(TENSORS)
    }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        begin = f.tell()
        for i in range(TENSORS):
            f.seek(begin + i * SIZE)
            f.write(bytes([i]))
        f.truncate(begin + TENSORS * SIZE)
    return path


def run(program, path, **environment):
    command = [sys.executable, "-c", BEGIN + program, str(path)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


needs_limits = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="unproven here: limits are Linux's")


@needs_limits
def test_weights_under_rlimit_data_are_read_and_written(weights):
    run(
        """
limit(resource.RLIMIT_DATA, "VmData", 90)
tensors = load_file(path)
for i in range(TENSORS):
    t = tensors[f"t{i}"]
    assert t[0].item() == i and t[-1].item() == 0
t = tensors["t1"]
t[:5].fill_(7)               # by an op
t[5:9].copy_(t[:4])
assert t[:10].tolist() == [7] * 9 + [0]
assert tensors["t0"][-5:].tolist() == [0] * 5 and tensors["t2"][0].item() == 2
refused(lambda: tensors["t2"].fill_(1), "ulimit -d")  # 100 MB of its own are too much
assert tensors["t2"][0].item() == 2
""",
        weights,
    )


@needs_limits
def test_every_way_of_writing_works_under_rlimit_data(tmp_path):
    path = tmp_path / "weights.safetensors"
    names = "numpy dlpack add index scatter uniform adam sgd adam8bit ema mean var buffer renorm".split()
    save_file({name: sf.ones(64, 64) for name in names}, path)
    run(
        """
import numpy
limit(resource.RLIMIT_DATA, "VmData", 256)
w = load_file(path)
w["numpy"].numpy()[1] = 3
numpy.from_dlpack(w["dlpack"])
w["add"] += 1
w["index"][sf.tensor([1, 2])] = 5.0
w["scatter"].scatter_(0, sf.zeros(1, 64, dtype=sf.int64), sf.zeros(1, 64))
w["uniform"].uniform_()
for name, make in (("adam", sf.optim.AdamW), ("sgd", sf.optim.SGD), ("adam8bit", sf.optim.AdamW8bit)):
    p = sf.nn.Parameter(w[name])
    optimizer = make([p], lr=0.1)
    (p * p).sum().backward()
    optimizer.step()
    assert p[0, 0].item() != 1, name
norm = sf.nn.BatchNorm1d(64)
norm.load_state_dict({"running_mean": w["mean"][0], "running_var": w["var"][0]}, strict=False, assign=True)
norm(sf.randn(8, 64))
sf.nn.functional.embedding(sf.tensor([1]), w["renorm"], max_norm=0.5)
memoryview(w["buffer"].numpy())[0, 0] = 2
assert w["numpy"].sum().item() == 64 * 64 + 64 * 2 and w["add"].sum().item() == 2 * 64 * 64
assert w["index"].sum().item() == 64 * 62 + 640 and w["scatter"][0].sum().item() == 0
assert w["buffer"][0, 0].item() == 2 and w["mean"][0, 0].item() != 1 and w["renorm"][1].norm().item() < 0.6
""",
        path,
    )


@needs_limits
def test_tensors_are_mapped_one_by_one_where_the_address_space_is_small(weights):
    run(
        """
limit(resource.RLIMIT_AS, "VmSize", 150)
with safe_open(path, "np") as file:
    for i in range(TENSORS):
        t = file.get_tensor(f"t{i}")
        assert t[0] == i
        del t
refused(lambda: load_file(path), "ulimit -v")
""",
        weights,
    )


@needs_limits
def test_an_allocation_that_fails_is_an_out_of_memory_error(weights):
    run(
        """
limit(resource.RLIMIT_AS, "VmSize", 150)
refused(lambda: sf.empty(1 << 30), "cpu: out of memory: 4096 MiB asked for")
assert issubclass(sf.OutOfMemoryError, RuntimeError)
""",
        weights,
    )


def test_an_allocation_above_the_limit_names_the_module_that_asked():
    run(
        """
layers = sf.nn.Sequential(sf.nn.Linear(8, 8), sf.nn.Linear(8, 1 << 12))
refused(lambda: layers(sf.ones(1 << 13, 8)), "128 MiB asked for by 1 (a Linear) of a Sequential")
""",
        "-",
        SF_CPU_MEMORY_LIMIT_MB="64",
    )
