"""A model larger than memory on the CPU: Stable Diffusion XL's UNet in 16 bits (5.1 GB), streamed from its file in a
memory cgroup, beside the same pass with all of it in memory.

    PYTHONPATH=build/python python benchmarks/cpu_streaming.py --folder DISK [--memory-gb 3] [--latents 32]

Writes the weights (random) below --folder and takes them away in the end; needs root for the cgroup. The floor of a
pass is the longer one of its work and of reading what does not stay in memory: work is the resident pass, the disk's
speed that of reading the file past the page cache. Two processes take turns, pass by pass, with the disk's turn between
them, so that whatever else the machine does slows all alike; medians count. --resident-gb: what stays in memory.
"""

import argparse
import json
import math
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def group_of(bytes_):
    """A new memory cgroup with this limit: its folder and the name of the file with its highest use."""
    for root, limit, peak in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        ("/sys/fs/cgroup", "memory.max", "memory.peak"),
    ):
        folder = pathlib.Path(root) / f"scaffolding_{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(str(bytes_))
            return folder, peak
        except OSError:
            if folder.is_dir():
                folder.rmdir()
    raise SystemExit("no memory cgroup can be made here")


FILE = "diffusion_pytorch_model.safetensors"
CONFIG = {
    "sample_size": 128,
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}


