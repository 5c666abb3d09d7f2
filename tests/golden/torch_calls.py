"""Random calls that PyTorch and we both know, for compare_with_torch.py. Neither library is imported here."""

import dataclasses
import operator

import numpy as np

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
EVERY = [*FLOATS, *INTEGERS, "bool"]

UNARY = (
    "abs neg exp exp2 expm1 sin cos tan tanh sigmoid erf floor ceil round trunc frac sign square reciprocal rsqrt sqrt "
    "log log2 log10 log1p isnan isinf isfinite logical_not asin acos atan sinh cosh asinh acosh atanh logit digamma "
    "lgamma erfinv i0 nan_to_num sinc relu"
).split()
BINARY = (
    "add sub mul div floor_divide remainder fmod pow atan2 maximum minimum fmax fmin eq ne lt le gt ge logical_and "
    "logical_or logical_xor bitwise_and bitwise_or bitwise_xor hypot copysign logaddexp logaddexp2 xlogy ldexp "
    "nextafter gcd"
).split()
OPERATORS = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift eq lt ge".split()
REDUCTIONS = {  # name: whether several dimensions are taken
    "sum": 1, "mean": 1, "prod": 0, "nansum": 1, "amax": 1, "amin": 1, "all": 1, "any": 1, "max": 0, "min": 0,
    "argmax": 0, "argmin": 0, "var": 1, "std": 1, "logsumexp": 1,
}  # fmt: skip
ALONG = "cumsum cumprod cummax cummin logcumsumexp softmax log_softmax".split()
ACTIVATIONS = {
    "relu": (), "relu6": (), "leaky_relu": (0.1,), "elu": (0.5,), "selu": (), "celu": (1.2,), "gelu": (), "silu": (),
    "mish": (), "hardswish": (), "hardsigmoid": (), "hardtanh": (-1.0, 0.5), "softplus": (2.0, 3.0), "softsign": (),
    "softshrink": (0.3,), "hardshrink": (0.3,), "logsigmoid": (), "threshold": (0.1, 2.0),
}  # fmt: skip
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss kl_div binary_cross_entropy_with_logits".split()


@dataclasses.dataclass(eq=False, repr=False)
class Operand:
    array: np.ndarray
    dtype: str
    views: list  # ("transpose", dims), ("step", steps), ("expand", sizes), ("from", first)
    grad: bool

    def __repr__(self):
        return f"{self.dtype}{list(self.array.shape)}{self.views or ''}{' with gradient' * self.grad}"


@dataclasses.dataclass(frozen=True)
class DType:
    name: str


@dataclasses.dataclass
class Call:
    function: object  # a path below the library, ".method", or a function of the library and the arguments
    args: list
    kwargs: dict = dataclasses.field(default_factory=dict)
    loose: float = 1


