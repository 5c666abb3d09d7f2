"""Time of a Work, by either library: their names for streams, events and graphs are the same.

graph: replays of all its calls in one CUDA graph. eager: the calls one by one, launches included. compile:
torch.compile's functions, in a graph. host: time on the clock until the last call returned, of which the device's part
is small. wall: time on the clock until the device is done. Medians.
"""

import statistics
import time

LEAST_MS = 1  # of a sample: CUDA's events tell half a microsecond apart


def measure(lib, work, how, seconds):
    """{"ms": median of one call, "low", "high": the middle half of the samples, "samples"}"""
    grad = lib.enable_grad() if work.grad else lib.no_grad()
    with grad:
        if how in ("host", "wall"):
            return on_the_clock(lib, work, how, seconds)
        if not lib.cuda.is_available():  # torch where a row is only tried
            return on_the_clock(lib, work, "wall", seconds)
        return by_events(lib, work, how, seconds)


def summary(samples):
    quarter = len(samples) // 4
    ordered = sorted(samples)
    return {
        "ms": statistics.median(samples),
        "low": ordered[quarter],
        "high": ordered[-1 - quarter],
        "samples": len(samples),
    }


def on_the_clock(lib, work, how, seconds):
    synchronize = lib.cuda.synchronize if lib.cuda.is_available() else lambda: None
    work.calls[0]()
    synchronize()
    samples, begin = [], time.perf_counter()
    while len(samples) < 3 or (len(samples) < 50 and time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        for call in work.calls:
            call()
        if how == "wall":
            synchronize()
        samples.append(1e3 * (time.perf_counter() - start) / len(work.calls))
        synchronize()
    return summary(samples)


def by_events(lib, work, how, seconds):
    cuda = lib.cuda
    calls = [lib.compile(call, dynamic=False) for call in work.calls] if how == "compile" else work.calls
    stream = cuda.current_stream()
    for _ in range(2):  # libraries are loaded, plans made, gradients and moments allocated
        for call in calls:
            call()
    stream.synchronize()
    if how == "eager":

        def run():
            for call in calls:
                call()

    else:
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            kept = [call() for call in calls]  # outputs side by side: writes do not stay in the cache either
        run = graph.replay
    times = max(1, min(1000, int(LEAST_MS / max(elapsed(cuda, stream, run, 1), 1e-4))))
    samples, begin = [], time.perf_counter()
    while len(samples) < 3 or (len(samples) < 100 and time.perf_counter() - begin < seconds):
        samples.append(elapsed(cuda, stream, run, times) / len(calls))
    if how != "eager":
        del kept
        graph.reset()
    return summary(samples)


def elapsed(cuda, stream, run, times):
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    begin.record(stream)
    for _ in range(times):
        run()
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end) / times
