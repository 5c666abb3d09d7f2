"""A model larger than memory on the CPU: Stable Diffusion XL's UNet in 16 bits (5.1 GB), streamed from its file in a
memory cgroup, beside the same pass with all of it in memory; with --picture whole pictures, by the memory plan of the
whole pipeline (6.9 GB).

    PYTHONPATH=build/python python benchmarks/cpu_streaming.py --folder DISK [--memory-gb 3] [--latents 32]
        [--picture STEPS]

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
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
SDXL = json.loads((ROOT / "scaffolding/models/configs/sdxl.json").read_text())
TEXT = ("text_encoder", "text_encoder_2")
sys.path.append(str(ROOT / "tests"))
from memory_group import MemoryGroup  # noqa: E402


def write(folder, dtype):
    """A folder of the whole pipeline, with random weights."""
    index = dict(SDXL["model_index"])
    for name, part in SDXL["parts"].items():
        index[name] = [part["library"], part["class"]]
        (folder / name).mkdir(parents=True, exist_ok=True)
        stem = "scheduler_config" if name == "scheduler" else "config"
        (folder / name / f"{stem}.json").write_text(json.dumps(part["config"] | {"_class_name": part["class"]}))
        if name != "scheduler":
            stem = "model" if name in TEXT else "diffusion_pytorch_model"
            write_weights(folder / name / f"{stem}.safetensors", part, dtype)
    for name in ("tokenizer", "tokenizer_2"):
        index[name] = ["transformers", "CLIPTokenizer"]
        shutil.copytree(ROOT / "models" / "emoji-128" / "tokenizer", folder / name)
    (folder / "model_index.json").write_text(json.dumps(index))


def write_weights(path, part, dtype):
    """Weights of the network's shapes, each the same few random numbers scaled by its fan-in."""
    import numpy as np

    import scaffolding as sf
    from scaffolding import models

    with sf.device("meta"):
        network = getattr(models, part["class"]).from_config(part["config"])
        shapes = {n: tuple(p.shape) for n, p in network.state_dict().items()}
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


def in_memory(network, folder):
    """Weights in memory of their own, or another process would have the file's pages for nothing."""
    for parameter in network.parameters():
        parameter.data = parameter.data.clone()
    for path in pathlib.Path(folder).glob("*.safetensors"):
        drop(path)


def of_the_unet(o):
    """(a pass, bytes of weights that it reads, misses) of the UNet alone."""
    import scaffolding as sf
    from scaffolding.models import UNet2DConditionModel
    from scaffolding.nn import streaming

    dtype, folder = getattr(sf, o.dtype), pathlib.Path(o.child_folder) / "unet"
    model = UNet2DConditionModel.from_pretrained(folder, torch_dtype=dtype).eval()
    sf.manual_seed(0)
    x = sf.randn(1, 4, o.latents, o.latents).to(dtype)
    text, pooled = sf.randn(1, 77, 2048).to(dtype), sf.randn(1, 1280).to(dtype)
    ids = sf.tensor([[1024.0, 1024, 0, 0, 1024, 1024]]).to(dtype)
    conditions = {"text_embeds": pooled, "time_ids": ids}

    def a_pass():
        with sf.no_grad():
            return model(x, 500, text, added_cond_kwargs=conditions).sample.view(sf.int16)

    if o.child == "resident":
        in_memory(model, folder)
        return a_pass, lambda: 0, lambda: 0
    streamer = streaming.attach(
        model, "benchmark", device=sf.device("cpu"), resident_bytes=int(o.resident_gb * 1e9), slots=o.slots
    )
    said = streamer.statistics
    return a_pass, lambda: said()["weight_bytes"] - said()["resident_bytes"], lambda: said()["misses"]


