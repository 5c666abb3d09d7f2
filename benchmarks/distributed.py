"""all_reduce of 25 and 217 MB beside the engine called directly, a hundred of 64 KB, and a step of
DistributedDataParallel beside torch's.

    PYTHONPATH=build/python .venv/bin/python benchmarks/distributed.py [--torch-python PYTHON] [--processes 2,4]
        [--rows all_reduce,step,unet]

The engine: torch's Gloo where a Python with torch is named; and our own engine's bare all-to-all and all-gather of the
same bytes, without sums and checks. All are measured alternately, the best of some runs counts: the machine may be
loaded; what a step costs above itself alone is the median of the rounds. "step" is six linear layers and 64 samples,
whose gradients nearly all travel at its end. "unet" is forward and backward of 54 million parameters and 8 samples at
32x32 latents, which the processes share, one thread each; its efficiency is that beside one process with two threads.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

PARTS = "alone", "bare all_reduce", "together"

BEGIN = """
import json, os, sys, time
who, runs = sys.argv[1], int(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sys.path.insert(0, sys.argv[3])
import turns
lib, models = turns.library(who)
if who == "torch":
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
else:
    from scaffolding import distributed as dist
    from scaffolding.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo", timeout=600)
lib.set_num_threads(2 if size == 1 else 1)
nn = lib.nn


def best(f, before=lambda: None):
    times = []
    for _ in range(runs + 2):
        before()
        dist.barrier()
        begun = time.perf_counter()
        f()
        dist.barrier()
        times.append(time.perf_counter() - begun)
    return min(times[2:])


def steps(net, loss):
    out = {"alone": best(lambda: loss(net).backward(), net.zero_grad)}
    if size > 1:
        flat = lib.ones(sum(p.numel() for p in net.parameters()))
        parallel = DistributedDataParallel(net)
        out["bare all_reduce"] = best(lambda: dist.all_reduce(flat))
        out["together"] = best(lambda: loss(parallel).backward(), parallel.zero_grad)
    return out


"""
END = """
if rank == 0:
    print(json.dumps(out))
dist.barrier()
"""

ALL_REDUCE = """
out = {}
for mb in json.loads(sys.argv[4]):
    t = lib.ones(mb * 1000 * 1000 // 4)
    out[f"all_reduce {mb} MB"] = best(lambda: dist.all_reduce(t))
    if who == "ours":
        n = t.numel() // size
        part, other = t[: n * size], lib.empty(n * size)

        def bare():
            dist.all_to_all_single(other, part)
            dist.all_gather_into_tensor(other, part[:n])

        out[f"bytes alone {mb} MB"] = best(bare)
small = lib.ones(16000)
out["100 all_reduces of 64 KB"] = best(lambda: [dist.all_reduce(small) for _ in range(100)])
"""

STEP = """
width = int(sys.argv[4])
lib.manual_seed(rank)
net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(width, width), nn.SiLU())])
x = lib.randn(64, width)
out = {f"step {what}": seconds for what, seconds in steps(net, lambda net: net(x).square().mean()).items()}
"""

UNET = """
from unet import SMALL
lib.manual_seed(rank)
model = models.UNet2DConditionModel(**SMALL)
x, noise = lib.randn(8 // size, 4, 32, 32), lib.randn(8 // size, 4, 32, 32)
text = lib.randn(8 // size, 77, SMALL["cross_attention_dim"])
rows = steps(model, lambda net: nn.functional.mse_loss(net(x, 500, text).sample, noise))
out = {f"unet {what}": seconds for what, seconds in rows.items()}
"""


def together(who, python, program, processes, runs, *arguments):
    here = pathlib.Path(__file__).resolve().parent
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text(BEGIN + program + END)
        started = []
        for rank in range(processes):
            environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            command = [python, script, who, str(runs), here, *map(str, arguments)]
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        outputs = [run.communicate(timeout=900)[0] for run in started]
    assert all(run.returncode == 0 for run in started)
    return json.loads(outputs[0].strip().split("\n")[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--sizes", default="25,217", help="megabytes")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2, help="how often all are measured in turn")
    parser.add_argument("--step-width", type=int, default=1024)
    parser.add_argument("--rows", default="all_reduce,step,unet")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args()
    sizes, chosen = json.dumps([int(s) for s in options.sizes.split(",")]), options.rows.split(",")
    pythons = {"ours": sys.executable} | ({"torch": options.torch_python} if options.torch_python else {})
    counts = list(map(int, options.processes.split(",")))
    turns = {}
    for processes in ([1] if "unet" in chosen else []) + counts:
        for _ in range(options.rounds):
            for who, python in pythons.items():
                rows = {}
                if "all_reduce" in chosen and processes > 1:
                    rows |= together(who, python, ALL_REDUCE, processes, options.runs, sizes)
                if "step" in chosen and processes > 1:
                    rows |= together(who, python, STEP, processes, options.runs, options.step_width)
                if "unet" in chosen:
                    rows |= together(who, python, UNET, processes, options.runs)
                for what, seconds in rows.items():
                    turns.setdefault((processes, what, who), []).append(seconds)
    figures = {key: min(seconds) for key, seconds in turns.items()}
    for (processes, what, who), seconds in figures.items():
        beside = figures.get((processes, what, "torch"))
        ratio = f", {beside / seconds:.2f} of torch's rate" if who == "ours" and beside else ""
        print(f"{processes} processes  {what:20} {who:6} {1e3 * seconds:9.1f} ms{ratio}")
    for processes in counts:
        for row in (row for row in ("step", "unet") if row in chosen):
            for who in pythons:
                alone, bare, step = (turns[processes, f"{row} {what}", who] for what in PARTS)
                above = [1e3 * (s - a) for a, s in zip(alone, step)]
                over = statistics.median(s / (a + b) for a, b, s in zip(alone, bare, step))
                name = f"{processes} processes  {row} / ({row} alone + bare all_reduce) {who:6}"
                said = f"{over:.2f}, {statistics.median(above):.0f} ms ({min(above):.0f} to {max(above):.0f}) above it"
                if row == "unet":
                    said += f", efficiency {figures[1, 'unet alone', who] / min(step):.2f}"
                print(f"{name} {said}")
    if options.output:
        options.output.write_text(json.dumps([[*key, seconds] for key, seconds in figures.items()]))


if __name__ == "__main__":
    main()
