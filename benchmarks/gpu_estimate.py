"""What a pass of a network would take on an H200, by counting: benchmarks/gpu_floor.py --estimate prints it.

A model, not a measurement. Of each call of the dry emulator it takes

- products and convolutions (as products of pixels, channels and taps): cycles of a multiprocessor for the tiles of the
  best of a few shapes, in whole rounds over all multiprocessors, as ops/matmul/wgmma_product.cu chooses its own by,
  times what libraries were measured to take more (OVER);
- attention: products and exponentials one after the other (attention_by_warpgroups), its gradient as 2.8 of them;
- all else: bytes by the measured rate of a copy, times OVER;
- NODE for every node of the graph; with SF_CUDA_PDL=on DEPENDENT_NODE for those that may start early behind such.

OVER was set on one network, SDXL's UNet (29.2 ms on an H200); the others that were measured there say how far the model
can be believed: it prints both.
"""

import math
import re

FLOPS, BANDWIDTH = 785e12, 4.25e12  # one H200: measured
FLOAT8_FLOPS = 1450e12  # what published kernels reach on this generation; not measured here
PROCESSORS, CLOCK = 132, 1.452e9  # the clock of FLOPS
LIBRARY_TILES = ((128, 256), (256, 128), (128, 128), (64, 128))
OUR_TILES = ((128, 256), (128, 160), (64, 160), (128, 128), (128, 80), (64, 80))
OVER = {
    "gemm": 1.0,
    "linear_add": 1.1,  # cuBLASLt's way with a residual and a bias
    "convolution": 1.06,
    "attention": 0.85,  # cuDNN's beside our own count
    "attention_backward": 2.8 * 0.85,
    "norm": 1.57,  # layer_norm [8192, 640]: 9.1 us
    "elementwise": 1.1,
}
GROUP_NORM_START = 10e-6  # its reduction between two passes: [2, 320, 128, 128] 36 us
# Measured on an H200 in November 2026 (docs/internals/cuda.md), with SF_CUDA_WGMMA and SF_CUDA_PDL off: milliseconds.
MEASURED = {
    "UNet SD2.1 b2 64x64": 5.3,
    "UNet SDXL b2 128x128": 29.2,
    "UNet SDXL b2 128x128, float8": 28.2,
    "VAE decode 1024": 20.5,
    "training SD2.1 b16": 103.0,
    "group_norm + SiLU [2, 320, 128, 128]": 0.036,
}


def product(m, n, k, tiles=LIBRARY_TILES, pieces=(1, 2, 4, 8)):
    """The least seconds of a product [m, k] [k, n] of 16-bit numbers, and (rows, columns) of its tile with the blocks
    that share columns of it. pieces: in how many parts k may be summed."""

    def cycles(rows, columns, cluster, split):
        step = max(rows * columns / 32, (rows + columns / cluster) * 128 / 48)
        count = -(-m // (rows * cluster)) * -(-n // columns) * split
        joined = 0 if split == 1 else 9 * columns + 1500  # parts are written and read once more
        return -(-count // (PROCESSORS // cluster)) * (step * -(-k // (64 * split)) + 9 * columns) + 1500 + joined

    found = min(((*t, cluster, s) for t in tiles for cluster in (1, 2) for s in pieces), key=lambda t: cycles(*t))
    return cycles(*found) / CLOCK, found[:3]


def by_warpgroups(m, n, k):
    """The same of our own kernels (ops/matmul/wgmma_product.cu, which chooses its tiles by this count)."""
    return product(m, n, k, OUR_TILES, pieces=(1,))


def attention_by_warpgroups(heads, queries, keys, width):
    """Seconds of our own attention (ops/attention/attention_wgmma.cuh): a multiprocessor makes 2048 products of 16-bit
    numbers a cycle and 16 exponentials, one after the other: so counted, published kernels of this kind
    (FlashAttention-3, heads of 64, 128 and 256, long sequences) come out at 494, 659 and 791 TFLOP/s of 989 where 497,
    648 and 756 were measured."""
    columns = next(w for w in (48, 64, 80, 128, 160, 256) if width <= w)
    of_tile, of_keys = 192 if columns <= 80 else 128, 96 if columns in (80, 160) else 128 if columns <= 128 else 64
    steps = -(-keys // of_keys)
    cycles = of_tile * of_keys * (2 * columns / 2048 + 1 / 16) * steps
    start = 1500 + of_tile * columns * 4 / 48  # the first copies; queries and results
    tiles = heads * -(-queries // of_tile)
    return (-(-tiles // PROCESSORS) * (cycles + of_tile * columns * 4 / 48) + start) / CLOCK


def sizes(event):
    return [[int(n) for n in found.split(", ")] for found in re.findall(r"\[([\d, ]+)\]", event.input_shapes)]


def of_product(event):
    """A linear layer's product, its gradient of weights, or a batch of products."""
    *batch, m, k = sizes(event)[0]
    n = round(event.flops / (2 * math.prod(batch) * m * k))
    if event.key == "linear_gradient":  # summed over rows
        m, k = k, m
    share = FLOPS / FLOAT8_FLOPS if event.key == "scaled_product" else 1
    if event.provider == "wgmma":
        return share * by_warpgroups(m, n, k)[0]
    return share * OVER.get(event.key, OVER["gemm"]) * product(math.prod(batch) * m, n, k)[0]


def of_convolution(event):
    """As a product: its pixels, the channels that come out, taps of the channels that go in."""

    def pixels(shape):
        return shape[0] * shape[2] * shape[3]

    _, second, third = [s for s in sizes(event) if len(s) == 4][:3]
    if event.key == "conv_forward":  # input, weight, result behind a bias
        m, n, k = pixels(sizes(event)[-1]), second[0], math.prod(second[1:])
    elif event.key == "conv_backward_data":  # gradient, weight, gradient of the input
        m, n, k = pixels(third), second[1], second[0] * second[2] * second[3]
    else:  # input, gradient, gradient of the weight
        m, n, k = math.prod(third[1:]), third[0], pixels(second)
    return OVER["convolution"] * product(m, n, k)[0]


def seconds(event):
    """Of a call, without its node."""
    moved, key = event.bytes / BANDWIDTH, event.key
    if key in ("gemm", "linear_add", "linear_gradient", "gated_linear", "scaled_product"):
        return max(of_product(event), moved)
    if key.startswith("conv_"):
        return max(of_convolution(event), moved)
    if key in ("attention", "attention_backward") and event.flops:
        (b, heads, queries, width), (_, _, keys, _) = sizes(event)[:2]
        over = 1 if event.provider == "wgmma" and key == "attention" else OVER[key]
        return max(over * attention_by_warpgroups(b * heads, queries, keys, width), moved)
    if "norm" in key:
        return moved * OVER["norm"] + (GROUP_NORM_START if key.startswith("group_norm") else 0)
    return moved * OVER["elementwise"]
