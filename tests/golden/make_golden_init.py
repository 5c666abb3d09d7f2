#!/usr/bin/env python3
"""Writes init.txt.xz: what torch.nn.init makes of tensors. Needs torch; tests read the file only.

A line is one call after manual_seed(seed), on a tensor filled with 3; a shape that ends in t is a transposed view,
so not contiguous:
    seed function dtype shape arguments... | first_index value value ...
Values are in row-major order, from first_index on (long results: the last 64 only). nn/init_test.cpp repeats the calls.
"""

import pathlib

import torch
from packed import write_text

KEPT = 64
CALLS = """
uniform_ float32 5x7 -0.5 2
uniform_ bfloat16 40
normal_ float32 5x7 1 0.5
normal_ float32 5x7t 1 0.5
normal_ float64 20
normal_ float16 4x4
trunc_normal_ float32 6x50
trunc_normal_ float32 100 0 0.02 -0.04 0.04
trunc_normal_ float32 3x40t 0.5 1 -0.5 1
trunc_normal_ float64 100 0 1 -1 1
trunc_normal_ bfloat16 100 0 1 -1 1
trunc_normal_ float16 100
trunc_normal_ float32 100 0 1 2 3
trunc_normal_ float32 9x9t 0 1 -0.1 0.1
trunc_normal_ float64 50 0 1 -6 -4
trunc_normal_ bfloat16 60 0 1 1.5 2
constant_ float32 3 0.25
constant_ int64 3 4
ones_ float16 3
zeros_ float32 2x2
eye_ float32 3x5
eye_ float64 5x3t
dirac_ float32 4x3x3
dirac_ float32 3x4x2x3
dirac_ float32 6x2x3x3 3
dirac_ float32 2x2x2x3x1
xavier_uniform_ float32 6x5
xavier_uniform_ float32 6x5x3x3 2.5
xavier_uniform_ float32 0x4
xavier_normal_ float32 6x5
xavier_normal_ float64 2x3x4 0.1
kaiming_uniform_ float32 6x5
kaiming_uniform_ float32 7x5 2.2360679774997896
kaiming_uniform_ float32 6x5x3x3 0 fan_out relu
kaiming_uniform_ bfloat16 6x5 0.1
kaiming_uniform_ float32 3x0
kaiming_normal_ float32 6x5
kaiming_normal_ float32 64x3x7x7 0 fan_out relu
kaiming_normal_ float32 6x5 0 FAN_IN selu
kaiming_normal_ float64 6x5x2x2x2 0.3 fan_out leaky_relu
orthogonal_ float32 5x5
orthogonal_ float32 8x3
orthogonal_ float32 3x8 1.5
orthogonal_ float32 1x6
orthogonal_ float32 6x1
orthogonal_ float32 4x2x3x3
orthogonal_ float64 70x40 2
orthogonal_ float64 40x100
orthogonal_ float64 33x33
orthogonal_ float64 6x5t
sparse_ float32 10x4 0.3
sparse_ float32 7x3 0.5 0.1
sparse_ float32 5x3t 0
""".split("\n")


def argument(text):
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def main():
    lines = [f"# torch {torch.__version__}, made by make_golden_init.py"]
    for seed, call in enumerate(filter(None, CALLS)):
        name, dtype, shape, *arguments = call.split()
        sizes = [int(n) for n in shape.rstrip("t").split("x")]
        x = torch.full(sizes, 3, dtype=getattr(torch, dtype), requires_grad=dtype != "int64")
        x = x.detach().t() if shape.endswith("t") else x
        torch.manual_seed(seed)
        y = getattr(torch.nn.init, name)(x, *map(argument, arguments))
        assert y is x
        values = y.detach().double().contiguous().flatten().tolist()
        first = max(0, len(values) - KEPT)
        lines.append(
            f"{seed} {call} | {first} "
            + " ".join(f"{v:.17g}" if dtype == "float64" else f"{v:.9g}" for v in values[first:])
        )
    path = pathlib.Path(__file__).with_name("init.txt.xz")
    write_text(path, "\n".join(lines) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
