"""Which kernels run, on what, and what they have to do at least: floating-point operations, and bytes of memory where
each operand is touched once.

>>> import scaffolding as sf
>>> with sf.profiler.profile() as prof:
...     y = sf.ones(4, 8) @ sf.ones(8, 2)
>>> [(e.key, e.flops) for e in prof.events() if e.flops]
[('gemm', 128.0)]
"""

import ctypes
import typing

from . import _core
from ._missing import help_modules


class KernelEvent(typing.NamedTuple):
    key: str  # the kernel table: "gemm", "group_norm"
    provider: str  # who computed it: "native-avx2", "cublaslt"
    input_shapes: str  # of all operands
    flops: float
    bytes: float
    cpu_time_total: float  # microseconds on the host: on CUDA the time to launch
    # by how much the counter's numbers grew up to the end of this call, since the end of the one before
    counted: tuple = ()


class KernelAverage:
    """The calls of a kernel by a provider, added up."""

    def __init__(self, key, provider, count=0, flops=0, bytes=0, cpu_time_total=0, counted=()):
        self.key, self.provider, self.count, self.flops, self.bytes = key, provider, count, flops, bytes
        self.cpu_time_total, self.counted = cpu_time_total, counted


class KernelAverages(list):
    """What profile.key_averages() gives: a list of KernelAverage."""

    def table(self, sort_by="bytes", row_limit=100):
        """A row for each kernel and provider, the largest `sort_by` (count, flops, bytes, cpu_time_total) first,
        row_limit at most."""
        rows = sorted(self, key=lambda r: -getattr(r, sort_by))[:row_limit]
        lines = [f"{'kernel':34}{'provider':16}{'calls':>7}{'GFLOP':>10}{'MB':>10}{'host us':>11}"]
        lines += [
            f"{r.key:34}{r.provider:16}{r.count:7}{r.flops / 1e9:10.2f}{r.bytes / 1e6:10.1f}{r.cpu_time_total:11.0f}"
            for r in rows
        ]
        return "\n".join(lines)


class profile:
    """Records the kernel calls of all threads while it is entered; one at a time. counter, which: a ctypes function
    `int64_t counter(int which)` and a tuple of what it is asked for after each call, numbers that only grow.

    >>> with sf.profiler.profile() as run:
    ...     y = sf.ones(8, 8) @ sf.ones(8, 8)
    >>> [(row.key, row.count, row.flops) for row in run.key_averages() if row.flops]
    [('gemm', 1, 1024.0)]
    """

    def __init__(self, *, counter=None, which=()):
        self._counter, self._which = counter, list(which) if counter is not None else []
        self._events = []

    def __enter__(self):
        address = ctypes.cast(self._counter, ctypes.c_void_p).value if self._counter is not None else 0
        self._watch = _core._KernelWatch(address, self._which)
        return self

    def __exit__(self, *exc):
        rows = self._watch.take()
        del self._watch
        self._events += [
            KernelEvent(key, who, shapes, flops, size, 1e6 * seconds, tuple(n))
            for key, who, shapes, flops, size, seconds, n in rows
        ]

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


help_modules()  # this one is imported after the others
