"""The rows of scaffolding_bench in PyTorch, each as a user who knows PyTorch would write it. Needs torch;
see serve.py.
"""

import importlib.util
import itertools
import math
import os
import sys
import time

import dataloader
import torch
import torch.nn.functional as F
import training
from serve import main

ROWS = {}
LEVEL3_CACHE_SIZE = 194  # glibc's _SC_LEVEL3_CACHE_SIZE, a name that Python does not have
QUICK = "--quick" in sys.argv
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
nhwc = torch.channels_last


def row(name, prepare, **extra):
    ROWS[name] = (prepare, extra)


def random(*shape, dtype, grad=False, layout=torch.contiguous_format):
    return torch.randn(shape).to(dtype).contiguous(memory_format=layout).requires_grad_(grad)


def without_grad(call):
    def run():
        with torch.no_grad():
            call()

    return run


def gemm(n, dtype, op):
    a, b = random(n, n, dtype=dtype), random(n, n, dtype=dtype)
    return without_grad(lambda: op(a, b))


def two_layouts(dtype, op):
    x, y = random(8, 320, 16, 16, dtype=dtype), random(8, 320, 16, 16, dtype=dtype, layout=nhwc)
    return without_grad(lambda: op(x, y))


def numbers(op):
    x = torch.randint(0, 1000, (1000000,))
    return lambda: op(x)


def square(op, dtype):
    x, i = random(1024, 1024, dtype=dtype), torch.randperm(1024)
    return without_grad(lambda: op(x, i))


def conv(channels, pixels, dtype, backward):
    x = random(1, channels, pixels, pixels, dtype=dtype, grad=backward, layout=nhwc)
    w = random(channels, channels, 3, 3, dtype=dtype, grad=backward, layout=nhwc)
    b = random(channels, dtype=dtype, grad=backward)
    if not backward:
        return without_grad(lambda: F.conv2d(x, w, b, padding=1))
    dy = random(1, channels, pixels, pixels, dtype=dtype, layout=nhwc)
    return lambda: torch.autograd.grad(F.conv2d(x, w, b, padding=1), (x, w, b), dy)


def conv_3d(which, kernel, channels, frames, side, padding, stride, dtype):
    """`which` of output, gradient of input and gradient of weight. In the memory format that is the faster one."""
    best = None
    for layout in (torch.channels_last_3d, torch.contiguous_format):
        x = random(1, channels, frames, side, side, dtype=dtype, grad=which == "input", layout=layout)
        w = random(channels, channels, *kernel, dtype=dtype, grad=which == "weight")
        b = random(channels, dtype=dtype)
        options = dict(padding=(padding, kernel[1] // 2, kernel[2] // 2), stride=(1, stride, stride))
        if which == "output":
            call = without_grad(lambda x=x, w=w, b=b: F.conv3d(x, w, b, **options))
        else:
            y = F.conv3d(x, w, **options)
            dy = random(*y.shape, dtype=dtype, layout=layout)
            wanted = x if which == "input" else w
            call = lambda y=y, dy=dy, wanted=wanted: torch.autograd.grad(y, wanted, dy, retain_graph=True)  # noqa: E731
        took = []
        for _ in range(1 if QUICK else 3):
            start = time.perf_counter()
            call()
            took.append(time.perf_counter() - start)
        if best is None or min(took) < best[0]:
            best = min(took), call
    return best[1]


def attention(heads, length, dim, keys, dtype, backward):
    q, k, v = (random(1, heads, n, dim, dtype=dtype, grad=backward) for n in (length, keys, keys))
    if not backward:
        return without_grad(lambda: F.scaled_dot_product_attention(q, k, v))
    y, dy = F.scaled_dot_product_attention(q, k, v), random(1, heads, length, dim, dtype=dtype)
    return lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)


def clip(dtype):
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_attention_heads=12)
    model, ids = CLIPTextModel(config).to(dtype).eval(), torch.randint(0, 49406, (2, 77))
    return without_grad(lambda: model(ids))