def write(path, dtype):
    """Weights of the UNet's shapes, each the same few random numbers scaled by its fan-in."""
    import numpy as np

    import scaffolding as sf
    from scaffolding.models import UNet2DConditionModel

    with sf.device("meta"):
        shapes = {n: tuple(p.shape) for n, p in UNet2DConditionModel(**CONFIG).state_dict().items()}
    at, entries = 0, {}
    for name in sorted(shapes):
        size = 2 * math.prod(shapes[name])
        kind = {"float16": "F16", "bfloat16": "BF16"}[dtype]
        entries[name] = {"dtype": kind, "shape": list(shapes[name]), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    noise = np.random.default_rng(0).standard_normal(1 << 22, dtype=np.float32)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(shapes):
            shape, n = shapes[name], math.prod(shapes[name])
            values = noise * (1 / math.sqrt(n / shape[0]) if len(shape) > 1 else 0.1)
            if len(shape) == 1 and name.endswith("weight"):
                values = values + 1
            values = sf.from_numpy(values).to(getattr(sf, dtype)).view(sf.int16).numpy().tobytes()
            for begin in range(0, 2 * n, len(values)):
                f.write(values[: min(len(values), 2 * n - begin)])
        os.fsync(f.fileno())
    (path.parent / "config.json").write_text(json.dumps(CONFIG | {"_class_name": "UNet2DConditionModel"}))


def drop(path):
    """The file leaves the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def disk_speed(path, bytes_=2 << 30):
    """Bytes a second of reading the file past the page cache."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    piece = mmap.mmap(-1, 32 << 20)
    piece.write(b"\0" * len(piece))
    done, start = 0, time.perf_counter()
    while done < bytes_ and (n := os.preadv(fd, [piece], done)) > 0:
        done += n
    os.close(fd)
    return done / (time.perf_counter() - start)


def status(name):
    rows = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return int(rows[name].split()[0]) << 10


def child(o):
    """Loads, and makes a pass for each line of the input; prints a line of JSON for each."""
    import scaffolding as sf
    from scaffolding.models import UNet2DConditionModel
    from scaffolding.nn import streaming

    sf.set_num_threads(o.threads)
    dtype = getattr(sf, o.dtype)
    model = UNet2DConditionModel.from_pretrained(o.child_folder, torch_dtype=dtype).eval()
    sf.manual_seed(0)
    x = sf.randn(1, 4, o.latents, o.latents).to(dtype)
    text, pooled = sf.randn(1, 77, 2048).to(dtype), sf.randn(1, 1280).to(dtype)
    ids = sf.tensor([[1024.0, 1024, 0, 0, 1024, 1024]]).to(dtype)
    streamer = None
    if o.child == "resident":  # in memory of its own, or the other process would have the file's pages for nothing
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        drop(pathlib.Path(o.child_folder) / FILE)
    if o.child == "streamed":
        streamer = streaming.attach(
            model, "benchmark", device=sf.device("cpu"), resident_bytes=int(o.resident_gb * 1e9), slots=o.slots
        )
    print("ready", flush=True)
    for _ in sys.stdin:
        start, start_cpu = time.perf_counter(), time.process_time()
        with sf.no_grad():
            y = model(x, 500, text, added_cond_kwargs={"text_embeds": pooled, "time_ids": ids}).sample
        said = {
            "wall": time.perf_counter() - start,
            "cpu": time.process_time() - start_cpu,
            "peak": status("VmHWM"),
            "bits": hash(y.view(sf.int16).numpy().tobytes()),
        }
        if streamer:
            s = streamer.statistics()
            said |= {"missing": s["weight_bytes"] - s["resident_bytes"], "misses": s["misses"]}
        print(json.dumps(said), flush=True)


class Process:
    """A child, which makes a pass when it is told to."""

    def __init__(self, o, folder, which, group=None):
        command = [sys.executable, __file__, "--child", which, "--child-folder", str(folder)]
        for name in ("dtype", "latents", "resident_gb", "threads", "slots"):
            command += ["--" + name.replace("_", "-"), str(getattr(o, name))]
        enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
        environment = os.environ | {"PYTHONHASHSEED": "0", "GOMP_SPINCOUNT": "2000"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.run = subprocess.Popen(command, env=environment, text=True, preexec_fn=enter, **pipes)
        self.which = which
        self.read()  # "ready"

    def make_pass(self):
        self.run.stdin.write("\n")
        self.run.stdin.flush()
        return json.loads(self.read())

    def read(self):
        said = self.run.stdout.readline()
        if not said:
            raise SystemExit(f"{self.which}: ended with {self.run.wait()}")
        return said

    def end(self):
        self.run.stdin.close()
        self.run.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="on the disk to be measured")
    parser.add_argument("--keep", action="store_true", help="leave the weights there, for the next time")
    parser.add_argument("--memory-gb", type=float, default=3)
    parser.add_argument("--resident-gb", type=float, default=1.9)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--latents", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--child-folder", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.child:
        return child(o)
    folder = pathlib.Path(o.folder or tempfile.gettempdir()) / "sdxl_unet"
    path = folder / FILE
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write(path, o.dtype)
        measure(o, folder, path)
    finally:
        if not o.keep:
            for file in folder.glob("*"):
                file.unlink()
            folder.rmdir()


def measure(o, folder, path):
    drop(path)
    group, peak = group_of(int(o.memory_gb * 1e9))
    processes = []
    try:
        resident = Process(o, folder, "resident")
        processes.append(resident)
        streamed = Process(o, folder, "streamed", group)
        processes.append(streamed)
        first, cold = resident.make_pass(), streamed.make_pass()
        resident.make_pass(), streamed.make_pass()
        rows = []
        for _ in range(o.rounds):
            disk, r, s = disk_speed(path), resident.make_pass(), streamed.make_pass()
            read = s["missing"] / disk
            rows.append((s["wall"] / max(r["wall"], read), s["wall"], r["wall"], read, disk))
            print(
                f"streamed {s['wall']:.2f} s (cpu {s['cpu']:.2f}), resident {r['wall']:.2f} s (cpu {r['cpu']:.2f}), "
                f"reading {read:.2f} s: {rows[-1][0]:.2f} x",
                flush=True,
            )
        highest = int((group / peak).read_text())
    finally:
        for process in processes:
            process.end()
        group.rmdir()
    ratio, wall, work, read, disk = (statistics.median(column) for column in zip(*rows))
    print(
        f"{o.dtype}, {o.latents}x{o.latents} latents: in {o.memory_gb} GB {wall:.2f} s (first {cold['wall']:.2f}), in "
        f"memory {work:.2f} s (first {first['wall']:.2f}), {s['missing'] / 1e9:.2f} GB missing at {disk / 1e9:.2f} "
        f"GB/s {read:.2f} s: {ratio:.2f} x the floor; VmHWM {s['peak'] / 1e6:.0f} MB, cgroup {highest / 1e6:.0f} MB, "
        f"{s['misses']} misses, {'the same bits' if s['bits'] == r['bits'] else 'OTHER BITS'}"
    )


if __name__ == "__main__":
    main()
