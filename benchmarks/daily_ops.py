"""Some 200 calls that programs make every day, each beside PyTorch's: sums, sorts, copies between layouts, indexing,
activations, losses, random numbers.

    PYTHONPATH=build/python python benchmarks/daily_ops.py --torch-python PYTHON [--rounds N] [--threads N] [--row TEXT]

Each program measures every row in a process of its own, in turn; of the rounds the fastest call counts, which noise
makes no faster. Rows where we take longer than PyTorch come first and say so; the last line counts them.
"""

import json
import sys
import time

import turns

SECONDS = 0.1  # for a row in a round


def reductions(t, F, d):
    x, m = d.images, d.matrix
    return {
        "sum": lambda: x.sum(),
        "sum of rows": lambda: m.sum(-1),
        "sum of columns": lambda: m.sum(0),
        "sum of images": lambda: x.sum((2, 3)),
        "sum of channels": lambda: x.sum(1),
        "mean (1, 2, 3)": lambda: x.mean((1, 2, 3)),
        "var of rows": lambda: m.var(-1),
        "std": lambda: m.std(),
        "max of rows": lambda: m.max(-1),
        "max of columns": lambda: m.max(0),
        "argmax of rows": lambda: m.argmax(-1),
        "amax": lambda: x.amax(),
        "norm": lambda: m.norm(),
        "any": lambda: d.mask.any(),
        "all of rows": lambda: d.mask.all(-1),
        "logsumexp": lambda: t.logsumexp(m, -1),
        "softmax of rows": lambda: F.softmax(m, -1),
        "softmax of columns": lambda: F.softmax(m, 0),
        "softmax of channels": lambda: F.softmax(x, 1),
        "log_softmax": lambda: F.log_softmax(m, -1),
        "cumsum of rows": lambda: m.cumsum(-1),
        "cumsum of columns": lambda: m.cumsum(0),
        "cumsum of colours": lambda: d.picture.cumsum(-1),
        "cumprod": lambda: m.cumprod(-1),
        "normalize": lambda: F.normalize(d.tokens, dim=-1),
        "cosine_similarity": lambda: F.cosine_similarity(d.tokens, d.tokens, dim=-1),
        "layer_norm": lambda: F.layer_norm(d.tokens, (320,)),
        "rms_norm": lambda: F.rms_norm(d.tokens, (320,)),
        "group_norm": lambda: F.group_norm(x, 32),
        "mse_loss": lambda: F.mse_loss(m, m),
        "smooth_l1_loss": lambda: F.smooth_l1_loss(m, m),
        "cross_entropy": lambda: F.cross_entropy(m, d.rows[:1024]),
        "dot": lambda: t.dot(d.numbers, d.numbers),
        "mv": lambda: m @ m[0],
        "outer": lambda: t.outer(m[0], m[0]),
        "bmm 64": lambda: d.cubes @ d.cubes,
        "linear 8x1024": lambda: F.linear(m[:8], m),
    }


def order(t, F, d):
    m = d.matrix
    return {
        "sort": lambda: m.sort(-1),
        "argsort": lambda: m.argsort(-1),
        "topk 10": lambda: m.topk(10, -1),
        "sort of a million": lambda: d.numbers.sort(),
        "median": lambda: m.median(-1),
        "kthvalue": lambda: t.kthvalue(m, 5),
    }


