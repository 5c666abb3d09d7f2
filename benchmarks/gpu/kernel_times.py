"""Where the time of a network goes on a GPU: each kernel call of a pass or a training step, its time on the device
beside its floor.

    PYTHONPATH=build/python python benchmarks/gpu/kernel_times.py [--filter TEXT] [--output FOLDER] [--tiny]
    ncu --profile-from-start off ... python benchmarks/gpu/kernel_times.py --ncu --filter "UNet SD2.1 b2"

An event is recorded after each call while the GPU is still busy with work queued before, so that no launch is waited
for. What no kernel table serves, such as copies, counts to the call after it. floor: operations at 785 TFLOP/s or bytes
at 4.25 TB/s, whichever takes longer.
"""

import argparse
import collections
import csv
import ctypes
import pathlib
import sys

from rows import ROWS

import scaffolding as sf
from scaffolding import cuda

NETWORKS = ("UNet SD2.1 b2 64x64", "UNet SDXL b2 128x128", "VAE decode 1024x1024", "training SD2.1 b16 64x64")
FLOPS, BANDWIDTH = 785e12, 4.25e12  # one H200, measured: bfloat16 on random data; bytes read and written by a copy
COLUMNS = ("network", "kernel", "provider", "operands", "us", "floor us", "flop", "bytes")  # of kernels.csv
LEAD_MS = 50  # of work queued before: longer than the host takes to call everything


def keep_busy(milliseconds):
    x = sf.randn(1 << 28, device="cuda", dtype=sf.bfloat16)  # 1 GB read and written: 0.25 ms
    for _ in range(int(milliseconds / 0.25)):
        x.mul_(1.0)


def calls_of(work, tiny):
    """[(event of the profiler, microseconds)] of one call."""
    context = sf.enable_grad() if work.grad else sf.no_grad()
    with context:
        for _ in range(2):
            work.calls[0]()
        cuda.synchronize()
        marks = []

        @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int)
        def mark(which):
            event = cuda.Event(enable_timing=True)
            event.record(cuda.current_stream())
            marks.append(event)
            return len(marks)

        if not tiny:
            keep_busy(LEAD_MS)
        mark(0)
        with sf.profiler.profile(counter=mark, which=(0,)) as profile:
            work.calls[0]()
        cuda.synchronize()
    events = profile.events()
    marks = marks[-len(events) - 1 :]  # the last one before the first call, and one after each
    return [(e, 1e3 * a.elapsed_time(b)) for e, a, b in zip(events, marks, marks[1:])]


def floor_us(event):
    return 1e6 * max(event.flops / FLOPS, event.bytes / BANDWIDTH)


def table(name, calls):
    rows = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for event, us in calls:
        row = rows[event.key, event.provider]
        row[0] += 1
        row[1] += us
        row[2] += floor_us(event)
    lines = [
        f"{name}: {sum(us for _, us in calls) / 1e3:.2f} ms in {len(calls)} calls, floors "
        f"{sum(floor_us(e) for e, _ in calls) / 1e3:.2f} ms"
    ]
    lines.append(f"  {'kernel':34}{'provider':18}{'calls':>7}{'ms':>9}{'floor':>9}{'over':>9}")
    for (key, provider), (count, us, floor) in sorted(rows.items(), key=lambda r: r[1][2] - r[1][1])[:25]:
        lines.append(f"  {key:34}{provider:18}{count:7}{us / 1e3:9.3f}{floor / 1e3:9.3f}{(us - floor) / 1e3:9.3f}")
    return "\n".join(lines)


def write(path, mode, lines):
    with path.open(mode, newline="") as file:
        csv.writer(file).writerows(lines)


def line_of(network, e, us):
    return (
        network,
        e.key,
        e.provider,
        e.input_shapes,
        f"{us:.2f}",
        f"{floor_us(e):.2f}",
        f"{e.flops:.0f}",
        f"{e.bytes:.0f}",
    )


def under_ncu(work):
    driver = ctypes.CDLL("libcuda.so.1")
    with sf.enable_grad() if work.grad else sf.no_grad():
        work.calls[0]()
        cuda.synchronize()
        driver.cuProfilerStart()
        work.calls[0]()
        cuda.synchronize()
        driver.cuProfilerStop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--filter", default="", help="only networks whose row has this in its name")
    parser.add_argument("--output", type=pathlib.Path, help="a folder for kernels.csv, every call of every network")
    parser.add_argument("--ncu", action="store_true", help="one pass between cuProfilerStart and cuProfilerStop")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to see that it works")
    options = parser.parse_args()
    if not cuda.is_available():
        return f"nothing measured: {cuda.why_not()}"
    # as in the benchmark (worker.py)
    sf.backends.cudnn.benchmark = sf.backends.cuda.matmul.benchmark = True
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        write(options.output / "kernels.csv", "w", [COLUMNS])
    for name in (n for n in NETWORKS if options.filter in n):
        with cuda.stream(cuda.Stream()):
            work = ROWS[name].make(sf, options.tiny, "eager")
            if options.ncu:
                under_ncu(work)
                continue
            calls = calls_of(work, options.tiny)
        print(table(name, calls), flush=True)
        if options.output:
            write(options.output / "kernels.csv", "a", [line_of(name, event, us) for event, us in calls])
        del work
        cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
