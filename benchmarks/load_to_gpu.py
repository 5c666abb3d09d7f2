"""How much host memory loading a checkpoint to a GPU takes, and how fast it is.

    python benchmarks/load_to_gpu.py --gigabytes 5 --dtype bfloat16
    python benchmarks/load_to_gpu.py --gigabytes 5 --way module
    python benchmarks/load_to_gpu.py --tora 49,480,720

Writes a checkpoint of layers of 256 MB (at most) into a temporary folder, loads it in a process of its own (--way
module: into a module on the CPU, whose memory is the file's pages, which then goes to the GPU by .to) and prints the
resident memory of that process: anonymous pages and those of files (RssAnon + RssFile), looked at every 2 ms, and the
kernel's own highest value of everything (VmHWM).

--tora frames,height,width: Tora at its full size instead, 22 GB in a sparse folder, by from_pretrained(device="cuda"),
and then one step of a clip of that size along a trajectory, with its frames as tensors on the GPU; --max-vram: by a
memory plan for so much of it, with the report of what was predicted and measured. No machine needs to have a GPU of
that size: with the emulator and SF_CUDA_EMULATOR_DRY=1 device memory is addresses alone.

With the emulator of tests/cuda_emulator,
SF_CUDA_EMULATOR_MEMORY=apart makes what stands for the GPU's memory shared memory, which only VmHWM counts, and only
while the emulated GPU works on it. What the driver's own context takes on a real machine is in neither then.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time


def resident(*fields):
    """MB of the process, by the names of /proc/self/status."""
    status = pathlib.Path("/proc/self/status").read_text()
    return sum(int(status.split(f"{field}:")[1].split()[0]) for field in fields) / 1024


class Watch(threading.Thread):
    """The most host memory while it runs, in MB."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self._done = 0, threading.Event()
        self.start()

    def run(self):
        while not self._done.wait(0.002):
            self.most = max(self.most, resident("RssAnon", "RssFile"))

    def stop(self):
        self._done.set()
        self.join()
        return max(self.most, resident("RssAnon", "RssFile"))


