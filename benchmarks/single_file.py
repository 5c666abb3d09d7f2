"""How long the program takes from a single file of Stable Diffusion 1.5 to the first step: a file with random weights
in the original's names, float16, in the page cache.

    PYTHONPATH=build/python python benchmarks/single_file.py build [OTHER_BUILD ...] [--size 128] [--rounds 5]

"before the first pass": from the program's start until the denoiser begins, that is start, finding out what the file
is, its networks and both prompts through CLIP. "with what it makes once": from the start to the end of the first step,
less what a step takes, the median of the further ones; so pages that are touched for the first time count too, in steps
of seconds the noise of a step as well. "fresh memory" says what a page that was not used before costs here: a virtual
machine whose host takes unused pages back pays many times what others do. Progress is read from a terminal, as a person
sees it: it tells steps that take 50 ms or more. "cpu" is the processor time of the whole program, of all threads.
Several builds take turns.
"""

import argparse
import mmap
import os
import pathlib
import pty
import re
import statistics
import subprocess
import sys
import tempfile
import time


def ends_of_steps(command):
    """Seconds from the program's start to the beginning of the first step and to the end of each, and processor seconds
    of all of it.
    """
    ours, theirs = pty.openpty()
    began, ends, text = time.perf_counter(), [], ""
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    while True:
        try:
            text += os.read(ours, 4096).decode(errors="replace")
        except OSError:  # the program has closed its end
            break
        now = time.perf_counter() - began
        done = max((int(n) for n in re.findall(r"step (\d+)/", text)), default=-1)
        ends += [now] * (done + 1 - len(ends))
    os.close(ours)
    _, status, used = os.wait4(program.pid, 0)
    if status != 0:
        sys.exit(text)
    return ends, used.ru_utime + used.ru_stime


def touched(gigabytes=0.25):
    """Seconds for a GB of memory that was not used before."""
    with mmap.mmap(-1, int(gigabytes * 1e9)) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        began = time.perf_counter()
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1
        first = time.perf_counter()
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 2
        return ((first - began) - (time.perf_counter() - first)) / gigabytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=pathlib.Path, nargs="+", metavar="build")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = folder / "sd15.safetensors"
        picture = pathlib.Path(__file__).with_name("picture.py")
        subprocess.run([sys.executable, picture, "--dtype", "bf16", "--write", folder / "model"], check=True)
        subprocess.run(
            [o.builds[0] / "scaffolding", "convert", folder / "model", file, "--dtype", "float16"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        print(f"{file.stat().st_size / 1e9:.2f} GB, {o.size}x{o.size}")
        found, fresh = {build: [] for build in o.builds}, []
        for _ in range(o.rounds):
            for build in o.builds:
                file.read_bytes()  # into the page cache
                fresh.append(touched())
                (begun, *ends), cpu = ends_of_steps(
                    [build / "scaffolding", "txt2img", "a red fox", "-m", file, "--steps", "4", "--width", str(o.size)]
                    + ["--height", str(o.size), "-o", folder / "fox.png", "--force"]
                )
                step = statistics.median(b - a for a, b in zip(ends, ends[1:]))
                found[build].append((step, begun, ends[0] - step, cpu))
    for build, rounds in found.items():
        step, before, once, cpu = (statistics.median(values) for values in zip(*rounds))
        print(
            f"{build}: a step {step:.2f} s; before the first pass {before:.2f} s (goal 0.30), with what it makes once "
            f"{once:.2f} s; cpu {cpu:.1f} s"
        )
    print(f"fresh memory: {statistics.median(fresh):.2f} s a GB")


if __name__ == "__main__":
    main()