def layouts(t, F, d):
    x, m, s = d.images, d.matrix, d.tokens
    return {
        "channels-last to contiguous": lambda: d.last.contiguous(),
        "contiguous to channels-last": lambda: x.contiguous(memory_format=t.channels_last),
        "add of two layouts": lambda: x + d.last,
        "cat of channels": lambda: t.cat([x, x], 1),
        "cat of columns": lambda: t.cat([m, m], -1),
        "stack": lambda: t.stack([m, m]),
        "stack of elements": lambda: t.stack([m, m], -1),
        "chunk, contiguous": lambda: s.chunk(2, -1)[1].contiguous(),
        "heads": lambda: d.heads.permute(0, 2, 1, 3).contiguous(),
        "transpose": lambda: m.t().contiguous(),
        "images to tokens": lambda: x.flatten(2).transpose(1, 2).contiguous(),
        "tokens to images": lambda: s.transpose(1, 2).contiguous(),
        "flip of columns": lambda: m.flip(-1),
        "flip of rows": lambda: m.flip(0),
        "roll": lambda: m.roll(3, -1),
        "roll of images": lambda: x.roll((2, 2), (2, 3)),
        "repeat": lambda: m.repeat(2, 2),
        "repeat_interleave": lambda: m.repeat_interleave(2, 0),
        "tril": lambda: m.tril(),
        "pad": lambda: F.pad(x, (1, 1, 1, 1)),
        "pad, reflected": lambda: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        "every second": lambda: m[:, ::2].contiguous(),
        "pixel_shuffle": lambda: F.pixel_shuffle(x, 2),
        "pixel_unshuffle": lambda: F.pixel_unshuffle(x, 2),
        "unfold": lambda: F.unfold(x[:1], 3, padding=1),
        "interpolate nearest": lambda: F.interpolate(x, scale_factor=2),
        "interpolate bilinear": lambda: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "interpolate bicubic": lambda: F.interpolate(x, scale_factor=2, mode="bicubic"),
        "avg_pool2d": lambda: F.avg_pool2d(x, 2),
        "max_pool2d": lambda: F.max_pool2d(x, 2),
        "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(x, 1),
        "clone": lambda: m.clone(),
        "to float16": lambda: m.to(t.float16),
        "to int64": lambda: m.to(t.int64),
        "to uint8": lambda: d.positive.to(t.uint8),
    }


def indexing(t, F, d):
    m = d.matrix
    return {
        "index_select": lambda: m.index_select(0, d.rows),
        "rows of a list": lambda: m[d.rows],
        "columns of a list": lambda: m[:, d.rows],
        "gather": lambda: m.gather(1, d.places),
        "masked_select": lambda: m[d.mask],
        "where": lambda: t.where(d.mask, m, m),
        "masked_fill": lambda: m.masked_fill(d.mask, 0.0),
        "embedding": lambda: F.embedding(d.rows, m),
        "index_add": lambda: t.zeros_like(m).index_add(0, d.rows[:1024], m),
        "scatter_add": lambda: t.zeros_like(m).scatter_add(1, d.places, m),
    }


def elementwise(t, F, d):
    x, m, p = d.images, d.matrix, d.positive
    named = "exp sin tanh sigmoid abs neg round erf reciprocal floor isnan sign"
    calls = {name: lambda f=name: getattr(m, f)() for name in named.split()}
    calls |= {name: lambda f=name: getattr(p, f)() for name in ("log", "sqrt", "rsqrt")}
    functions = "relu gelu silu mish softplus elu leaky_relu hardswish"
    calls |= {name: lambda f=name: getattr(F, f)(m) for name in functions.split()}
    return calls | {
        "square": lambda: m.pow(2),
        "pow": lambda: p.pow(1.7),
        "clamp": lambda: m.clamp(-1, 1),
        "add": lambda: m + m,
        "add a number": lambda: m + 1.5,
        "add a row": lambda: m + m[0],
        "add a column": lambda: m + m[:, :1],
        "add of channels": lambda: x + x[:1, :, :1, :1],
        "mul of pixels": lambda: x * x[:, :1],
        "mul of colours": lambda: d.picture * d.picture[0, 0],
        "products of 3 x 3": lambda: d.small @ d.small,
        "picture over alpha": lambda: d.picture * d.picture[..., :1],
        "mul": lambda: m * m,
        "div": lambda: m / m,
        "atan2": lambda: t.atan2(m, m),
        "maximum": lambda: t.maximum(m, m),
        "equal": lambda: m == m,
        "lerp": lambda: t.lerp(m, m, 0.3),
        "addcmul": lambda: t.addcmul(m, m, m),
        "fmod": lambda: t.fmod(m, 1.3),
        "remainder": lambda: t.remainder(m, 1.3),
        "dropout": lambda: F.dropout(m, 0.1, True),
    }


def whole_numbers(t, F, d):
    i, mask = d.whole, d.mask
    return {
        "sort": lambda: i.sort(),
        "unique": lambda: t.unique(i),
        "bincount": lambda: t.bincount(i),
        "sum": lambda: i.sum(),
        "add": lambda: i + i,
        "floor division": lambda: i // 7,
        "equal": lambda: i == 3,
        "and of masks": lambda: mask & mask,
        "nonzero": lambda: mask.nonzero(),
        "one_hot": lambda: F.one_hot(i[:10000], 1000),
        "bytes to floats": lambda: d.bytes.permute(0, 3, 1, 2).float().div(255),
        "floats to bytes": lambda: (d.pictures * 255)
        .round()
        .clamp(0, 255)
        .permute(0, 2, 3, 1)
        .to(t.uint8)
        .contiguous(),
        "flip of bytes": lambda: d.bytes.flip(2),
    }


