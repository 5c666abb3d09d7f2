"""Convolutions, attention and quantised storage on a GPU, by cuDNN and by our own kernels: median of CUDA events around replays of a graph, random data.

    python benchmarks/gpu.py            # a table
    python benchmarks/gpu.py --benchmark   # with sf.backends.cudnn.benchmark: the fastest plan instead of the first

Without a GPU nothing is measured, and that is what it says. --tiny computes small shapes, to see that the program works (in the emulator, say).
"""

import argparse
import statistics

import scaffolding as sf
from scaffolding import cuda
from scaffolding.backends import cudnn

CALLS, REPLAYS = 10, 20


def conv(n, c, pixels, out, kernel=3):
    x = sf.randn(n, c, pixels, pixels, device="cuda", dtype=sf.bfloat16).contiguous(memory_format=sf.channels_last)
    w = sf.randn(out, c, kernel, kernel, device="cuda", dtype=sf.bfloat16).contiguous(memory_format=sf.channels_last)
    bias = sf.randn(out, device="cuda", dtype=sf.bfloat16)
    flop = 2 * n * out * c * kernel * kernel * pixels * pixels
    return flop, lambda: sf.nn.functional.conv2d(x, w, bias, padding=kernel // 2)


def attention(n, heads, queries, keys, width):
    q = sf.randn(n, queries, heads, width, device="cuda", dtype=sf.bfloat16).transpose(1, 2)
    k, v = (sf.randn(n, keys, heads, width, device="cuda", dtype=sf.bfloat16).transpose(1, 2) for _ in range(2))
    return 4 * n * heads * queries * keys * width, lambda: sf.nn.functional.scaled_dot_product_attention(q, k, v)


ROWS = [
    ("conv 3x3 320@64 b2", conv, (2, 320, 64, 320)),
    ("conv 3x3 640@32 b2", conv, (2, 640, 32, 640)),
    ("conv 3x3 1280@16 b2", conv, (2, 1280, 16, 1280)),
    ("conv 3x3 320@128 b2", conv, (2, 320, 128, 320)),
    ("conv 3x3 512@128 b1", conv, (1, 512, 128, 512)),
    ("conv 3x3 128@1024 b1", conv, (1, 128, 1024, 128)),
    ("conv_in 4 to 320@64 b2", conv, (2, 4, 64, 320)),
    ("attention h5 n4096 d64 b2", attention, (2, 5, 4096, 4096, 64)),
    ("attention h10 n4096 d64 b2", attention, (2, 10, 4096, 4096, 64)),
    ("attention h20 n1024 d64 b2", attention, (2, 20, 1024, 1024, 64)),
    ("attention h10 n4096 over 77 d64 b2", attention, (2, 10, 4096, 77, 64)),
    ("attention h24 n4096 d128 b1", attention, (1, 24, 4096, 4096, 128)),
    ("attention h8 n4096 d40 b2", attention, (2, 8, 4096, 4096, 40)),
]


def nf4(rows, cols):
    codes, absmax = sf.quantize_nf4(sf.randn(rows, cols, device="cuda"))
    small, nested = sf.quantize_blockwise(absmax - absmax.mean())
    offset, size = absmax.mean(), (rows, cols)
    return 2.5 * rows * cols, lambda: sf.dequantize_nf4(codes, small, size, sf.bfloat16, nested_absmax=nested, offset=offset)


def fp8(rows, cols):
    q, scale = sf.quantize_fp8(sf.randn(rows, cols, device="cuda"), per_row=True)
    return 3 * rows * cols, lambda: sf.dequantize_fp8(q, scale, sf.bfloat16)


def to_fp8(rows, cols):
    x = sf.randn(rows, cols, device="cuda", dtype=sf.bfloat16)
    return 3 * rows * cols, lambda: sf.quantize_fp8(x, per_row=True)


def from_host(rows, cols):
    x, y = sf.randn(rows, cols, pin_memory=True), sf.empty(rows, cols, device="cuda")
    return 4 * rows * cols, lambda: y.copy_(x, non_blocking=True)


def fp8_product(m, n, k):
    a, scale_a = sf.quantize_fp8(sf.randn(m, k, device="cuda"))
    b, scale_b = sf.quantize_fp8(sf.randn(n, k, device="cuda"))
    return 2 * m * n * k, lambda: sf.scaled_mm(a, b.t(), scale_a, scale_b)


def parameter_gradients(m, n, k):
    x, dy = (sf.randn(m, c, device="cuda", dtype=sf.bfloat16) for c in (k, n))
    w, b = sf.randn(n, k, device="cuda", dtype=sf.bfloat16, requires_grad=True), sf.zeros(n, device="cuda", dtype=sf.bfloat16, requires_grad=True)

    def backward():
        w.grad = b.grad = None
        sf.nn.functional.linear(x, w, b).backward(dy)

    return 4 * m * n * k, backward


# Name, how, sizes, unit of the rate: 1e9 operations (TFLOP/s) or bytes (GB/s) a millisecond.
STORAGE = [
    ("dequantize_nf4, double quantised", nf4, (8192, 8192), "GB/s"),
    ("dequantize_fp8, rows", fp8, (8192, 8192), "GB/s"),
    ("quantize_fp8, rows", to_fp8, (8192, 8192), "GB/s"),
    ("copy of pinned memory to the GPU", from_host, (4096, 4096), "GB/s"),
    ("scaled_mm float8 8192", fp8_product, (8192, 8192, 8192), "TFLOP/s"),
    ("linear with its parameters' gradients", parameter_gradients, (4096, 4096, 4096), "TFLOP/s"),
]
TINY_STORAGE = [(name, make, (32,) * len(sizes), unit) for name, make, sizes, unit in STORAGE]
TINY = [("conv 3x3 8@6", conv, (1, 8, 6, 8)), ("attention h2 n9 d16", attention, (1, 2, 9, 9, 16))]


def milliseconds(f):
    """Of one call, without the time to launch it: CALLS of them in a graph."""
    stream = cuda.Stream()
    with cuda.stream(stream):
        f()
        graph = cuda.CUDAGraph()
        stream.synchronize()
        with cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                f()
        graph.replay()
        times = []
        for _ in range(REPLAYS):
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) / CALLS)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    a = parser.parse_args()
    if not cuda.is_available():
        return print(f"nothing measured: {cuda.why_not()}")
    cudnn.benchmark = a.benchmark
    print(f"{cuda.get_device_name(0)}, cuDNN {cudnn.version()}, benchmark {a.benchmark}")
    print(f"{'bfloat16':36}{'cuDNN us':>12}{'TFLOP/s':>10}{'own us':>12}{'TFLOP/s':>10}")
    for name, make, sizes in TINY if a.tiny else ROWS:
        flop, f = make(*sizes)
        line = f"{name:36}"
        for enabled in (True, False):
            cudnn.enabled = enabled
            if enabled and cudnn.version() is None:
                line += f"{'missing':>12}{'':>10}"
                continue
            ms = milliseconds(f)
            line += f"{1e3 * ms:12.1f}{flop / ms / 1e9:10.1f}"
        print(line, flush=True)
    print(f"{'storage and products':40}{'us':>12}")
    for name, make, sizes, unit in TINY_STORAGE if a.tiny else STORAGE:
        work, f = make(*sizes)
        ms = milliseconds(f)
        print(f"{name:40}{1e3 * ms:12.1f}{work / ms / (1e6 if unit == 'GB/s' else 1e9):10.1f} {unit}", flush=True)


if __name__ == "__main__":
    main()
