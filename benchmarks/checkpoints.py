"""Reading checkpoint files: time and resident memory beside `cat` and, where it is installed, PyTorch.

    PYTHONPATH=build/python python benchmarks/checkpoints.py [--torch-python PYTHON] [--megabytes 1024]

Each row in a process of its own, five times, the best: "MB/s" is the file's size over the time until every tensor has been copied
once into memory that is there already, with the file in the page cache. "resident" is what opening and reading added.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def sparse_shards(folder):
    """5 GB in two files that are all hole; returns the index."""
    weight_map = {}
    for shard in (1, 2):
        file, size, header = f"model-0000{shard}-of-00002.safetensors", 4_000_000, {}
        for i in range(625):
            header[f"{shard}.{i}"] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [i * size, (i + 1) * size]}
            weight_map[f"{shard}.{i}"] = file
        text = json.dumps(header).encode()
        with open(folder / file, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            f.truncate(8 + len(text) + 625 * size)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 5_000_000_000}, "weight_map": weight_map}))
    return index


def timed(call):
    before, start = resident(), time.perf_counter()
    kept = call()
    took = time.perf_counter() - start
    return {"seconds": took, "resident": resident() - before, "kept": bool(kept)}


def child(row, path):
    """One row, in this process: answers as JSON."""
    if row.startswith("ours"):
        import scaffolding as torch
        from scaffolding.safetensors import load_file, safe_open

        load = torch.load
    else:
        import torch
        from safetensors import safe_open
        from safetensors.torch import load_file

        def load(path):
            return torch.load(path, mmap=True, weights_only=True)

    torch.set_num_threads(1)
    if row.endswith("one of 5 GB"):

        def one():
            index = json.loads(pathlib.Path(path).read_text())["weight_map"]
            with safe_open(pathlib.Path(path).parent / index["2.300"], "pt") as f:
                return f.get_tensor("2.300").sum()

        if row.startswith("ours"):
            return timed(lambda: torch.io.open_checkpoint(path).get_tensor("2.300").sum())
        return timed(one)
    read = load_file if row.endswith("safetensors") else load
    there = {name: torch.empty(t.shape) for name, t in read(path).items()}
    for t in there.values():
        t.fill_(1)

    def copy():
        for name, t in read(path).items():
            there[name].copy_(t)
        return there

    copy()
    return min((timed(copy) for _ in range(3)), key=lambda r: r["seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--child", nargs=2, metavar=("ROW", "PATH"))
    options = parser.parse_args()
    if options.child:
        return print(json.dumps(child(*options.child)))
    import scaffolding as sf

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        index = sparse_shards(folder)
        tensors = {str(i): sf.full((1 << 20,), float(i)) for i in range(options.megabytes // 4)}
        sf.save(tensors, folder / "x.safetensors")
        sf.save(tensors, folder / "x.pt")
        size = (folder / "x.safetensors").stat().st_size
        del tensors

        def cat():
            start = time.perf_counter()
            subprocess.run(f"cat {folder}/x.safetensors > /dev/null", shell=True, check=True)
            return {"seconds": time.perf_counter() - start, "resident": 0}

        def ask(python, row, path):
            command = [python, __file__, "--child", row, str(path)]
            return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        rows = {"cat > /dev/null": cat}
        for who, python in (("ours", sys.executable), ("peer", options.torch_python)):
            if python:
                for what, path in (("one of 5 GB", index), ("all of .safetensors", folder / "x.safetensors"), ("all of .pt", folder / "x.pt")):
                    rows[f"{who}, {what}"] = lambda row=f"{who}, {what}", python=python, path=path: ask(python, row, path)
        best = {row: [] for row in rows}
        for _ in range(5):  # in turn, so that what else the machine does falls on all alike
            for row, run in rows.items():
                best[row].append(run())
        for row, results in best.items():
            result = min(results, key=lambda r: r["seconds"])
            rate = "" if row.endswith("5 GB") else f"{size / result['seconds'] / 1e6:8.0f} MB/s"
            print(f"{row:28s} {result['seconds'] * 1e3:9.2f} ms {rate:>14s}  resident {result['resident'] / 1e6:8.1f} MB")


if __name__ == "__main__":
    main()