def making(t, F, d):
    return {
        "randn": lambda: t.randn(1000000),
        "rand": lambda: t.rand(1000000),
        "randint": lambda: t.randint(0, 10, (1000000,)),
        "randperm": lambda: t.randperm(1000000),
        "uniform_": lambda: t.empty(1000000).uniform_(-0.1, 0.1),
        "linear layer": lambda: t.nn.Linear(1000, 1000),
        "multinomial": lambda: t.multinomial(d.positive[:100].float(), 5),
        "arange": lambda: t.arange(1000000),
        "linspace": lambda: t.linspace(0, 1, 1000000),
        "zeros": lambda: t.zeros(1000, 1000),
        "full": lambda: t.full((1000, 1000), 2.0),
        "grid_sample": lambda: F.grid_sample(d.pictures, d.grid, align_corners=False),
        "searchsorted": lambda: t.searchsorted(d.edges, d.pictures[0]),
        "histc": lambda: t.histc(d.pictures, 100),
        "cdist": lambda: t.cdist(d.points, d.points),
    }


class Data:
    def __init__(self, t, dtype):
        t.manual_seed(0)

        def normal(*size):
            return t.randn(*size).to(dtype)

        self.images, self.matrix, self.tokens = normal(8, 320, 32, 32), normal(1024, 1024), normal(8, 1024, 320)
        self.last = normal(8, 320, 32, 32).contiguous(memory_format=t.channels_last)
        self.numbers, self.cubes, self.heads = normal(1000000), normal(64, 64, 64), normal(8, 1024, 8, 40)
        self.picture = normal(512, 512, 3)
        self.small = normal(65536, 3, 3)
        self.positive, self.mask = self.matrix.abs() + 0.01, self.matrix > 0
        self.rows, self.places = t.randint(0, 1024, (4096,)), t.randint(0, 1024, (1024, 1024))
        self.whole, self.points = t.randint(0, 1000, (1000000,)), t.randn(500, 64)
        self.bytes = t.randint(0, 255, (4, 256, 256, 3)).to(t.uint8)
        self.pictures, self.edges = t.rand(4, 3, 256, 256), t.linspace(0, 1, 1000)
        self.grid = t.rand(4, 256, 256, 2) * 2 - 1


def rows(t):
    """{name: a function that makes its call}"""
    F = t.nn.functional
    found = {}
    for dtype in ("float32", "bfloat16"):
        d = Data(t, getattr(t, dtype))
        for part in (reductions, order, layouts, indexing, elementwise):
            found |= {f"{name} {dtype}": call for name, call in part(t, F, d).items()}
    d = Data(t, t.float32)
    return found | {f"{name} of int64": call for name, call in whole_numbers(t, F, d).items()} | making(t, F, d)


def child(which, text, threads):
    t, _ = turns.library(which)
    t.set_num_threads(threads)
    best = {}
    with t.no_grad():
        for name, call in rows(t).items():
            if text in name:
                call()
                took, end = [], time.perf_counter() + SECONDS
                while len(took) < 3 or time.perf_counter() < end:
                    start = time.perf_counter()
                    call()
                    took.append(time.perf_counter() - start)
                best[name] = min(took)
    print(json.dumps(best))


def main():
    options = turns.options_of(__doc__, 3, lambda parser: parser.add_argument("--row", default=""))
    if options.child:
        return child(*options.child, options.threads)
    peers = turns.programs(options)
    answers = turns.take_turns(options, __file__, [options.row], peers)
    best = {who: {name: min(a[name] for a in all_of) for name in all_of[0]} for who, all_of in answers.items()}
    if "torch" not in best:
        for name, took in best["ours"].items():
            print(f"{name:36}{1e6 * took:10.1f} us")
        return None
    ratios = {name: took / best["torch"][name] for name, took in best["ours"].items()}
    print(f"{'':36}{'ours':>10}{'PyTorch':>10} us")
    for name, ratio in sorted(ratios.items(), key=lambda row: -row[1]):
        slower = "  SLOWER THAN PYTORCH" if ratio > 1 else ""
        print(f"{name:36}{1e6 * best['ours'][name]:10.1f}{1e6 * best['torch'][name]:10.1f}{ratio:8.2f}{slower}")
    print(f"{len(ratios)} rows, {sum(r > 1 for r in ratios.values())} slower than PyTorch")


if __name__ == "__main__":
    sys.exit(main())
