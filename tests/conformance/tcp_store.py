"""PyTorch's side of stores and launchers against ours: its client reads our store, ours reads its, and its torchrun
starts our script.

    PYTHONPATH=build/python .venv/bin/python tests/conformance/tcp_store.py --torch-python PYTHON

Prints what agrees; exit status 1 where something does not. Without a Python with torch: a message, and status 0.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

TORCH_CLIENT = """
import datetime, sys
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False)
assert store.get("ours") == b"a\\0b", store.get("ours")
store.set("theirs", "from torch")
assert store.add("count", 5) == 12
assert store.compare_set("ours", "wrong", "x") == b"a\\0b"
assert store.compare_set("new", "", "made") == b"made"
assert store.check(["ours", "count"]) and not store.check(["ours", "absent"])
store.append("ours", "c")
store.multi_set(["m1", "m2"], ["1", "2"])
assert store.multi_get(["m1", "m2", "ours"]) == [b"1", b"2", b"a\\0bc"]
try:
    store.wait(["absent"], datetime.timedelta(milliseconds=100))
    raise AssertionError("a key that is not there came")
except dist.DistStoreError:
    pass
assert store.get("theirs") == b"from torch"          # the connection is in order after a wait that was given up
assert store.delete_key("m1") and not store.delete_key("m1")
if hasattr(store, "queue_push"):
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2 and store.queue_pop("q") == b"1"
if hasattr(store, "list_keys"):
    assert {"ours", "theirs", "count", "new", "m2"} <= set(store.list_keys())
if hasattr(store, "barrier"):
    store.barrier("all", 1, datetime.timedelta(seconds=10))
store.set("done", "")
"""

TORCH_SERVER = """
import datetime
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
store.set("theirs", "a\\0b")
print(store.port, flush=True)
store.wait(["done"], datetime.timedelta(seconds=60))
"""

OUR_SCRIPT = """
import os
import scaffolding as sf
from scaffolding import distributed as dist
dist.init_process_group(timeout=60)
t = sf.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(t)
dist.barrier()
line = f"rank {dist.get_rank()} of {dist.get_world_size()}: {t.item():g}\\n"
os.write(1, line.encode())      # in one piece, since the other prints too
dist.destroy_process_group()
"""


def torch_reads_our_store(python):
    from scaffolding.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True)
    store.set("ours", b"a\0b")
    store.add("count", 7)
    run = subprocess.run([python, "-c", TORCH_CLIENT, str(store.port)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    store.wait(["done"], 10)
    assert store.get("theirs") == b"from torch" and store.get("count") == b"12"


def we_read_torchs_store(python):
    from scaffolding.distributed import TCPStore

    with subprocess.Popen([python, "-c", TORCH_SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            store = TCPStore("127.0.0.1", int(server.stdout.readline()), timeout=60)
            assert store.get("theirs") == b"a\0b"
            store.set("ours", "x")
            store.append("ours", "y")
            assert store.add("n", 3) == 3 and store.get("ours") == b"xy"
            assert store.compare_set("ours", "xy", "z") == b"z" and store.check(["ours"])
            try:
                store.wait(["absent"], 0.1)
                raise AssertionError("a key that is not there came")
            except RuntimeError as e:
                assert "'absent' did not come" in str(e)
            assert store.num_keys() >= 3 and store.delete_key("n")
            store.set("done", "")
            assert server.wait(60) == 0
        finally:
            server.kill()


def torchrun_starts_our_script(python):
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text(OUR_SCRIPT)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
        command = [
            python,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--no-python",
            sys.executable,
            script,
        ]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        assert sorted(run.stdout.split("\n"))[-2:] == ["rank 0 of 2: 3", "rank 1 of 2: 3"], run.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    python = parser.parse_args().torch_python
    if not python:
        print("tcp_store: skipped: --torch-python or TORCH_PYTHON names no Python that has torch")
        return
    for check in (torch_reads_our_store, we_read_torchs_store, torchrun_starts_our_script):
        check(python)
        print(check.__name__.replace("_", " "), flush=True)


if __name__ == "__main__":
    main()