class Maker:
    """Shapes, values and operands of a random.Random."""

    def __init__(self, rng):
        self.rng = rng

    def shape(self, least=0, most=4, empty=True):
        size = lambda: 0 if empty and self.rng.random() < 0.04 else self.rng.choice([1, 1, 2, 3, 4, 5, 7])  # noqa: E731
        return [size() for _ in range(self.rng.randint(least, most))]

    def beside(self, shape):
        """A shape that broadcasts with it."""
        cut = self.rng.randint(0, len(shape)) if self.rng.random() < 0.3 else 0
        return [1 if self.rng.random() < 0.25 else n for n in shape][cut:]

    def values(self, shape, dtype, kind):
        g = np.random.default_rng(self.rng.randrange(1 << 30))
        if dtype == "bool":
            return g.integers(0, 2, shape).astype(bool)
        if dtype in INTEGERS:
            low = 1 if kind == "positive" else 0 if dtype == "uint8" else -5
            return np.asarray(g.integers(low, 6, shape)).astype(dtype)
        x = g.uniform(0.1, 3, shape) if kind == "positive" else g.normal(size=shape) * 1.5
        if kind == "special":
            special = g.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, 1e-30, 0.5, -0.5], size=shape)
            x = np.where(g.random(shape) < 0.15, special, x)
        return np.asarray(x, np.float64 if dtype == "float64" else np.float32)

    def dtype(self, among=EVERY):
        return self.rng.choice(among if self.rng.random() < 0.5 else [t for t in ("float32", "int64") if t in among])

    def operand(self, shape, dtype=None, kind=None, grad=True):
        rng, base, views = self.rng, list(shape), []
        dtype = dtype or self.dtype()
        kind = kind or rng.choice(["normal", "normal", "positive", "special"])
        way = rng.random()
        if shape and way < 0.4:
            if way < 0.12 and len(shape) > 1:
                i, j = rng.sample(range(len(shape)), 2)
                base[i], base[j], views = base[j], base[i], [("transpose", (i, j))]
            elif way < 0.24:
                steps = [rng.choice([1, 1, 2, 3]) for _ in shape]
                base, views = [n * k for n, k in zip(shape, steps)], [("step", steps)]
            elif way < 0.32 and all(shape):
                base[rng.randrange(len(shape))], views = 1, [("expand", list(shape))]
            else:
                base[0], views = base[0] + 1, [("from", 1)]
        wanted = grad and dtype in FLOATS and rng.random() < 0.5
        return Operand(self.values(base, dtype, kind), dtype, views, wanted)

    def indices(self, size, shape):
        g = np.random.default_rng(self.rng.randrange(1 << 30))
        return Operand(g.integers(0, size, shape).astype(np.int64), "int64", [], False)

    def pair(self, numbers=True, grad=True):
        shape = self.shape()
        a = self.operand(shape, grad=grad)
        b = self.operand(self.beside(shape), self.rng.choice([a.dtype, a.dtype, self.dtype()]), grad=grad)
        if numbers and self.rng.random() < 0.2:
            b = self.rng.choice([2, -3, 0.5, 1, True, 2.5])
        return [a, b]

    def dims(self, ndim, several):
        rng = self.rng
        if ndim == 0 or rng.random() < 0.3:
            return None
        if several and rng.random() < 0.4:
            return rng.sample(range(ndim), rng.randint(1, ndim))
        return rng.randrange(-ndim, ndim)


def _operator(name):
    def call(library, a, b):
        return getattr(operator, name)(a, b)

    return call


def _item(library, x, index):
    return x[index]


def _set_item(library, x, index, value):
    y = x.clone()
    y[index] = value
    return y


def _pointwise(m):
    rng = m.rng
    for name in UNARY:
        yield name, lambda name=name: Call(name, [m.operand(m.shape())])
        if name not in ("isnan", "isinf", "isfinite"):
            yield name + "_", lambda name=name: Call(f".{name}_", [m.operand(m.shape(), grad=False)])
    for name in BINARY:
        numbers = name in "add sub mul div floor_divide remainder fmod pow eq ne lt le gt ge copysign xlogy".split()
        yield name, lambda name=name, numbers=numbers: Call(name, m.pair(numbers))
    for name in OPERATORS:
        yield "operator." + name, lambda name=name: Call(_operator(name), m.pair())
    for name in "add sub mul div pow remainder fmod clamp_min clamp_max".split():
        yield name + "_", lambda name=name: Call(f".{name}_", m.pair(grad=False))
    for name in ("add", "sub"):
        yield name, lambda name=name: Call(name, m.pair(False), {"alpha": rng.choice([2, -1, 0.5])})
    for name in ("addcmul", "addcdiv", "lerp"):

        def three(name=name):
            shape, dtype = m.shape(), rng.choice(FLOATS)
            a, b, c = (m.operand(s, dtype, "positive") for s in (shape, m.beside(shape), m.beside(shape)))
            return Call(name, [a, b, rng.choice([c, 0.3])] if name == "lerp" else [a, b, c])

        yield name, three

    def clamp():
        shape, kwargs = m.shape(), {}
        x = m.operand(shape)
        for side in ("min", "max"):
            if rng.random() < 0.7:
                kwargs[side] = rng.choice([-1, 0, 0.5, 1])
        if rng.random() < 0.3:
            kwargs = {k: m.operand(m.beside(shape), x.dtype) for k in kwargs}
        return Call("clamp", [x], kwargs)

    yield "clamp", clamp

    def where():
        shape = m.shape()
        return Call("where", [m.operand(m.beside(shape), "bool"), *(m.operand(m.beside(shape)) for _ in "ab")])

    yield "where", where
    yield "to", lambda: Call(".to", [m.operand(m.shape()), DType(rng.choice(EVERY))])


