#!/usr/bin/env python3
"""Writes random.txt.xz: what torch's CPU generator gives for sequences of calls. Needs torch; tests read the file only.

A line `seed N` starts a sequence; every other line is one call on that generator:
    name arguments... | first_index bits bits ...
bits are the values' bytes as hexadecimal integers, from first_index to the end (long results: the last 40 only).
`state` has a 64-bit FNV-1a hash of get_state(). ops/random/random_test.cpp repeats the calls.
"""

import pathlib

import torch
from packed import write_text

DTYPES = {
    t: getattr(torch, t)
    for t in ("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool")
}
UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
KEPT = 40


def weights(dtype, *shape):
    n = torch.Size(shape).numel()
    return (torch.arange(n) * 37 % 11).to(dtype).div(16).reshape(shape) + torch.tensor(0.0625, dtype=dtype)


def call(g, name, *args):
    kind = DTYPES.get(args[0]) if args else None

    def number(s):
        return float(s) if "." in s else int(s)

    rest = [number(a) if a[-1].isdigit() else a for a in args[1:]]
    if name in ("rand", "randn"):
        return getattr(torch, name)(rest[0], dtype=kind, generator=g)
    if name == "randint":
        return torch.randint(rest[1], rest[2], (rest[0],), dtype=kind, generator=g)
    if name == "randperm":
        return torch.randperm(rest[0], dtype=kind, generator=g)
    if name == "uniform":
        return torch.empty(rest[0], dtype=kind).uniform_(rest[1], rest[2], generator=g)
    if name == "normal":
        return torch.empty(rest[0], dtype=kind).normal_(rest[1], rest[2], generator=g)
    if name == "normal_tensors":
        return torch.normal(weights(kind, rest[0]), weights(kind, 3, 1), generator=g)
    if name == "random":
        return torch.empty(rest[0], dtype=kind).random_(*rest[1:], generator=g)
    if name == "random_from":
        return torch.empty(rest[0], dtype=kind).random_(rest[1], None, generator=g)
    if name == "exponential":
        return torch.empty(rest[0], dtype=kind).exponential_(rest[1], generator=g)
    if name == "bernoulli":
        return torch.empty(rest[0], dtype=kind).bernoulli_(rest[1], generator=g)
    if name == "bernoulli_tensor":
        return torch.bernoulli(weights(kind, rest[0]), generator=g)
    if name == "multinomial":
        return torch.multinomial(weights(kind, rest[0], rest[1]), rest[2], bool(rest[3]), generator=g)
    if name == "permuted_randn":  # a transposed tensor is filled in memory order, one value at a time
        return torch.empty(rest[0], rest[1], dtype=kind).t().normal_(generator=g)
    if name == "sliced_rand":
        return torch.zeros(rest[0], 2 * rest[1], dtype=kind)[:, ::2].uniform_(generator=g)
    if name == "channels_last_randn":
        return (
            torch.empty(2, 3, rest[0], rest[0], dtype=kind).to(memory_format=torch.channels_last).normal_(generator=g)
        )
    raise ValueError(name)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def sequences():
    sizes = (1, 15, 16, 17, 100, 4096)
    for seed in (0, 42, 2**40 + 3):
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            yield f"seed {seed}"
            for n in sizes:
                yield f"rand {dtype} {n}"
                yield f"randn {dtype} {n}"
            yield "state"
    yield "seed 7"  # the cached normal lives on across other calls
    for line in (
        "randn float32 1",
        "state",
        "rand float32 3",
        "randn float64 16",
        "randn float32 1",
        "state",
        "randn bfloat16 3",
        "randint int64 5 0 10",
        "randn float64 2",
        "state",
    ):
        yield line
    yield "seed 11"
    for dtype in ("int64", "int32", "int16", "uint8", "float32", "float16", "bfloat16", "float64"):
        yield f"randint {dtype} 20 0 100"
    for low, high in (
        (-5, 5),
        (0, 2**28 - 1),
        (0, 2**28),
        (-(2**31), 2**31),
        (0, 2**32),
        (-7, 2**40),
        (-(2**62), 2**62),
        (-(2**63), 2**63 - 1),
    ):
        yield f"randint int64 6 {low} {high}"
    yield "randint bool 20 0 2"
    yield "randint int8 20 -128 128"
    for dtype in DTYPES:
        yield f"random {dtype} 12"
    yield "random int32 5 3"
    yield "random_from int64 5 -9223372036854775808"
    yield "random_from int32 5 -3"
    yield "random_from int64 5 2"
    for n in (0, 1, 2, 10, 1000, 40000):
        yield f"randperm int64 {n}"
    yield "randperm int32 30"
    yield "randperm float32 30"
    yield "seed 13"
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for low, high in ((-0.3, 0.7), (-1.0, 1.0), (2.5, 2.5)):
            yield f"uniform {dtype} 50 {low} {high}"
        for n in (7, 50):
            yield f"normal {dtype} {n} 1.5 0.25"
        yield f"normal_tensors {dtype} 5"
        yield f"exponential {dtype} 20 1.5"
        yield f"bernoulli {dtype} 50 0.3"
        yield f"bernoulli_tensor {dtype} 50"
        yield f"multinomial {dtype} 3 20 1 0"
        yield f"multinomial {dtype} 3 20 20 0"
        yield f"multinomial {dtype} 2 700 5 0"
        yield f"multinomial {dtype} 3 20 30 1"
        yield f"permuted_randn {dtype} 5 7"
        yield f"sliced_rand {dtype} 3 5"
        yield f"channels_last_randn {dtype} 4"
    yield "bernoulli bool 30 0.5"
    yield "bernoulli uint8 30 0.9"
    yield "uniform bfloat16 4096 0.0 1.0"
    yield "state"


def main():
    lines = [f"# torch {torch.__version__}, made by make_golden_random.py"]
    g = torch.Generator()
    for line in sequences():
        name, *args = line.split()
        if name == "seed":
            g.manual_seed(int(args[0]))
            lines.append(line)
        elif name == "state":
            lines.append(f"state | 0 {fnv(g.get_state().numpy().tobytes()):x}")
        else:
            y = call(g, name, *args).contiguous().flatten()
            kept = y[max(0, y.numel() - KEPT) :]
            bits = kept.view(UNSIGNED[y.element_size()]).tolist()
            lines.append(f"{line} | {y.numel() - kept.numel()} " + " ".join(f"{b:x}" for b in bits))
    path = pathlib.Path(__file__).with_name("random.txt.xz")
    write_text(path, "\n".join(lines) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
