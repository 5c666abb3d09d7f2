"""Which kernels run, on what, and what they have to do at least: floating-point operations, and bytes of memory where each operand is touched once.

>>> import scaffolding as sf
>>> with sf.profiler.profile() as prof:
...     y = sf.ones(4, 8) @ sf.ones(8, 2)
>>> [(e.key, e.flops) for e in prof.events() if e.flops]
[('gemm', 128.0)]
"""

from dataclasses import dataclass

from . import _core


@dataclass
class KernelEvent:
    key: str  # the kernel table: "gemm", "group_norm"
    provider: str  # who computed it: "native-avx2", "cublaslt"
    input_shapes: str  # of all operands
    flops: float
    bytes: float
    cpu_time_total: float  # microseconds on the host: on CUDA the time to launch
    counted: tuple = ()  # by how much `counters` grew up to the end of this call, since the end of the one before


@dataclass
class KernelAverage:
    key: str
    provider: str
    count: int = 0
    flops: float = 0
    bytes: float = 0
    cpu_time_total: float = 0
    counted: tuple = ()


class KernelAverages(list):
    def table(self, sort_by="bytes", row_limit=100):
        """A row for each kernel and provider, the largest `sort_by` (count, flops, bytes, cpu_time_total) first."""
        rows = sorted(self, key=lambda r: -getattr(r, sort_by))[:row_limit]
        lines = [f"{'kernel':34}{'provider':16}{'calls':>7}{'GFLOP':>10}{'MB':>10}{'host us':>11}"]
        lines += [f"{r.key:34}{r.provider:16}{r.count:7}{r.flops / 1e9:10.2f}{r.bytes / 1e6:10.1f}{r.cpu_time_total:11.0f}" for r in rows]
        return "\n".join(lines)


class profile:
    """Records the kernel calls of all threads while it is entered; one at a time. counters: a function that returns a tuple of numbers that only grow,
    which is asked after each call."""

    def __init__(self, *, counters=None):
        self._counters = counters
        self._events = []

    def __enter__(self):
        before = self._counters() if self._counters else ()

        def report(key, provider, shapes, flops, size, seconds):
            nonlocal before
            now = self._counters() if self._counters else ()
            self._events.append(KernelEvent(key, provider, shapes, flops, size, 1e6 * seconds, tuple(b - a for a, b in zip(before, now))))
            before = now

        self._watch = _core._watch_kernels(report)
        return self

    def __exit__(self, *exc):
        del self._watch

    def events(self):
        return list(self._events)

    def key_averages(self):
        rows = {}
        for e in self._events:
            row = rows.setdefault((e.key, e.provider), KernelAverage(e.key, e.provider, counted=(0,) * len(e.counted)))
            row.count += 1
            row.flops += e.flops
            row.bytes += e.bytes
            row.cpu_time_total += e.cpu_time_total
            row.counted = tuple(a + b for a, b in zip(row.counted, e.counted))
        return KernelAverages(rows.values())
