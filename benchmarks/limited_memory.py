"""A picture of Stable Diffusion XL with weights in few bits within little memory, beside the same without a limit.

    python benchmarks/limited_memory.py [--program scaffolding] [--limit 4GB] [--type q4_K] [--size 1024] [--steps 1]
    [--dtype bfloat16] [--rounds 1] [--model FILE] [--folder FOLDER]

The limit is a memory cgroup's, version 1 or 2, which root may make: file pages that are mapped or cached count there
too. Both runs are the program's from its start to the written picture; pictures must be the same to the bit. Without
--model random weights are written and converted, which takes minutes and 9 GB in --folder."""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from checkpoints import evict  # noqa: E402
from memory_group import MemoryGroup  # noqa: E402


def took(command, folder, enter=None):
    start = time.perf_counter()
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, preexec_fn=enter)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}{command[0]}: it failed")
    return time.perf_counter() - start


def converted(options, folder):
    from random_checkpoint import write_model

    full, small = folder / "sdxl.safetensors", folder / f"sdxl-{options.type}.gguf"
    if not small.exists():
        write_model(full, "xl_base")
        took([options.program, "convert", full, small, "--type", options.type, "--dtype", "float16"], folder)
        full.unlink()
    return small


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="scaffolding")
    parser.add_argument("--limit", default="4GB", help="as 4GB, or 4.5GB")
    parser.add_argument("--type", default="q4_K")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or pathlib.Path(temporary)
        model = options.model or converted(options, folder)
        words = [options.program, "txt2img", "a lighthouse", "--model", model, "--width", options.size, "--height",
                 options.size, "--steps", options.steps, "--seed", 3, "--dtype", options.dtype, "--force", "-q",
                 "-o"]  # fmt: skip
        free, limited, most = [], [], 0
        for _ in range(options.rounds):
            evict([model])  # pages count where they were read first
            free.append(took([*words, "free.png"], folder))
            evict([model])
            with MemoryGroup(int(float(options.limit.removesuffix("GB")) * 2**30)) as group:
                limited.append(took([*words, "limited.png"], folder, group.enter))
                most = max(most, group.highest())
        if (folder / "free.png").read_bytes() != (folder / "limited.png").read_bytes():
            sys.exit("the picture within the limit is another one")
        a, b = statistics.median(free), statistics.median(limited)
        print(
            f"{options.type} {options.size}x{options.size}, {options.steps} steps: {a:.1f} s, within {options.limit} "
            f"{b:.1f} s: {b / a:.2f} times as long, at most {most / 2**30:.2f} GiB used, the same picture"
        )


if __name__ == "__main__":
    main()
