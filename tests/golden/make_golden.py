"""Writes tests/golden/ops/<op>.safetensors.xz: what torch computes for the samples of every op's test.

    build/dev/scaffolding_tests --dump-samples build/golden
    python tests/golden/make_golden.py build/golden          # a Python that has torch; `make golden` does both

Each sample's `like` is evaluated: an expression over the op's argument names, or a dotted path that is called with them
as keywords. The fixture holds the outputs, the gradients of sum(output * c) for the fixed cotangents c of
ops/op_check.cpp, the sample's hash and torch's version. A fixture whose samples did not change is left as it is; --all
makes every one anew. Only op tests read these files; nothing else in the repository needs torch.
"""

import argparse
import json
import math
import pathlib
import re
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F
from packed import LONG_SUFFIX as SUFFIX
from packed import unpacked, write_packed

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
KEPT = 256  # numbers of a tensor
REAL = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


# ---- safetensors, so that the bytes depend on the content alone


def read_header(path):
    raw = unpacked(path) if path.name.endswith(SUFFIX) else path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def load(path):
    header, data = read_header(path)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = (
            torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[entry["dtype"]])
            if end > begin
            else torch.empty(0, dtype=DTYPES[entry["dtype"]])
        )
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def shortened(t):
    """Doubles to 36 bits after the point, of which the rest would not compress: tests ask for 1e-10."""
    if t.dtype != torch.float64:
        return t
    bits = (t.view(torch.int64) + (1 << 15)) & ~((1 << 16) - 1)
    return torch.where(t.isfinite(), bits, t.view(torch.int64)).view(torch.float64)


