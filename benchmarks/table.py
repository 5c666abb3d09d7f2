"""Runs the benchmarks and prints them as a table beside PyTorch's and the machine's own limits.

    python benchmarks/table.py build [--torch-python PYTHON] [--filter TEXT] [--threads N] [--rounds N] [--quick]

Row by row, each program in turn and several rounds of it, so that what else the machine does falls on all alike;
medians of the rounds. "peak" is what the processor's fastest unit for the row's type ("unit"), or a memcpy of the same
bytes, reaches in the same process between the row's samples, in wall time; "(cpu)" says the same per second of
processor time, which other programs disturb less. Above 100 %: a convolution by Winograd multiplies less, and products
of float32 may be made of six bfloat16 ones, whose limit stands among the peaks. "main kernel" took most of the time.
"met" says "yes" where both reach the goal and neither is slower than the peer, "wall" or "cpu" where one does: the
machine was not quiet then. A row that is slower than its peer says so in capitals.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Program:
    """A program that answers names of rows with measurements; alive for the whole run."""

    def __init__(self, command, arguments, environment=None):
        self.command, self.environment = [*map(str, command), *arguments], environment
        listing = subprocess.run([*self.command, "--list"], capture_output=True, text=True, env=environment)
        if listing.returncode != 0:
            raise RuntimeError(listing.stderr.strip().split("\n")[-1])
        self.names = listing.stdout.splitlines()
        self.process = None

    def ask(self, name):
        if self.process is None:
            self.process = subprocess.Popen(
                [*self.command, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.environment,
            )
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.command[0]} ended while measuring '{name}'")
        return json.loads(line)


def median_of(answers):
    return {k: statistics.median(a[k] for a in answers) if isinstance(v, float) else v for k, v in answers[0].items()}


def duration(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def slower_than(peer, ours):
    """The clocks ("wall", "cpu") by which ours takes longer."""
    return [clock for clock in ("wall", "cpu") if peer and clock in ours and ours[clock] > peer.get(clock, ours[clock])]


def goal_of(ours, peer):
    """(goal as text, whether it is met by the wall clock, by processor time); None for what cannot be said."""
    goal, value = ours.get("goal", "none"), ours.get("goal_value", 0)
    if goal == "share":
        return f">= {value:.0%} of peak", ours["share"] >= value, ours["share_cpu"] >= value
    if goal == "seconds":
        return f"<= {duration(value)}", ours["wall"] <= value, ours["cpu"] <= value
    if goal == "bytes":
        return f"<= {value / 1e6:g} MB", ours["bytes"] <= value, ours["bytes"] <= value
    if goal not in ("speedup", "peer_bytes"):
        return "", None, None
    text = f">= {value:g} x peer" if goal == "speedup" else "<= peer"
    if not peer:
        return text, None, None
    if goal == "peer_bytes":
        return text, ours["bytes"] <= peer["bytes"], ours["bytes"] <= peer["bytes"]
    return text, peer["wall"] >= value * ours["wall"], peer["cpu"] >= value * ours["cpu"]


def judge(ours, peer):
    """(goal, met) as text. No goal is met by a row that is slower than its peer."""
    goal, wall, cpu = goal_of(ours, peer)
    slower = slower_than(peer, ours)
    if wall is None:
        met = "?" if goal else ""
    else:
        wall, cpu = wall and "wall" not in slower, cpu and "cpu" not in slower
        met = "yes" if wall and cpu else "wall" if wall else "cpu" if cpu else "no"
    if slower:
        clock = f" ({slower[0]})" if len(slower) == 1 else ""
        met = ", ".join(filter(None, [met, f"SLOWER THAN PEER{clock}"]))
    return goal, met


def amount(answer):
    return f"{answer['bytes'] / 1e6:.2f} MB" if "bytes" in answer else duration(answer["wall"])


def ratio(peer, ours, *keys):
    return next(f"{peer[k] / ours[k]:.2f}" for k in keys if k in ours)


def line_of(ours, peer):
    goal, met = judge(ours, peer)
    share = ours.get("share", 0)
    return [
        ours["name"],
        amount(ours),
        amount(peer) if peer else "-",
        ratio(peer, ours, "wall", "bytes") if peer else "-",
        f"({ratio(peer, ours, 'cpu')})" if peer and "cpu" in ours else "",
        f"{share:.0%}" if share else "",
        f"({ours['share_cpu']:.0%})" if share else "",
        ours.get("unit", ""),
        next(iter(ours.get("kernels", [])), ""),
        goal,
        met,
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path, help="build folder with scaffolding_bench (and python/scaffolding)")
    parser.add_argument("--python", default=sys.executable, help="a Python that imports scaffolding")
    parser.add_argument(
        "--torch-python",
        default=os.environ.get("TORCH_PYTHON", sys.executable),
        help="a Python that has torch, where there is one",
    )
    parser.add_argument("--filter", default="", help="only rows whose names contain this")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="each row once, heavy rows not at all: do the programs run?"
    )
    parser.add_argument("--json", type=pathlib.Path, help="write all answers to this file too")
    options = parser.parse_args()
    arguments = ["--threads", str(options.threads), "--filter", options.filter, "--repeats", "3"] + (
        ["--quick"] if options.quick else []
    )
    bench = options.build / "scaffolding_bench"
    if not bench.is_file():
        sys.exit(f"benchmarks/table.py: there is no {bench}; `make bench` builds it and calls this")
    waits = {"GOMP_SPINCOUNT": "2000"} | os.environ  # what the Python package sets for itself
    own = [Program([bench], arguments, waits)]
    environment = os.environ | {"PYTHONPATH": str(options.build / "python")}
    others = {
        "Python package": ([options.python, HERE / "overhead.py"], environment),
        "training in Python": ([options.python, HERE / "training.py"], environment),
        "PyTorch": ([options.torch_python, HERE / "torch_peer.py"], None),
    }
    for names, (command, env) in others.items():
        try:
            own.append(Program(command, arguments, env))
        except (RuntimeError, OSError) as error:
            print(f"without the {names}: {error}", file=sys.stderr)
            own.append(None)
    *programs, peer = own
    peaks = subprocess.run(
        [bench, "--peaks", *arguments], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for peak in map(json.loads, peaks):
        print("  ".join(f"{k} {v / 1e9:.1f} G" if k.endswith("second") else f"{v}" for k, v in peak.items()))

    lines = [["row", "ours", "peer", "peer/ours", "(cpu)", "of peak", "(cpu)", "unit", "main kernel", "goal", "met"]]
    log = []
    for program in filter(None, programs):
        for name in program.names:
            both = [(program, []), (peer, [])] if peer and name in peer.names else [(program, [])]
            for _ in range(1 if options.quick else options.rounds):
                for who, answers in both:
                    answers.append(who.ask(name))
            results = [median_of(answers) for _, answers in both]
            log.append({"row": name, "ours": results[0], "peer": results[1] if len(results) > 1 else None})
            lines.append(line_of(results[0], results[1] if len(results) > 1 else None))
            print(f"{len(lines) - 1:3d}  " + "  ".join(filter(None, lines[-1])), file=sys.stderr)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print(
            "  ".join(
                cell.ljust(w) if i == 0 or i > 6 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))
            ).rstrip()
        )
    if options.json:
        options.json.write_text(json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    main()