def write(path, gigabytes, layer_bytes, kind):
    """A file of equal float32 layers "layer.0", ...: all elements of layer i are i + 1."""
    import scaffolding as sf

    layers = max(1, round(gigabytes * 1e9 / layer_bytes))
    if kind == "pt":
        sf.save({f"layer.{i}": sf.full((layer_bytes // 4096, 1024), i + 1.0) for i in range(layers)}, path)
        return layers
    shape = [layer_bytes // 4096, 1024]
    header = {
        f"layer.{i}": {"dtype": "F32", "shape": shape, "data_offsets": [i * layer_bytes, (i + 1) * layer_bytes]}
        for i in range(layers)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for i in range(layers):
            f.write(sf.full((layer_bytes // 4,), i + 1.0).numpy().tobytes())
    return layers


def load(path, dtype, way):
    """Loads in this process; prints a line of JSON."""
    import scaffolding as sf

    sf.ones(1, device="cuda").cpu()
    before, watch, start = resident("RssAnon", "RssFile"), Watch(), time.perf_counter()
    place = "cpu" if way == "module" else "cuda"
    state = sf.load(path, map_location=place) if path.endswith(".pt") else sf.safetensors.load_file(path, device=place)
    if way == "module":
        module = sf.nn.ParameterList(sf.nn.Parameter(x, requires_grad=False) for x in state.values())
        state = dict(zip(state, module.to("cuda", getattr(sf, dtype) if dtype else None)))
    elif dtype:
        for name in state:
            state[name] = state[name].to(getattr(sf, dtype))
    sf.cuda.synchronize()
    seconds, most, everything = time.perf_counter() - start, watch.stop(), resident("VmHWM")
    for name, x in state.items():
        expected = float(name.split(".")[1]) + 1
        for value in (x[0, 0], x[-1, -1], x[x.shape[0] // 2, 511]):
            assert value.item() == expected, (name, value.item())
    size = os.path.getsize(path)
    said = {
        "before": before,
        "most": most,
        "everything": everything,
        "seconds": seconds,
        "bytes": size,
        "device": sf.cuda.get_device_name(),
    }
    print(json.dumps(said))


def run_tora(folder, size, max_vram):
    """Loads and calls the pipeline in this process; prints a line of JSON."""
    import scaffolding as sf
    from scaffolding.diffusion import DiffusionPipeline

    frames, height, width = map(int, size.split(","))
    sf.ones(1, device="cuda").cpu()
    before, watch, start = resident("RssAnon", "RssFile"), Watch(), time.perf_counter()
    if max_vram:
        pipe = DiffusionPipeline.from_pretrained(folder, torch_dtype=sf.bfloat16)
        sizes = {"num_frames": frames, "height": height, "width": width}
        pipe.apply_memory_plan(pipe.memory_plan(max_vram=max_vram, device="cuda", **sizes))
    else:
        pipe = DiffusionPipeline.from_pretrained(folder, torch_dtype=sf.bfloat16, device="cuda")
    sf.cuda.synchronize()
    loaded, most, everything = time.perf_counter() - start, watch.stop(), resident("VmHWM")
    weights, watch = sf.cuda.memory_allocated(), Watch()
    pipe.set_progress_bar_config(disable=True)
    way = f"{width // 8},{height // 8} {width // 2},{height // 4} {width * 7 // 8},{height * 7 // 8}"
    call = {"num_frames": frames, "height": height, "width": width, "num_inference_steps": 1, "seed": 0}
    clip = pipe("the cat", trajectories=way, output_type="sf_tensor", **call).frames[0]
    sf.cuda.synchronize()
    assert (len(clip), tuple(clip[0].shape), clip[0].device.type) == (frames, (height, width, 3), "cuda")
    said = {
        "before": before,
        "most": most,
        "everything": everything,
        "seconds": loaded,
        "bytes": weights,
        "device": sf.cuda.get_device_name(),
        "most_of_call": watch.stop(),
        "everything_of_call": resident("VmHWM"),
        "gpu": sf.cuda.max_memory_allocated() / 1e6,
        "report": str(pipe.memory_report()) if max_vram else "",
    }
    print(json.dumps(said))


def measured(path, dtype=None, way="file", tora=None, max_vram=None):
    """What load says in a process of its own."""
    command = [sys.executable, __file__, "--load", path, "--way", way] + (["--dtype", dtype] if dtype else [])
    command += ["--tora", tora] if tora else []
    command += ["--max-vram", str(max_vram)] if max_vram else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gigabytes", type=float, default=1)
    arguments.add_argument("--layer-mb", type=int, default=256)
    arguments.add_argument("--kind", choices=["safetensors", "pt"], default="safetensors")
    arguments.add_argument("--way", choices=["file", "module"], default="file")
    arguments.add_argument("--dtype", help="converted on the GPU, such as bfloat16")
    arguments.add_argument("--folder", help="where the file is written; the system's temporary folder otherwise")
    arguments.add_argument("--load", help=argparse.SUPPRESS)
    arguments.add_argument("--tora", metavar="FRAMES,HEIGHT,WIDTH", help="a whole pipeline and a clip of that size")
    arguments.add_argument("--max-vram", type=float, help="of --tora: GB of the GPU that a memory plan may take")
    a = arguments.parse_args()
    if a.load:
        return run_tora(a.load, a.tora, a.max_vram) if a.tora else load(a.load, a.dtype, a.way)
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        path = os.path.join(folder, f"model.{a.kind}")
        if a.tora:
            sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests"))
            from full_size_tora import write_tora

            path = folder
            write_tora(pathlib.Path(folder))
        else:
            write(path, a.gigabytes, a.layer_mb << 20, a.kind)
        m = measured(path, a.dtype, a.way, a.tora, a.max_vram)
    what = "Tora" if a.tora else a.kind
    print(f"{m['bytes'] / 1e9:.2f} GB of {what} to {m['device']}: {m['before']:.0f} MB of host memory before, ", end="")
    print(f"at most {m['most']:.0f} MB while it was loaded (VmHWM {m['everything']:.0f} MB), ", end="")
    print(f"{m['seconds']:.1f} s, {m['bytes'] / m['seconds'] / 1e9:.2f} GB/s")
    if a.tora:
        print(f"a clip of {a.tora}: at most {m['most_of_call']:.0f} MB of host memory ", end="")
        print(f"(VmHWM {m['everything_of_call']:.0f} MB), {m['gpu']:.0f} MB of the GPU")
        if m["report"]:
            print(m["report"])


if __name__ == "__main__":
    main()
