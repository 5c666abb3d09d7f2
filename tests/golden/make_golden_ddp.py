#!/usr/bin/env python3
"""Writes ddp.json.xz: trainings of ddp_cases.py by torch's DistributedDataParallel on Gloo, two processes.

Needs torch; tests/python/distributed/test_ddp_golden.py reads the file only.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import packed


def process(rank, store, out):
    import torch
    import torch.distributed as dist
    from ddp_cases import CASES, train
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    results = {name: train(torch, DistributedDataParallel, default_hooks, rank, name) for name in CASES}
    pathlib.Path(out).write_text(json.dumps(results))
    dist.destroy_process_group()


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return {k: rounded(v) for k, v in value.items()}


def main():
    with tempfile.TemporaryDirectory() as folder:
        outs = [f"{folder}/{rank}.json" for rank in range(2)]
        runs = [subprocess.Popen([sys.executable, __file__, str(r), f"{folder}/store", outs[r]]) for r in range(2)]
        assert [run.wait(600) for run in runs] == [0, 0]
        golden = [rounded(json.loads(pathlib.Path(out).read_text())) for out in outs]
    for name, case in golden[1].items():
        del case["gradients"]  # those of process 0
        assert len(case["losses"]) == 200, name
    packed.write_json(pathlib.Path(__file__).parent / "ddp.json.xz", json.dumps(golden, separators=(",", ":")))


if __name__ == "__main__":
    process(int(sys.argv[1]), *sys.argv[2:]) if len(sys.argv) > 1 else main()
