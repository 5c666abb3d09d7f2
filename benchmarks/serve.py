"""Timing shared by torch_peer.py and overhead.py: rows by name, answered as scaffolding_bench answers them.

`python torch_peer.py --list` prints the names; `--serve` reads names from stdin and writes one JSON object per line;
without either all rows that `--filter` matches are measured once.
"""

import argparse
import json
import statistics
import sys
import time


def sample(call, calls):
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    return (time.perf_counter() - wall) / calls, (time.process_time() - cpu) / calls


def measure(call, repeats, seconds):
    call()
    calls = 1
    while (took := sample(call, calls)[0] * calls) < seconds / 8:
        calls *= 4
    calls = max(1, int(calls * seconds / took))
    walls, cpus = zip(*(sample(call, calls) for _ in range(repeats)))
    return {"wall": statistics.median(walls), "cpu": statistics.median(cpus)}


def main(rows, set_threads):
    """rows: name -> (prepare, extra): prepare() returns what is timed, or a dict of finished measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--filter", default="")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    repeats, seconds = (1, 1e-6) if options.quick else (options.repeats, options.seconds)

    def answer(name):
        prepare, extra = rows[name]
        set_threads(extra.get("threads") or options.threads)
        timed = prepare()
        result = timed if isinstance(timed, dict) else measure(timed, repeats, seconds)
        print(json.dumps({"name": name, **result, **extra}), flush=True)

    if options.serve:
        for line in sys.stdin:
            answer(line.rstrip("\n"))
        return
    for name in rows:
        if options.filter in name:
            print(name) if options.list else answer(name)
