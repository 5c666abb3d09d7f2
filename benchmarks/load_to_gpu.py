"""How much host memory loading a checkpoint to a GPU takes, and how fast it is.

    python benchmarks/load_to_gpu.py --gigabytes 5 --dtype bfloat16
    python benchmarks/load_to_gpu.py --gigabytes 5 --way module

Writes a checkpoint of layers of 256 MB (at most) into a temporary folder, loads it in a process of its own (--way
module: into a module on the CPU, whose memory is the file's pages, which then goes to the GPU by .to) and prints the
resident memory of that process: anonymous pages and those of files (RssAnon + RssFile), looked at every 2 ms, and the
kernel's own highest value of everything (VmHWM). With the emulator of tests/cuda_emulator,
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


def measured(path, dtype=None, way="file"):
    """What load says in a process of its own."""
    command = [sys.executable, __file__, "--load", path, "--way", way] + (["--dtype", dtype] if dtype else [])
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
    a = arguments.parse_args()
    if a.load:
        return load(a.load, a.dtype, a.way)
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        path = os.path.join(folder, f"model.{a.kind}")
        write(path, a.gigabytes, a.layer_mb << 20, a.kind)
        m = measured(path, a.dtype, a.way)
    print(
        f"{m['bytes'] / 1e9:.2f} GB of {a.kind} to {m['device']}: {m['before']:.0f} MB of host memory before, ", end=""
    )
    print(f"at most {m['most']:.0f} MB while it was loaded (VmHWM {m['everything']:.0f} MB), ", end="")
    print(f"{m['seconds']:.1f} s, {m['bytes'] / m['seconds'] / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
