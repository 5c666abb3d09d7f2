"""Reading checkpoint files: time and resident memory beside `cat` and, where it is installed, PyTorch.

    PYTHONPATH=build/python python benchmarks/checkpoints.py [--torch-python PYTHON] [--megabytes 1024] [--sharded 5000]
    [--threads N]

Each row in a process of its own, in turn, the best of --rounds: "MB/s" is the files' size over the time until every
tensor has been copied once into memory that is there already, with the files in the page cache, or "cold": not in it.
"resident" is what opening and reading added. Both packages copy with all their threads, `cat` has one;
--threads 1 gives them one too.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
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


def sharded_checkpoint(folder, megabytes):
    """`megabytes` in shards of a quarter each, tensors of 16 MB; returns the index.
    One shard at a time is in memory.
    """
    import scaffolding as sf
    from scaffolding.safetensors import save_file

    per_shard, weight_map = megabytes // 64, {}
    for shard in range(4):
        tensors = {f"{shard}.{i}": sf.full((1 << 22,), float(shard + i)) for i in range(per_shard)}
        file = f"all-0000{shard + 1}-of-00004.safetensors"
        save_file(tensors, folder / file)
        weight_map |= dict.fromkeys(tensors, file)
    index = folder / "all.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 4 * per_shard << 24}, "weight_map": weight_map}))
    return index


def shards_of(index):
    return [index.parent / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]


def evict(files):
    """Takes the files out of the page cache, and nothing else."""
    for file in files:
        with open(file, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(call):
    before, start = resident(), time.perf_counter()
    kept = call()
    took = time.perf_counter() - start
    return {"seconds": took, "resident": resident() - before, "kept": bool(kept)}


def child(row, path, threads):
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

    torch.set_num_threads(threads)
    if row.endswith("one of 5 GB"):

        def one():
            index = json.loads(pathlib.Path(path).read_text())["weight_map"]
            with safe_open(pathlib.Path(path).parent / index["2.300"], "pt") as f:
                return f.get_tensor("2.300").sum()

        if row.startswith("ours"):
            return timed(lambda: torch.io.open_checkpoint(path).get_tensor("2.300").sum())
        return timed(one)
    index = pathlib.Path(path)
    files = shards_of(index) if "shards" in row else [index]
    read = load if row.endswith(".pt") else load_file
    there = {name: torch.empty(t.shape) for file in files for name, t in read(file).items()}
    for t in there.values():
        t.fill_(1)

    def copy():
        for file in files:
            for name, t in read(file).items():
                there[name].copy_(t)
        return there

    if row.endswith("cold"):
        evict(files)
        return timed(copy)
    copy()
    return min((timed(copy) for _ in range(3)), key=lambda r: r["seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    parser.add_argument("--megabytes", type=int, default=1024, help="of the single files")
    parser.add_argument(
        "--sharded",
        type=int,
        default=5000,
        metavar="MEGABYTES",
        help="of the checkpoint in four shards; 0: without these rows",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="for the files; else a temporary one")
    parser.add_argument("--child", nargs=2, metavar=("ROW", "PATH"))
    options = parser.parse_args()
    if options.child:
        return print(json.dumps(child(*options.child, options.threads)))
    import scaffolding as sf

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = pathlib.Path(folder)
        # The files in the page cache and a copy of them; the disk holds the files once.
        available = next(
            int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith("MemAvailable")
        )
        room = min(available * 2 // 5, shutil.disk_usage(folder).free // 2) // 1_000_000
        if options.sharded > room:
            print(f"{room} MB in shards instead of {options.sharded}: there is no more room")
            options.sharded = room
        index = sparse_shards(folder)
        tensors = {str(i): sf.full((1 << 20,), float(i)) for i in range(options.megabytes // 4)}
        sf.save(tensors, folder / "x.safetensors")
        sf.save(tensors, folder / "x.pt")
        del tensors
        one = [folder / "x.safetensors"]
        sizes = {}

        def cat(files, cold):
            if cold:
                evict(files)
            start = time.perf_counter()
            subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
            return {"seconds": time.perf_counter() - start, "resident": 0}

        def ask(python, row, path):
            command = [python, __file__, "--threads", str(options.threads), "--child", row, str(path)]
            return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        whole = [("all of .safetensors", folder / "x.safetensors", one), ("all of .pt", folder / "x.pt", one)]
        if options.sharded:
            shards = sharded_checkpoint(folder, options.sharded)
            whole += [
                (f"all of {options.sharded} MB in shards{cold}", shards, shards_of(shards)) for cold in ("", ", cold")
            ]
        rows = {}
        for what, _, files in whole:
            if not what.endswith(".pt"):
                rows[f"cat, {what}"] = lambda files=files, cold=what.endswith("cold"): cat(files, cold)
                sizes[what] = sum(f.stat().st_size for f in files)
        sizes["all of .pt"] = one[0].stat().st_size
        for who, python in (("ours", sys.executable), ("peer", options.torch_python)):
            if python:
                for what, path, *_ in [("one of 5 GB", index), *whole]:
                    rows[f"{who}, {what}"] = lambda row=f"{who}, {what}", python=python, path=path: ask(
                        python, row, path
                    )
        best = {row: [] for row in rows}
        for _ in range(options.rounds):  # in turn, so that what else the machine does falls on all alike
            for row, run in rows.items():
                best[row].append(run())
        for row, results in best.items():
            result = min(results, key=lambda r: r["seconds"])
            size = sizes.get(row.split(", ", 1)[1])
            rate = f"{size / result['seconds'] / 1e6:8.0f} MB/s" if size else ""
            print(
                f"{row:38s} {result['seconds'] * 1e3:9.2f} ms {rate:>14s}  resident {result['resident'] / 1e6:8.1f} MB"
            )


if __name__ == "__main__":
    main()
