"""A model larger than memory on the CPU: Stable Diffusion XL's UNet in 16 bits (5.1 GB), streamed from its file in a
memory cgroup, beside the same pass with all of it in memory.

    PYTHONPATH=build/python python benchmarks/cpu_streaming.py --folder DISK [--memory-gb 3] [--latents 32]

Writes the weights (random) below --folder and takes them away in the end; needs root for the cgroup. The floor of a
pass is the longer one of its work and of reading what does not stay in memory: work is the resident pass, the disk's
speed is that of reading the file past the page cache, before and after each streamed process. Rounds are in turn, each
in a process of its own; medians count. --resident-gb: of the weights, what stays in memory.
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
    import scaffolding as sf
    from scaffolding.models import UNet2DConditionModel
    from scaffolding.nn import streaming

    sf.set_num_threads(o.threads)
    model = UNet2DConditionModel.from_pretrained(o.child_folder, torch_dtype=getattr(sf, o.dtype)).eval()
    dtype = getattr(sf, o.dtype)
    sf.manual_seed(0)
    x = sf.randn(1, 4, o.latents, o.latents).to(dtype)
    text, pooled = sf.randn(1, 77, 2048).to(dtype), sf.randn(1, 1280).to(dtype)
    ids = sf.tensor([[1024.0, 1024, 0, 0, 1024, 1024]]).to(dtype)
    streamer = None
    if o.child == "streamed":
        streamer = streaming.attach(
            model, "benchmark", device=sf.device("cpu"), resident_bytes=int(o.resident_gb * 1e9), slots=o.slots
        )
    times = []
    with sf.no_grad():
        for _ in range(o.passes):
            start = time.perf_counter()
            y = model(x, 500, text, added_cond_kwargs={"text_embeds": pooled, "time_ids": ids}).sample
            times.append(time.perf_counter() - start)
    said = {
        "times": times,
        "sum": float(y.float().abs().sum().item()),
        "peak": status("VmHWM"),
        "bits": hash(y.view(sf.int16).numpy().tobytes()),
    }
    if streamer:
        s = streamer.statistics()
        said |= {"missing": s["weight_bytes"] - s["resident_bytes"], "misses": s["misses"], "slots": s["slot_bytes"]}
    print(json.dumps(said))


def run(o, folder, which, group=None):
    command = [sys.executable, __file__, "--child", which, "--child-folder", str(folder)]
    for name in ("dtype", "latents", "resident_gb", "passes", "threads", "slots"):
        command += ["--" + name.replace("_", "-"), str(getattr(o, name))]
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    environment = os.environ | {"PYTHONHASHSEED": "0", "GOMP_SPINCOUNT": "2000"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=enter)
    if done.returncode:
        raise SystemExit(f"{which}: ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="on the disk to be measured")
    parser.add_argument("--keep", action="store_true", help="leave the weights there, for the next time")
    parser.add_argument("--memory-gb", type=float, default=3)
    parser.add_argument("--resident-gb", type=float, default=1.9)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--latents", type=int, default=32)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--child-folder", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.child:
        return child(o)
    folder = pathlib.Path(o.folder or tempfile.gettempdir()) / "sdxl_unet"
    path = folder / "diffusion_pytorch_model.safetensors"
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
    resident, streamed, disk, ratios = [], [], [], []
    for _ in range(o.rounds):
        resident.append(statistics.median((r := run(o, folder, "resident"))["times"][1:]))
        drop(path)
        group, peak = group_of(int(o.memory_gb * 1e9))
        try:
            before = disk_speed(path)
            s = run(o, folder, "streamed", group)
            disk.append((before + disk_speed(path)) / 2)
            highest = int((group / peak).read_text())
        finally:
            group.rmdir()
        streamed.append(statistics.median(s["times"][1:]))
        floor = max(resident[-1], s["missing"] / disk[-1])
        ratios.append(streamed[-1] / floor)
        print(
            f"resident {resident[-1]:.2f} s, streamed {streamed[-1]:.2f} s (first {s['times'][0]:.2f}), disk "
            f"{disk[-1] / 1e9:.2f} GB/s, missing {s['missing'] / 1e9:.2f} GB = {s['missing'] / disk[-1]:.2f} s: "
            f"{ratios[-1]:.2f} x the floor; VmHWM {s['peak'] / 1e6:.0f} MB, cgroup {highest / 1e6:.0f} MB, misses "
            f"{s['misses']}, {'the same bits' if s['bits'] == r['bits'] else 'OTHER BITS'}",
            flush=True,
        )
    print(
        f"{o.dtype}, {o.latents}x{o.latents} latents, {o.memory_gb} GB: streamed {statistics.median(streamed):.2f} s, "
        f"{statistics.median(ratios):.2f} x max(work, missing bytes / disk)"
    )


if __name__ == "__main__":
    main()