def save(path, tensors, metadata):
    header, blobs, at = {"__metadata__": dict(sorted(metadata.items()))}, [], 0
    for name, t in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        blob = shortened(t.contiguous()).numpy().tobytes() if t.numel() else b""
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write_packed(path, struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- samples


def decode(value, tensors, leaves):
    """One argument. Floating tensors become leaves, appended in the order of the arguments."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return value
    if "list" in value:
        return [decode(v, tensors, leaves) for v in value["list"]]
    if "float" in value:
        return float.fromhex(value["float"])
    if "dtype" in value:
        return getattr(torch, value["dtype"])
    if "device" in value:
        return torch.device(value["device"])
    source = tensors[value["tensor"]]
    x = torch.empty_strided(source.shape, value["strides"], dtype=source.dtype)
    x.copy_(source)
    if x.dtype in REAL:
        leaves.append(x)
    return x


def call(like, args):
    names = {a["name"]: a["decoded"] for a in args}
    root = like.split(".")[0]
    if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)+", like) or root in names:
        return eval(like, {"torch": torch, "F": F, "math": math, **names})  # noqa: S307: text of our own source files
    fn = torch
    for part in like.split(".")[1:]:
        fn = getattr(fn, part)
    # torch refuses some keywords it has defaults for (dim=None), and numbers where it wants tensors.
    fewer = {a["name"]: a["decoded"] for a in args if not (a["is_default"] and a["decoded"] is None)}
    fewest = {a["name"]: a["decoded"] for a in args if not a["is_default"]}
    wrapped = {
        a["name"]: torch.tensor(a["decoded"])
        if a["is_tensor"] and isinstance(a["decoded"], (int, float))
        else a["decoded"]
        for a in args
        if not a["is_default"]
    }
    # One number for all dimensions, which we keep as a list of one.
    single = {n: v[0] if isinstance(v, list) and len(v) == 1 and isinstance(v[0], int) else v for n, v in fewer.items()}
    error = None
    for keywords in (names, fewer, fewest, wrapped, single):
        try:
            return fn(**keywords)
        except (TypeError, RuntimeError) as e:
            error = error or e
    raise error


def as_list(result):
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [r for r in result if isinstance(r, torch.Tensor)]
    return []


def cotangents(outputs):
    """The same numbers as cotangents() in ops/op_check.cpp."""
    s, mask, made = 88172645463325252, (1 << 64) - 1, []
    for y in outputs:
        values = []
        for _ in range(y.numel()):
            s ^= (s << 13) & mask
            s ^= s >> 7
            s ^= (s << 17) & mask
            values.append((s >> 11) * 2.0**-52 - 1)
        made.append(torch.tensor(values, dtype=torch.float64).reshape(y.shape))
    return made


def kept(t):
    """float64 or int64 of any shape. The same numbers as kept() in ops/op_golden_test.cpp."""
    flat = t.reshape(-1)
    n = flat.numel()
    if n <= KEPT:
        return flat.contiguous()
    if not bool((flat.double().abs() < 2.0**40).all()):
        return flat[:: (n + KEPT - 1) // KEPT].contiguous()
    u = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    u = (u ^ (u >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    signed = flat * torch.from_numpy(np.where(u >> np.uint64(63), -1, 1))
    return F.pad(signed, (0, -n % KEPT)).reshape(-1, KEPT).sum(0)


def stored(t):
    if t.dtype in REAL or t.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        return kept(t.detach().to(torch.float64))
    return kept(t if t.dtype == torch.bool and t.numel() <= KEPT else t.to(torch.int64))


def evaluate(like, sample, tensors):
    key, made, facts = f"sample.{sample['index']}", {}, {}
    leaves = []
    for a in sample["args"]:
        a["decoded"] = decode(a["value"], tensors, leaves)
    if sample["gradients"]:
        for leaf in leaves:
            leaf.requires_grad_()
    outputs = as_list(call(like, sample["args"]))
    for i, y in enumerate(outputs):
        made[f"{key}.out.{i}"] = stored(y)
        facts[f"{key}.out.{i}"] = f"{str(y.dtype).removeprefix('torch.')} {list(y.shape)}"
    facts[key] = sample["hash"]
    if sample["gradients"] and leaves:
        pairs = [
            (y, c) for y, c in zip(outputs, cotangents(outputs)) if y.dtype in REAL and y.requires_grad and y.numel()
        ]
        if pairs:
            loss = sum((y.to(torch.float64) * c).sum() for y, c in pairs)
            for i, g in enumerate(torch.autograd.grad(loss, leaves, allow_unused=True)):
                if g is not None:
                    made[f"{key}.grad.{i}"] = stored(g)
    return made, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=pathlib.Path, help="folder that scaffolding_tests --dump-samples wrote")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "ops")
    parser.add_argument("--all", action="store_true", help="also make fixtures whose samples did not change")
    parser.add_argument("--op", action="append", help="only this op; may be repeated")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the order of sums, and so the last bits, depend on it
    failures, made, wanted = [], 0, set()
    for path in sorted(options.samples.glob("*.json")):
        op = json.loads(path.read_text())
        wanted.add(op["op"])
        if options.op and op["op"] not in options.op:
            continue
        target = options.out / f"{op['op']}{SUFFIX}"
        hashes = {f"sample.{s['index']}": s["hash"] for s in op["samples"]}
        if target.exists() and not options.all:
            old = read_header(target)[0].get("__metadata__", {})
            if {k: v for k, v in old.items() if re.fullmatch(r"sample\.\d+", k)} == hashes:
                continue
        tensors, all_made, all_facts = load(path.with_suffix(".safetensors")), {}, {"torch": torch.__version__}
        try:
            for sample in op["samples"]:
                where = f"sample {sample['index']}"
                some, facts = evaluate(op["like"], sample, tensors)
                all_made.update(some)
                all_facts.update(facts)
        except Exception as e:  # every op's trouble is reported in one run
            failures.append(
                f"{op['op']}, {where}: {op['like']}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
            )
            continue
        save(target, all_made, all_facts)
        made += 1
    if not options.op:
        for old in options.out.glob(f"*{SUFFIX}"):
            if old.name.removesuffix(SUFFIX) not in wanted:
                old.unlink()
    total = sum(f.stat().st_size for f in options.out.glob(f"*{SUFFIX}"))
    print(
        f"{made} fixtures made with torch {torch.__version__}; {len(list(options.out.glob('*' + SUFFIX)))} "
        f"fixtures, {total / 1e6:.2f} MB"
    )
    for f in failures:
        print(f"FAILED {f}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