def in_turn(prepare, numel, dtype):
    """Calls on arrays that fill four times the last cache, each holding its output:
    what scaffolding_bench does for such rows (bench.h).
    """
    cold = min(4 * max(os.sysconf(LEVEL3_CACHE_SIZE), 32 << 20), 1 << 30)
    calls = [prepare() for _ in range(1 if QUICK else max(2, -(-cold // (2 * numel * dtype.itemsize))))]
    outputs, order = [None] * len(calls), itertools.count()

    def run():
        i = next(order) % len(calls)
        outputs[i] = calls[i]()

    return without_grad(run)


def group_norm_silu(dtype, layout):
    def prepare():
        x, w, b = random(2, 320, 64, 64, dtype=dtype, layout=layout), random(320, dtype=dtype), random(320, dtype=dtype)
        return lambda: F.silu(F.group_norm(x, 32, w, b))

    return in_turn(prepare, 2 * 320 * 64 * 64, dtype)


def layer_norm(dtype):
    def prepare():
        x, w, b = random(8192, 640, dtype=dtype), random(640, dtype=dtype), random(640, dtype=dtype)
        return lambda: F.layer_norm(x, (640,), w, b)

    return in_turn(prepare, 8192 * 640, dtype)


def unary(op, shape, dtype):
    def prepare():
        x = random(*shape, dtype=dtype)
        return lambda: op(x)

    return in_turn(prepare, math.prod(shape), dtype)


def gate(dtype, compiled):
    def chain(x, a, b, c):
        return F.silu(x * a + b) * c

    def prepare():
        x, a, b, c = (random(*shape, dtype=dtype) for shape in ((8192, 1024), (1024,), (1024,), (1024,)))
        call = torch.compile(chain) if compiled else chain
        return lambda: call(x, a, b, c)

    return in_turn(prepare, 8192 * 1024, dtype)


def mlp(dtype):
    x, w1, b1, w2, b2 = (
        random(*shape, dtype=dtype, grad=True) for shape in ((512, 384), (1536, 384), (1536,), (384, 1536), (384,))
    )
    return lambda: F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2).sum().backward()


def recurrent(layer, gradients):
    layer, x = layer(256, 256), random(100, 32, 256, dtype=torch.float32, grad=gradients)

    def forward():
        with torch.no_grad():
            return layer(x)[0]

    return (lambda: layer(x)[0].sum().backward()) if gradients else forward


def add():
    a, b = random(2, dtype=torch.float32, grad=True), random(2, dtype=torch.float32, grad=True)
    return lambda: a + b


def train_step():
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    x, target = torch.randn(32, 256), torch.randint(0, 10, (32,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), target).backward()
        optimizer.step()

    return step


def grid_sample(channels, side, mode, backward):
    x = random(2, channels, side, side, dtype=torch.float32, grad=backward)
    grid = random(2, side, side, 2, dtype=torch.float32, grad=backward)
    if backward:
        return lambda: F.grid_sample(x, grid, align_corners=False).sum().backward()
    half = grid * 0.5
    return without_grad(lambda: F.grid_sample(x, half, mode=mode, align_corners=False))


def int_mm(n):
    a, w = (torch.randint(-128, 128, (n, n), dtype=torch.int8) for _ in range(2))
    return without_grad(lambda: torch._int_mm(a, w.t()))


for n in (1024, 2048, 4096):
    row(f"int_mm {n} int8", lambda n=n: int_mm(n))
for tag, dtype in DTYPES.items():
    for n in (1024, 2048, 4096):
        row(f"matmul {n} {tag}", lambda n=n, t=dtype: gemm(n, t, torch.matmul))
        row(f"linear {n} {tag}", lambda n=n, t=dtype: gemm(n, t, F.linear))
    for c, p in ((320, 64), (640, 32), (1280, 16), (128, 256)):
        row(f"conv {c}@{p} {tag}", lambda c=c, p=p, t=dtype: conv(c, p, t, False))
        row(f"conv forward+backward {c}@{p} {tag}", lambda c=c, p=p, t=dtype: conv(c, p, t, True))
    for kernel, *size, stride in (
        ((3, 3, 3), 128, 10, 96, 0, 1),
        ((3, 3, 3), 256, 6, 64, 0, 1),
        ((3, 3, 3), 512, 4, 32, 0, 1),
        ((3, 3, 3), 64, 17, 64, 1, 1),
        ((3, 3, 3), 32, 17, 64, 1, 1),
        ((3, 3, 3), 16, 17, 64, 1, 1),
        ((1, 3, 3), 128, 8, 96, 0, 1),
        ((3, 1, 1), 128, 10, 96, 0, 1),
        ((3, 3, 3), 64, 17, 64, 1, 2),
    ):
        name = "x".join(map(str, kernel)) + f" {size[0]}@{size[1]}x{size[2]}" + (" stride 2" if stride == 2 else "")
        for which, said in (("output", ""), ("input", "gradient of input "), ("weight", "gradient of weight ")):
            row(
                f"conv3d {said}{name} {tag}",
                lambda a=(which, kernel, *size, stride), t=dtype: conv_3d(*a, dtype=t),
            )
    for h, n, d, keys in ((8, 4096, 40, 4096), (8, 4096, 64, 4096), (10, 1024, 64, 1024), (8, 4096, 64, 77)):
        size = f"h{h} n{n}" + ("" if keys == n else f"x{keys}") + f" d{d} {tag}"
        row(f"attention {size}", lambda s=(h, n, d, keys), t=dtype: attention(*s, t, False))
        row(f"attention backward {size}", lambda s=(h, n, d, keys), t=dtype: attention(*s, t, True))
    row(f"group_norm_silu [2,320,64,64] nhwc {tag}", lambda t=dtype: group_norm_silu(t, nhwc))
    row(f"group_norm_silu [2,320,64,64] nchw {tag}", lambda t=dtype: group_norm_silu(t, torch.contiguous_format))
    row(f"mlp 512x384-1536-384 gelu_tanh, with gradients {tag}", lambda t=dtype: mlp(t))
    row(f"layer_norm [8192,640] {tag}", lambda t=dtype: layer_norm(t))
    row(f"add of two layouts [8,320,16,16] {tag}", lambda t=dtype: two_layouts(t, torch.add))
    row(
        f"channels-last to contiguous [8,320,16,16] {tag}",
        lambda t=dtype: two_layouts(t, lambda _, y: y.contiguous()),
    )
    for name, op in (
        ("topk 10 of", lambda x, _: x.topk(10)),
        ("median of", lambda x, _: x.median(1)),
        ("index_add", lambda x, i: x.index_add(0, i, x)),
        ("cumsum", lambda x, _: x.cumsum(1)),
        ("max of rows", lambda x, _: x.max(1)),
    ):
        row(f"{name} [1024,1024] {tag}", lambda t=dtype, op=op: square(op, t))
    row(f"gelu [8192,2560] {tag}", lambda t=dtype: unary(F.gelu, (8192, 2560), t))
    row(f"fused silu(x*a+b)*c [8192,1024] {tag}", lambda t=dtype: gate(t, True))
    row(f"unfused silu(x*a+b)*c [8192,1024] {tag}", lambda t=dtype: gate(t, False))
    row(f"softmax [20,1024,1024] {tag}", lambda t=dtype: unary(lambda x: F.softmax(x, -1), (20, 1024, 1024), t))
for name, op in (("sort", torch.sort), ("bincount", torch.bincount)):
    row(f"{name} [1000000] int64", lambda op=op: numbers(op))
for name, layer in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
    row(f"{name} [100,32,256]-256 f32", lambda cls=layer: recurrent(cls, False))
    row(f"{name} [100,32,256]-256, with gradients f32", lambda cls=layer: recurrent(cls, True))
for channels, side in ((3, 512), (64, 128)):
    for mode in ("bilinear", "bicubic"):
        row(
            f"grid_sample {mode} [2,{channels},{side},{side}] f32",
            lambda a=(channels, side, mode): grid_sample(*a, False),
        )
row("grid_sample bilinear [2,64,128,128] f32 fwd+bwd", lambda: grid_sample(64, 128, "bilinear", True))
row("add [2] with gradient, Python", add, threads=1)
row("train step 256-512-10 batch 32", train_step, threads=1)
ROWS.update(training.rows(torch))


def optimizer(cls, dtype, sizes, **options):
    params = [torch.full(size, 0.5, dtype=dtype, requires_grad=True) for size in sizes]
    for p in params:
        p.grad = torch.full_like(p, 0.01)
    return cls(params, fused=True, **options).step


def sizes_of_50_million():
    sizes, left = [], 50_000_000
    while left > 0:
        n = min(left, max(left // 2, 1000))
        sizes.append((n,))
        left -= n
    return sizes


row("AdamW 50M f32", lambda: optimizer(torch.optim.AdamW, torch.float32, sizes_of_50_million()))
row("SGD momentum 50M f32", lambda: optimizer(torch.optim.SGD, torch.float32, sizes_of_50_million(), momentum=0.9))
row(
    "AdamW step of 4 small tensors, Python",
    lambda: optimizer(torch.optim.AdamW, torch.float32, [(64, 32), (64,), (10, 64), (10,)]),
    threads=1,
)
if importlib.util.find_spec("transformers"):
    for tag, dtype in DTYPES.items():
        row(f"CLIP ViT-L [2,77] {tag}", lambda t=dtype: clip(t))
for kind in ("lossy", "lossless"):
    row(f"dataloader webp {kind}, 2 workers", lambda k=kind: dataloader.peer(k))


if __name__ == "__main__":
    main(ROWS, lambda n: torch.set_num_threads(n) if n else None)