def _reductions(m):
    rng = m.rng
    for name, several in REDUCTIONS.items():

        def reduce(name=name, several=several):
            x = m.operand(m.shape(1))
            dims = m.dims(x.array.ndim, several)
            kwargs = {} if dims is None and name != "logsumexp" else {"dim": 0 if dims is None else dims}
            if kwargs and rng.random() < 0.4:
                kwargs["keepdim"] = True
            return Call(name, [x], kwargs)

        yield name, reduce
    for name in ALONG:
        yield name, lambda name=name: (lambda x: Call(name, [x, rng.randrange(x.array.ndim)]))(m.operand(m.shape(1)))
    for name in ("sort", "argsort"):
        yield (
            name,
            lambda name=name: Call(name, [m.operand(m.shape(1))], {"stable": True, "descending": rng.random() < 0.5}),
        )


def _shapes(m):
    rng = m.rng
    some = lambda shape: rng.randrange(-len(shape), len(shape))  # noqa: E731

    def of(name, rest, least=0, most=4):
        def make():
            shape = m.shape(least, most)
            return Call(name, [m.operand(shape), *rest(shape)])

        return name, make

    yield of("permute", lambda s: [rng.sample(range(len(s)), len(s))])
    yield of("transpose", lambda s: [some(s), some(s)], 1)
    yield of("movedim", lambda s: [some(s), some(s)], 1)
    yield of("squeeze", lambda s: [some(s)] if s else [])
    yield of("unsqueeze", lambda s: [rng.randrange(-len(s) - 1, len(s) + 1)])
    yield of("flatten", lambda s: [rng.randrange(len(s)) if s else 0])
    yield of("reshape", lambda s: [[-1] if all(s) else s[::-1]])
    yield of("tile", lambda s: [[rng.randint(0, 3) for _ in range(rng.randint(0, len(s) + 1))]], 0, 3)
    yield of("roll", lambda s: [rng.randint(-4, 4), some(s)], 1)
    yield of("flip", lambda s: [rng.sample(range(len(s)), rng.randint(0, len(s)))])
    yield of("tril", lambda s: [rng.randint(-3, 3)], 2)
    yield of("diagonal", lambda s: [rng.randint(-3, 3), *rng.sample(range(len(s)), 2)], 2)
    yield of("split", lambda s: [rng.randint(1, 4), some(s)], 1)
    yield of("chunk", lambda s: [rng.randint(1, 5), some(s)], 1)
    yield of("tensor_split", lambda s: [rng.choice([1, 2, 5, [1], [0, 2], [2, 1], [-1]]), some(s)], 1)
    yield of("unbind", lambda s: [some(s)], 1)
    yield of("nonzero", lambda s: [])

    def joined():
        shape = m.shape(1)
        dim = rng.randrange(len(shape))
        sizes = [[*shape[:dim], rng.randint(0, 4), *shape[dim + 1 :]] for _ in range(rng.randint(1, 4))]
        return Call("cat", [[m.operand(s) for s in sizes], dim])

    yield "cat", joined


