"""Kernels as nvcc compiles them, run from their PTX on small inputs beside float64 (docs/internals/cuda.md)."""

import re

import edits
import numpy as np
import pytest
from edits import other, without
from inputs import filled, random
from instructions import from_bf16, to_bf16
from machine import Machine
from program import Fault


def attention(text, dtype="BFloat16", queries=100, keys=150, causal=0, **how):
    """Of 2 heads of 64: the largest errors of the result and of the logarithms of the sums."""
    m = Machine(text, **how)
    narrow, widen = {"BFloat16": (to_bf16, from_bf16), "Half": (lambda x: x.astype("f2"), lambda x: x)}.get(
        dtype, (lambda x: x, lambda x: x)
    )
    q, k, v = (narrow(random(2, n, 64, seed=n + i)) for i, n in enumerate((queries, keys, keys)))
    y, lse = m.put(np.zeros_like(q), False), m.put(np.zeros(q.shape[:2], "f4"), False)
    size = m.get(m.symbols["bytes_" + dtype], (), "i4")
    args = [m.put(q), m.put(k), m.put(v), y, lse, 2, queries, keys, causal]
    (f,) = filled(m, [size], "fill_" + dtype, args)
    item = q.itemsize
    kernel = "attention_mmaIf" if item == 4 else f"attention_mmaINS_{len(dtype)}{dtype}"
    # rows of 64 elements and 16 bytes: 128 queries, a tile of keys and one of values (ForwardTile)
    shared = (64 * item + 16) * (128 + 2 * (32 if item == 4 else 64))
    m.launch(kernel, 2 * -(-queries // 128), 128, [f], shared=shared)
    q, k, v = (widen(x).astype("f8") for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) * 0.125
    if causal:
        scores = np.where(np.arange(keys) > np.arange(queries)[:, None], -np.inf, scores)
    weights = np.exp(scores)
    sums = weights.sum(-1, keepdims=True)
    y = widen(m.get(y, q.shape, narrow(random(1)).dtype)).astype("f8")
    return np.abs(y - weights / sums @ v).max(), np.abs(m.get(lse, sums.shape, "f4") - np.log(sums)).max()


# results are below 4: half a unit in the last place of 8, 11 or 11 bits; weights are rounded as well
@pytest.mark.parametrize("dtype, most", [("BFloat16", 0.02), ("Half", 2.5e-3), ("float", 2.5e-3)])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(ptx, dtype, most, causal):
    y, lse = attention(ptx["attention"], dtype, causal=causal, backwards=bool(causal))
    print(f"attention of {dtype}: y {y:.1e}, lse {lse:.1e}")
    assert y < most and lse < (1e-3 if dtype == "float" else 1e-5)


def attention_backward(text, queries=70, keys=60, causal=0, **how):
    """The largest error of each gradient, as a part of its largest number."""
    m = Machine(text, **how)
    q, k, v, dy = (to_bf16(random(2, n, 64, seed=i)) for i, n in enumerate((queries, keys, keys, queries)))
    at = [m.put(x) for x in (q, k, v, dy)]
    outs = [m.put(np.zeros_like(x), False) for x in (q, k, v)]
    q, k, v, dy = (from_bf16(x).astype("f8") for x in (q, k, v, dy))
    scores = q @ k.transpose(0, 2, 1) * 0.125
    if causal:
        scores = np.where(np.arange(keys) > np.arange(queries)[:, None], -np.inf, scores)
    sums = np.exp(scores).sum(-1, keepdims=True)
    p = np.exp(scores) / sums
    delta = (p @ v * dy).sum(-1, keepdims=True)
    ds = p * (dy @ v.transpose(0, 2, 1) - delta) * 0.125
    (f,) = filled(m, [m.get(m.symbols["bytes"], (), "i4")], "fill", [
        *at, m.put(np.log(sums).astype("f4")), m.put(delta.astype("f4")), *outs, 2, queries, keys, causal])  # fmt: skip
    # 128 queries or 64 keys, two stages of two tiles of 32, rows of 144 bytes (QueryTile, KeyTile)
    m.launch("query_gradients_mma", 2, 128, [f], 144 * (2 * 128 + 128))
    m.launch("key_gradients_mma", 2, 128, [f], 144 * (2 * 64 + 128))
    for out, x in zip(outs, (ds @ k, ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ dy), strict=True):
        yield np.abs(from_bf16(m.get(out, x.shape, "u2")) - x).max() / np.abs(x).max()


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_backward(ptx, causal):
    errors = list(attention_backward(ptx["attention_backward"], causal=causal))
    print("attention_backward: dq {:.1e}, dk {:.1e}, dv {:.1e}".format(*errors))
    assert max(errors) < 0.01


def gemm(text, rows=40, columns=70, depth=24, **how):
    m = Machine(text, **how)
    a, b, bias = random(rows, depth).astype("f2"), random(columns, depth, seed=1).astype("f2"), random(columns, seed=2)
    c = m.put(np.zeros((rows, columns), "f2"), False)
    sizes = [int(n) for n in re.findall(r"gemm_tiles\w+_param_\d\[(\d+)\]", text)[:2]]
    args = filled(m, sizes, "fill", [m.put(a), m.put(b), c, m.put(bias), rows, columns, depth])
    m.launch("gemm_tiles", -(-rows // 64) * -(-columns // 64), 256, args)
    x = 0.5 * a.astype("f8") @ b.astype("f8").T + bias
    return np.abs(m.get(c, x.shape, "f2") - x / (1 + np.exp(-x))).max()


def test_gemm(ptx):
    error = gemm(ptx["gemm"])
    print(f"gemm: {error:.1e}")
    assert error < 4e-3


def group_norm(text, channels=32, groups=4, of_chunk=2, threads=128, slices=2, space=250, cluster=2, kept=0, **how):
    """Held in registers (held_groups), or in `kept` bytes of shared memory (kept_groups)."""
    m = Machine(text, **how)
    x = to_bf16(random(2, space, channels) + 3)
    weight, bias = random(channels, seed=1), random(channels, seed=2)
    y, mean, rstd = m.put(np.zeros_like(x), False), m.put(np.zeros(2 * groups, "f4"), False), m.put(bias[:8], False)
    args = [m.put(x), y, m.put(weight), m.put(bias), mean, rstd, 2, space, channels, groups, of_chunk]
    sizes = m.get(m.symbols["bytes"], 3, "i4")
    c, hold, keep = filled(m, sizes, "fill", [*args, cluster.bit_length() - 1, threads, slices])
    columns = of_chunk * channels // groups // 8
    shared = kept or 4 * (2 * (threads + columns * 8) + 64 + 4 * of_chunk)  # Hold::numbers
    kernel, args = ("kept_groups", [c, keep]) if kept else ("held_groups", [c, hold])
    m.launch(kernel, 2 * groups // of_chunk * cluster, threads, args, shared, cluster)
    x = from_bf16(x).astype("f8").reshape(2, space, groups, -1)
    z = (x - x.mean((1, 3), keepdims=True)) / np.sqrt(x.var((1, 3), keepdims=True) + 1e-5)
    z = z.reshape(2, space, channels) * weight + bias
    off = np.abs(m.get(mean, (2, groups), "f4") - x.mean((1, 3))).max()
    return np.abs(from_bf16(m.get(y, z.shape, "u2")) - z / (1 + np.exp(-z))).max(), off


KEPT = {"kept": 60000, "space": 590}


@pytest.mark.parametrize(
    "how",
    [{}, {"cluster": 1, "space": 120}, {"cluster": 4, "backwards": True},
     {"channels": 24, "groups": 2, "threads": 192, "slices": 3},  # groups that end within a vector
     KEPT, KEPT | {"cluster": 4, "backwards": True}],
)  # fmt: skip
def test_group_norm(ptx, how):
    error, off = group_norm(ptx["group_norm"], **how)
    print(f"group_norm {how}: y {error:.1e}, mean {off:.1e}")
    assert error < 0.04 and off < 1e-5  # of results up to 8, with 8 bits


def layer_norm(text, rows, cols, group, width, **how):
    m = Machine(text, **how)
    x, weight, bias = (to_bf16(v) for v in (random(rows, cols) + 2, random(cols, seed=1), random(cols, seed=2)))
    y, mean, rstd = m.put(np.zeros_like(x), False), m.put(random(rows), False), m.put(random(rows), False)
    args = [m.put(x), y, m.put(weight), m.put(bias), mean, rstd, rows, cols]
    args = filled(m, m.get(m.symbols["bytes"], 2, "i4"), "fill", args)
    m.launch(f"of_pairILb1ENS_8BFloat16ES2_Li{group}E", -(-rows * width // 256), 256, [*args, width])
    x, weight, bias = (from_bf16(v).astype("f8") for v in (x, weight, bias))
    z = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    return np.abs(from_bf16(m.get(y, z.shape, "u2")) - z).max(), np.abs(m.get(mean, rows, "f4") - x.mean(1)).max()


@pytest.mark.parametrize("how", [(13, 320, 32, 16), (3, 1544, 256, 256)])
def test_layer_norm(ptx, how):
    error, off = layer_norm(ptx["row_norm"], *how)
    print(f"layer_norm {how}: y {error:.1e}, mean {off:.1e}")
    assert error < 0.04 and off < 1e-5


def number_of(code, mantissa, bias):
    """Of a float8 code, bit by bit (OCP 8-bit floating point specification, 5.1)."""
    exponent, part = code >> mantissa & (1 << 7 - mantissa) - 1, code & (1 << mantissa) - 1
    if exponent == (1 << 7 - mantissa) - 1 and (mantissa == 2 or part == 7):
        size = float("inf") if mantissa == 2 and part == 0 else float("nan")
    else:
        size = (part / 2**mantissa + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
    return -size if code & 0x80 else size


@pytest.mark.parametrize("name, mantissa, bias, largest", [("10Float8E4M3", 3, 7, 448), ("10Float8E5M2", 2, 15, 57344)])
def test_every_float8_code(ptx, name, mantissa, bias, largest):
    """All codes to float16 and all of float16's numbers to codes: nearest, ties to even, saturated."""
    m = Machine(ptx["fp8"])
    numbers = np.array([number_of(code, mantissa, bias) for code in range(256)])
    one, wide = m.put(np.ones(1, "f4")), m.put(np.zeros(256, "f2"), False)
    codes = m.put(np.arange(256, dtype="u1"))
    m.launch(f"widenedINS_{name}", 1, 256, [codes, wide, one, 256, 256, 0])
    np.testing.assert_array_equal(m.get(wide, 256, "f2"), numbers)

    x = np.arange(1 << 16).astype("u2").view("f2")
    codes = m.put(np.zeros(len(x), "u1"), False)
    m.launch(f"scaled_elementsINS_4HalfENS_{name}", 32, 256, [m.put(x), codes, one, len(x)])
    codes = m.get(codes, len(x), "u1").astype(int)
    assert np.isnan(numbers[codes[np.isnan(x)]]).all()
    real = ~np.isnan(x)
    x, codes = np.clip(x[real].astype("f8"), -largest, largest), codes[real]
    assert (np.signbit(x) == codes >> 7).all()
    finite = np.array([code for code in range(128) if np.isfinite(numbers[code])])
    apart = np.abs(np.abs(x)[:, None] - numbers[finite])
    least = apart.min(1)
    assert (apart[np.arange(len(x)), codes & 127] == least).all()
    tied = (apart == least[:, None]).sum(1) > 1
    assert tied.any() and (codes[tied] % 2 == 0).all()

    # A cast's bits are the CPU's: around all of float16's numbers, which are what float8 rounds to and away from.
    x = np.arange(1 << 16).astype("u2").view("f2").astype("f4").view("u4")
    x = np.concatenate([x - 1, x, x + 1]).astype("u4")
    both = m.put(np.zeros(len(x), "u2"), False)
    m.launch(f"cast_{name[2:]}", len(x) // 256, 256, [m.put(x), both])
    both = m.get(both, len(x), "u2")
    np.testing.assert_array_equal(both >> 8, both & 255)
    assert len(np.unique(both)) > 250


def test_float8_rows(ptx):
    m = Machine(ptx["fp8"])
    x = to_bf16(random(3, 520) * [[1], [1e-3], [50]])
    codes, scale = m.put(np.zeros(x.shape, "u1"), False), m.put(np.zeros(3, "f4"), False)
    m.launch("measured_rows", 3, 256, [m.put(x), codes, scale, 520])
    x, scale, codes = from_bf16(x), m.get(scale, 3, "f4"), m.get(codes, x.shape, "u1")
    np.testing.assert_array_equal(scale, np.abs(x).max(1) / np.float32(448))
    numbers = np.array([number_of(code, 3, 7) for code in range(256)])
    apart = np.abs((x / scale[:, None])[..., None].astype("f8") - np.where(np.isnan(numbers), np.inf, numbers))
    assert (np.take_along_axis(apart, codes[..., None].astype(int), 2)[..., 0] == apart.min(2)).all()


NF4 = """-1 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635 -0.18477343022823334
-0.09105003625154495 0 0.07958029955625534 0.16093020141124725 0.24611230194568634 0.33791524171829224
0.44070982933044434 0.5626170039176941 0.7229568362236023 1"""  # QLoRA, appendix E


def nf4(text, n=9 * 1024 + 300, **how):
    m = Machine(text, **how)
    codes, sizes = np.random.default_rng(0).integers(0, 256, n // 2).astype("u1"), np.abs(random(-(-n // 64)))
    scales = np.array([m.put(sizes), 0, 0, 6], "i8").tobytes()
    y = m.put(np.zeros(n, "u2"), False)
    m.launch("nibble_numbers", -(-n // 8192), 256, [m.put(codes), scales, y, n, 0, 1])
    numbers = np.array(NF4.split(), "f4")[np.stack([codes >> 4, codes & 15], 1).reshape(-1)]
    return (m.get(y, n, "u2") != to_bf16(numbers * np.repeat(sizes, 64)[:n])).sum()


def test_nf4(ptx):
    assert nf4(ptx["nf4"]) == 0


def swapped(text):
    """The first two registers of the first operand of each mma of bfloat16."""
    return re.sub(r"(mma\.\S+bf16\.f32 \{[^}]*\}, \{)(%r\d+), (%r\d+)", r"\1\3, \2", text)


# what is broken, how, what says so: a fault, or a result that is wrong by more than the tolerance above
BROKEN = {
    "fragments of mma": ("attention", attention, swapped, 0.02),
    "ldmatrix without .trans": ("attention", attention, other(r"\.trans\.", "."), 0.02),
    "no wait for copies": ("attention", attention, other(r"cp\.async\.wait_group 0;", ""), "still bringing"),
    "one group left": ("attention", attention, other("wait_group 0", "wait_group 1"), "still bringing"),
    "no barrier in attention": ("attention", attention, other(r"bar\.sync\s+0;", ""), "nothing|a race"),
    "first barrier of gemm": ("gemm", gemm, without(r"bar\.sync"), "nothing|a race"),
    "second barrier of gemm": ("gemm", gemm, without(r"bar\.sync", 1), "a race"),
    "lanes of a shuffle": ("attention", attention, other(r"(shfl\.sync\.bfly\S+\s+\S+ %r\d+), %r\d+", r"\1, 4"), 0.02),
    "mask of a shuffle": ("nf4", nf4, other(r"(shfl\.sync.*), [^,]*;", r"\1, 65535;"), "names other threads"),
    "from a lane": ("nf4", nf4, other(r"(shfl\.sync.*), [^,]*(, [^,]*;)", r"\1, 15\2"), 0),
    "a group of copies": ("group_norm", lambda text, **how: group_norm(text, **KEPT, **how),
                          other("wait_group 2", "wait_group 3"), "still bringing"),
    "no wait for the cluster": ("group_norm", group_norm, without(r"barrier\.cluster\.wait"), "nothing|a race"),
    "no last wait": ("group_norm", group_norm, without(r"barrier\.cluster\.wait", 1), "out of bounds"),
    "no release": ("group_norm", group_norm, other("arrive.release", "arrive.relaxed"), "a race"),
    "another block": ("group_norm", group_norm, other(r"(mapa\S+ %r\d+, %r\d+), %r\d+", r"\1, 0"), 0.04),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_code_is_found(ptx, name):
    edits.check(ptx, *BROKEN[name])


def test_an_unknown_instruction_is_named(ptx):
    with pytest.raises(Fault, match=r"unknown instruction fma\.rz\.f32"):
        gemm(ptx["gemm"].replace("fma.rn.f32", "fma.rz.f32"))


def test_accesses_are_checked(ptx):
    m = Machine(ptx["nf4"])
    scales = np.array([m.put(np.ones(1, "f4")), 0, 0, 6], "i8").tobytes()
    with pytest.raises(Fault, match="out of bounds"):
        y = m.put(np.zeros(1000, "u2"))
        m.launch("nibble_numbers", 1, 256, [m.put(np.zeros(512, "u1")), scales, y, 1024, 0, 1])
    with pytest.raises(Fault, match="no multiple of 16"):
        y = m.put(np.zeros(1024, "u2"))
        m.launch("nibble_numbers", 1, 256, [m.put(np.zeros(520, "u1")) + 4, scales, y, 1024, 0, 1])