def of_a_picture(o):
    """The same of a whole picture, by the plan that the machine's free memory makes."""
    import scaffolding as sf
    from scaffolding.diffusion import StableDiffusionXLPipeline

    pipe = StableDiffusionXLPipeline.from_pretrained(o.child_folder, torch_dtype=getattr(sf, o.dtype))
    pipe.set_progress_bar_config(disable=True)
    size = {"height": 8 * o.latents, "width": 8 * o.latents}

    def a_picture():
        generator = sf.Generator().manual_seed(0)
        call = size | {"num_inference_steps": o.picture, "generator": generator, "output_type": "sf_tensor"}
        return pipe("a red fox", **call).images.float().view(sf.int32)

    if o.child == "resident":
        for name in ("unet", "vae", *TEXT):
            in_memory(getattr(pipe, name), pathlib.Path(o.child_folder) / name)
        return a_picture, lambda: 0, lambda: 0
    plan = pipe.memory_plan(**size)
    pipe.apply_memory_plan(plan)
    print(plan, file=sys.stderr)

    def missing():  # blocks that pass through in each call; the rest of what does not stay once a picture
        parts = plan.parts
        away = [p for p in parts.values() if p["residency"] != "resident"]
        calls = {True: o.picture, False: 1}
        return sum(p["streamed"] * calls[p is parts["unet"]] + p["bytes"] - p["streamed"] for p in away)

    return a_picture, missing, lambda: 0


def child(o):
    """Loads, and makes a pass for each line of the input; prints a line of JSON for each."""
    import scaffolding as sf

    sf.set_num_threads(o.threads)
    make, missing, misses = of_a_picture(o) if o.picture else of_the_unet(o)
    print("ready", flush=True)
    for _ in sys.stdin:
        start, start_cpu = time.perf_counter(), time.process_time()
        y = make()
        said = {
            "wall": time.perf_counter() - start,
            "cpu": time.process_time() - start_cpu,
            "peak": status("VmHWM"),
            "bits": hash(y.numpy().tobytes()),
            "missing": missing(),
            "misses": misses(),
        }
        print(json.dumps(said), flush=True)


class Process:
    """A child, which makes a pass when it is told to."""

    def __init__(self, o, folder, which, group=None):
        command = [sys.executable, __file__, "--child", which, "--child-folder", str(folder)]
        for name in ("dtype", "latents", "resident_gb", "threads", "slots", "picture"):
            command += ["--" + name.replace("_", "-"), str(getattr(o, name))]
        enter = group.enter if group else None
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
    parser.add_argument("--picture", type=int, default=0, metavar="STEPS", help="whole pictures of so many steps")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--child-folder", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.child:
        return child(o)
    folder = pathlib.Path(o.folder or tempfile.gettempdir()) / "sdxl"
    try:
        if not (folder / "model_index.json").exists():
            write(folder, o.dtype)
        measure(o, folder, folder / "unet" / "diffusion_pytorch_model.safetensors")
    finally:
        if not o.keep:
            shutil.rmtree(folder)


def measure(o, folder, path):
    for file in folder.glob("*/*.safetensors"):
        drop(file)
    with MemoryGroup(int(o.memory_gb * 1e9)) as group:
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
                    f"streamed {s['wall']:.2f} s (cpu {s['cpu']:.2f}), resident {r['wall']:.2f} s "
                    f"(cpu {r['cpu']:.2f}), reading {read:.2f} s: {rows[-1][0]:.2f} x",
                    flush=True,
                )
            highest = group.highest()
        finally:
            for process in processes:
                process.end()
    what = f"pictures of {o.picture} steps" if o.picture else "UNet"
    ratio, wall, work, read, disk = (statistics.median(column) for column in zip(*rows))
    print(
        f"{o.dtype}, {o.latents}x{o.latents} latents, {what}: in {o.memory_gb} GB {wall:.2f} s (first "
        f"{cold['wall']:.2f}), in memory {work:.2f} s (first {first['wall']:.2f}), {s['missing'] / 1e9:.2f} GB missing "
        f"at {disk / 1e9:.2f} GB/s {read:.2f} s: {ratio:.2f} x the floor; VmHWM {s['peak'] / 1e6:.0f} MB, cgroup "
        f"{highest / 1e6:.0f} MB, {s['misses']} misses, {'the same bits' if s['bits'] == r['bits'] else 'OTHER BITS'}"
    )


if __name__ == "__main__":
    main()