def _indexing(m):
    rng = m.rng

    def index(shape):
        out, taken, fancy = [], 0, rng.random() < 0.5
        for n in shape:
            way = rng.random()
            if way < 0.15 and n:
                out.append(rng.randrange(-n, n))
            elif way < 0.5:
                ends = [rng.choice([None, None, rng.randint(-n - 1, n + 1)]) for _ in "ab"]
                out.append(slice(*ends, rng.choice([None, None, 1, 2, 3])))
            elif way < 0.6:
                out += [None, slice(None)]
            elif way < 0.85 and fancy and n:
                out.append(m.indices(n, [2]))
            else:
                break
            taken += 1
        return (*out, Ellipsis) if rng.random() < 0.3 else tuple(out)

    def item():
        shape = m.shape(1)
        return Call(_item, [m.operand(shape), index(shape)])

    def set_item():
        shape = m.shape(1)
        return Call(_set_item, [m.operand(shape), index(shape), rng.choice([1, 2.5, True, m.operand([])])])

    yield "getitem", item
    yield "setitem", set_item
    for name in ("index_select", "gather", "scatter_add", "index_add", "scatter_reduce"):

        def along(name=name):
            shape, dtype = m.shape(1, empty=False), rng.choice(["float32", "float64", "int64", "bfloat16"])
            dim, count = rng.randrange(len(shape)), rng.randint(0, 5)
            rows, places = list(shape), [rng.randint(1, n) for n in shape]
            rows[dim] = places[dim] = count
            x = m.operand(shape, dtype)
            if name.startswith("index"):
                where = m.indices(shape[dim], [count])
                return Call(name, [x, dim, where] + ([m.operand(rows, dtype)] if name == "index_add" else []))
            where = m.indices(shape[dim], places)
            source = [] if name == "gather" else [m.operand(places, dtype)]
            kwargs = {"reduce": rng.choice(["sum", "mean", "amax"])} if name == "scatter_reduce" else {}
            return Call(name, [x, dim, where, *source], kwargs)

        yield name, along

    def filled():
        shape = m.shape()
        return Call("masked_fill", [m.operand(shape), m.operand(m.beside(shape), "bool"), rng.choice([0, 2, True])])

    yield "masked_fill", filled


def _products(m):
    rng = m.rng

    def matmul():
        dtype, (rows, inner, columns) = rng.choice([*FLOATS, "int64"]), (rng.choice([1, 2, 3, 0, 17]) for _ in "mkn")
        batch = [rng.choice([1, 2]) for _ in range(rng.randint(0, 2))]
        a = m.operand(batch + [rows, inner] if rng.random() < 0.8 else [inner], dtype, "normal")
        b = m.operand(m.beside(batch) + [inner, columns] if rng.random() < 0.8 else [inner], dtype, "normal")
        return Call("matmul", [a, b], loose=4)

    def linear():
        dtype, inner, columns = rng.choice(FLOATS), rng.choice([0, 1, 3, 17]), rng.choice([1, 2, 9])
        weight = [columns, inner] if rng.random() < 0.9 else [inner]
        return Call(
            "nn.functional.linear",
            [m.operand([*m.shape(0, 3), inner], dtype, "normal"), m.operand(weight, dtype, "normal")],
            loose=4,
        )

    def attention():
        dtype, batch = rng.choice(FLOATS), rng.choice([[], [2], [2, 3]])
        queries, keys, width, values = (rng.choice(c) for c in ([1, 2, 17], [1, 3, 9], [1, 4, 20], [1, 4, 8]))
        shapes = [queries, width], [keys, width], [keys, values]
        mask = {"attn_mask": m.operand([queries, keys], dtype, "normal")} if rng.random() < 0.4 else {}
        kwargs = mask or {"is_causal": rng.random() < 0.5}
        tensors = [m.operand(batch + s, dtype, "normal") for s in shapes]
        return Call("nn.functional.scaled_dot_product_attention", tensors, kwargs, loose=4)

    yield "matmul", matmul
    yield "nn.functional.linear", linear
    yield "nn.functional.scaled_dot_product_attention", attention


