"""What the Python package costs: one tiny op on the tape, a layer, a step of an optimizer, the import, the wheel.
See serve.py.
"""

import pathlib
import statistics
import subprocess
import sys

import dataloader
from serve import main

import scaffolding as sf

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMPORT = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); import scaffolding; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)


def add():
    a, b = sf.tensor([1.0, 2.0], requires_grad=True), sf.tensor([3.0, 4.0], requires_grad=True)
    return lambda: a + b


def optimizer_step():
    params = [sf.nn.Parameter(sf.full(size, 0.5)) for size in ((64, 32), (64,), (10, 64), (10,))]
    for p in params:
        p.grad = sf.full_like(p, 0.01)
    return sf.optim.AdamW(params).step


def linear_call():
    layer, x = sf.nn.Linear(8, 8), sf.full((4, 8), 0.5)
    return lambda: layer(x)


def import_time():
    """Seconds of `import scaffolding` in fresh interpreters; the files are in the page cache after the first."""
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(6)
    ]
    walls, cpus = zip(*((float(wall), float(cpu)) for wall, cpu in runs[1:]))
    return {"wall": statistics.median(walls), "cpu": statistics.median(cpus)}


ROWS = {
    "add [2] with gradient, Python": (add, {"goal": "seconds", "goal_value": 400e-9, "threads": 1}),
    "AdamW step of 4 small tensors, Python": (optimizer_step, {"goal": "seconds", "goal_value": 5e-6, "threads": 1}),
    "Linear(8, 8) of [4, 8] with gradient, Python": (
        linear_call,
        {"goal": "seconds", "goal_value": 1e-6, "threads": 1},
    ),
    "import scaffolding": (import_time, {"goal": "seconds", "goal_value": 0.1}),
    "dataloader webp lossy, 2 workers": (lambda: dataloader.ours("lossy"), {"goal": "speedup", "goal_value": 3}),
    "dataloader webp lossless, 2 workers": (lambda: dataloader.ours("lossless"), {"goal": "speedup", "goal_value": 3}),
    "webp decode alone lossy, 2 threads": (lambda: dataloader.limit("lossy"), {}),
    "webp decode alone lossless, 2 threads": (lambda: dataloader.limit("lossless"), {}),
}
for wheel in sorted((ROOT / "dist").glob("scaffolding-*.whl"))[-1:]:
    ROWS["wheel"] = (lambda: {"bytes": wheel.stat().st_size}, {"goal": "bytes", "goal_value": 20e6})

if __name__ == "__main__":
    main(ROWS, lambda n: sf.set_num_threads(n) if n else None)
