"""Time on a GPU beside PyTorch's: single ops, the networks of Stable Diffusion, training steps, a picture from end to
end.

    PYTHONPATH=build/python python benchmarks/gpu [--torch-python PYTHON] [--torch-path FOLDER] [--filter TEXT]
    [--seconds N] [--output FOLDER]

Medians of CUDA events around replays of a graph, on random data. "eager" is PyTorch as it is, "PyTorch's best" the
fastest of eager, a CUDA graph and torch.compile, in channels_last. "floor" is counted FLOP and bytes at the two
ceilings that the first two rows measure. Rows run in order of importance until --seconds are over; the rest is listed
as not measured. Each library has a process of its own, and a row that fails or hangs costs that row alone."""

import argparse
import json
import os
import pathlib
import selectors
import subprocess
import sys
import tempfile
import time
import zipfile

import report
from rows import COPY, GEMM, ROWS

HERE = pathlib.Path(__file__).resolve().parent
START_LIMIT = 120  # seconds to import a library


class Worker:
    """A library's process, started again after a row that took it along."""

    def __init__(self, command, environment):
        self.command, self.environment, self.process, self.facts = command, environment, None, {}

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment
        )
        self.facts = self.read(START_LIMIT)

    def read(self, limit):
        """The next line; RuntimeError where none comes in time."""
        data, end = b"", time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                if not selector.select(max(0, end - time.monotonic())):
                    self.stop()
                    raise RuntimeError(f"no answer in {limit:.0f} s")
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                if not more:
                    raise RuntimeError(f"the process ended with {self.stop()}")
                data += more
        return json.loads(data)

    def ask(self, request, limit):
        try:
            if self.process is None:
                self.start()
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            reply = self.read(limit)
        except (RuntimeError, OSError) as e:
            self.stop()
            return {"error": str(e)}
        if "error" in reply:  # an error of the device stays with its process
            self.stop()
        return reply

    def stop(self):
        if self.process is None:
            return None
        self.process.stdin.close()
        if self.process.poll() is None:
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code, self.process = self.process.wait(), None
        return code


def unpacked(folder, into):
    """A folder to put on PYTHONPATH: `folder`, or what its wheels hold."""
    wheels = sorted(folder.glob("*.whl"))
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(into)
    return into if wheels else folder


def workers(options, scratch):
    ours = Worker([sys.executable, str(HERE / "worker.py"), "scaffolding"], dict(os.environ))
    if not options.torch_python:
        return ours, None
    environment = os.environ | {"PYTHONPATH": ""}
    if options.torch_path:
        environment["PYTHONPATH"] = str(unpacked(options.torch_path, scratch))
    return ours, Worker([options.torch_python, str(HERE / "worker.py"), "torch"], environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"), help="a Python that has torch")
    parser.add_argument(
        "--torch-path", type=pathlib.Path, help="a folder of packages or wheels for that Python, such as diffusers"
    )
    parser.add_argument(
        "--filter",
        default="",
        help="only rows whose name has one of these in it, separated by |; the two ceilings always run",
    )
    parser.add_argument("--seconds", type=float, default=3600, help="no row begins after so long")
    parser.add_argument("--row-seconds", type=float, default=1.0, help="how long a row's samples are taken")
    parser.add_argument(
        "--row-limit", type=float, default=150, help="how long a row may take before its process is ended"
    )
    parser.add_argument("--output", type=pathlib.Path, help="a folder for bench_gpu.json and bench_gpu.txt")
    parser.add_argument(
        "--tiny", action="store_true", help="small shapes, each row once: to see that it works, in the emulator, say"
    )
    parser.add_argument("--list", action="store_true", help="print the rows")
    options = parser.parse_args()
    wanted = [name for name in ROWS if name in (COPY, GEMM) or any(part in name for part in options.filter.split("|"))]
    if options.list:
        return print("\n".join(wanted))
    with tempfile.TemporaryDirectory() as scratch:
        return run(options, wanted, *workers(options, pathlib.Path(scratch)))


def run(options, wanted, ours, peer):
    begin, results, not_measured = time.monotonic(), {}, []
    ours.start()
    if ours.facts["device"] == "none":
        import scaffolding

        ours.stop()
        return f"nothing measured: {scaffolding.cuda.why_not()}"
    print(f"{ours.facts['device']}, cuDNN {ours.facts['cudnn']}", flush=True)

    def save():
        limits = report.ceilings(results, COPY, GEMM)
        text = report.text(ROWS, results, limits, not_measured, judged=not options.tiny)
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            document = {
                "ours": ours.facts,
                "peer": peer.facts if peer else None,
                "ceilings": limits,
                "rows": results,
                "not_measured": not_measured,
            }
            (options.output / "bench_gpu.json").write_text(json.dumps(document, indent=1))
            (options.output / "bench_gpu.txt").write_text(text + "\n")
        return text

    for name in wanted:
        row, left = ROWS[name], options.seconds - (time.monotonic() - begin)
        if left <= 0:
            not_measured.append(name)
            continue
        entry = results[name] = {"ours": {}, "peer": dict(results.get(row.peer_of, {}).get("peer", {}))}
        asked = [("ours", ours, how) for how in row.ours]
        asked += [("peer", peer, how) for how in row.peer if peer and not row.peer_of]
        for side, worker, how in asked:
            limit = max(5.0, min(options.row_limit, options.seconds - (time.monotonic() - begin)))
            request = {
                "row": name,
                "how": how,
                "tiny": options.tiny,
                "seconds": 0 if options.tiny else options.row_seconds,
            }
            entry[side][how] = answer = worker.ask(request, limit)
            said = (
                f"{answer['ms']:.4f} ms, {answer['took']:.1f} s in all"
                if "ms" in answer
                else f"failed: {answer['error']}"
            )
            print(f"  {name}, {'PyTorch' if side == 'peer' else 'ours'}, {how}: {said}", file=sys.stderr, flush=True)
        save()
    print(save(), flush=True)
    for worker in (ours, peer):
        if worker:
            worker.stop()
    return 1 if any("error" in a for e in results.values() for a in e["ours"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