def _layers(m):
    rng, f = m.rng, "nn.functional."
    for name, rest in ACTIVATIONS.items():
        yield f + name, lambda name=name, rest=rest: Call(f + name, [m.operand(m.shape(), rng.choice(FLOATS)), *rest])
    for name in LOSSES:

        def loss(name=name):
            shape, dtype = m.shape(1), rng.choice(FLOATS)
            x, y = m.operand(shape, dtype, "normal"), m.operand(shape, dtype, "positive", grad=False)
            return Call(f + name, [x, y], {"reduction": rng.choice(["none", "mean", "sum"])}, loose=2)

        yield f + name, loss

    def cross_entropy():
        classes, more = rng.choice([1, 2, 5, 9]), rng.choice([[], [3], [2, 3]])
        x = m.operand([2, classes, *more], rng.choice(FLOATS), "normal")
        kwargs = {"reduction": rng.choice(["none", "mean", "sum"]), "label_smoothing": rng.choice([0.0, 0.1])}
        return Call(f + "cross_entropy", [x, m.indices(classes, [2, *more])], kwargs, loose=2)

    yield f + "cross_entropy", cross_entropy
    for name in ("group_norm", "layer_norm", "rms_norm", "instance_norm"):

        def norm(name=name):
            shape = [rng.choice([1, 2]), rng.choice([2, 4]), *rng.choice([[5], [3, 4]])]
            how = {"group_norm": [rng.choice([1, 2])], "instance_norm": []}.get(name, [shape[-1:]])
            return Call(f + name, [m.operand(shape, rng.choice(FLOATS), "normal"), *how], loose=4)

        yield f + name, norm
    for n in (1, 2, 3):
        for transposed in ("", "_transpose"):

            def conv(n=n, transposed=transposed):
                dtype, groups, stride, dilation = (
                    rng.choice(FLOATS),
                    *(rng.choice(c) for c in ([1, 2], [1, 2, 3], [1, 2])),
                )
                channels, outputs = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
                weight = [channels, outputs // groups] if transposed else [outputs, channels // groups]
                kwargs = {"stride": stride, "padding": rng.choice([0, 1]), "dilation": dilation, "groups": groups}
                if transposed and max(stride, dilation) > 1:
                    kwargs["output_padding"] = rng.choice([0, 1])
                x = m.operand([2, channels, *(rng.randint(5, 9) for _ in range(n))], dtype, "normal")
                w = m.operand(weight + [rng.randint(1, 3) for _ in range(n)], dtype, "normal")
                return Call(f"{f}conv{transposed}{n}d", [x, w], kwargs, loose=6)

            yield f"{f}conv{transposed}{n}d", conv
        for name in ("max", "avg"):

            def pool(n=n, name=name):
                x, size = (
                    m.operand([2, 3, *(rng.randint(3, 9) for _ in range(n))], rng.choice(FLOATS)),
                    rng.randint(1, 3),
                )
                kwargs = {"stride": rng.choice([None, 1, 2]), "padding": size // 2, "ceil_mode": rng.random() < 0.3}
                return Call(f"{f}{name}_pool{n}d", [x, size], kwargs, loose=2)

            yield f"{f}{name}_pool{n}d", pool

    def resized():
        x = m.operand([1, 2, rng.randint(2, 6), rng.randint(2, 6)], rng.choice(FLOATS), "normal")
        mode = rng.choice(["nearest", "bilinear", "bicubic", "area", "nearest-exact"])
        kwargs = {"mode": mode, rng.choice(["size", "scale_factor"]): rng.choice([2, 3])}
        if mode in ("bilinear", "bicubic"):
            kwargs["align_corners"] = rng.random() < 0.5
        return Call(f + "interpolate", [x], kwargs, loose=6)

    yield f + "interpolate", resized

    def padded():
        shape, pairs = m.shape(1, 5, empty=False), rng.randint(1, 3)
        pads = [rng.randint(-1, 3) for _ in range(2 * min(pairs, len(shape)))]
        return Call(f + "pad", [m.operand(shape), pads], {"value": rng.choice([0, 1])})

    yield f + "pad", padded


def calls(rng):
    """(name, a function that makes a Call) of everything that is compared."""
    m = Maker(rng)
    for group in (_pointwise, _reductions, _shapes, _indexing, _products, _layers):
        yield from group(m)
