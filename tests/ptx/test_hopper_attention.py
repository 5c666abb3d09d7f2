"""Attention by warpgroups (ops/attention/attention_wgmma.cuh), run from its PTX."""

import edits
import numpy as np
import pytest
from edits import inside, instead, other, without
from inputs import filled, random
from instructions import from_bf16, to_bf16
from machine import Machine


def attention(
    text, dtype="BFloat16", tiles=64, width=64, queries=200, keys=290, causal=0, masked=0, blocks=1, shared=2, **how
):
    """Of two heads that share `shared`-wise their keys, in memory beside each other: the largest errors of the result
    and of the logarithms of the sums."""
    m = Machine(text, **how)
    narrow, widen = (to_bf16, from_bf16) if dtype == "BFloat16" else (lambda x: x.astype("f2"), lambda x: x)
    heads = (2, 2 // shared, 2 // shared)
    q, k, v = (narrow(random(n, h, width, seed=i)) for i, (n, h) in enumerate(zip((queries, keys, keys), heads)))
    mask = random(queries, keys, seed=4) if masked else np.zeros((queries, keys))
    if masked:
        mask[3] = mask[5, :250] = -np.inf
    y, lse = m.put(np.zeros_like(q), False), m.put(np.zeros((2, queries), "f4"), False)
    bytes_of_shared, rows, of_keys = m.get(m.symbols[f"tile_{tiles}"], (3,), "i4").tolist()
    size = m.get(m.symbols["bytes_" + dtype], (), "i4")
    at = m.put(mask.astype("f4")) if masked else 0
    (f,) = filled(m, [size], "fill_" + dtype, [y, lse, at, 2, shared, queries, keys, width, causal, rows])
    maps = []
    for x, box in ((q, rows), (k, of_keys), (v, of_keys)):
        row = 2 * x.shape[1] * width
        maps.append(m.heads_map(m.put(x), 2, (1, x.shape[1], len(x), width), (row * len(x), 2 * width, row), box))
    kernel = f"attention_wgmmaINS_{len(dtype)}{dtype}ELi{tiles}ELb{masked}E"
    m.launch(kernel, blocks, 512 if rows == 192 else 384, [*maps, f], bytes_of_shared)
    q, k, v = (widen(x).astype("f8").transpose(1, 0, 2) for x in (q, k, v))
    k, v = (np.repeat(x, 2 // len(x), 0) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) * 0.125 + mask
    if causal:
        scores = np.where(np.arange(keys) > np.arange(queries)[:, None], -np.inf, scores)
    weights = np.exp(scores)
    sums = weights.sum(-1, keepdims=True)
    seen = sums > 0
    want = np.where(seen, weights, 0) / np.where(seen, sums, 1) @ v
    y = widen(m.get(y, (queries, 2, width), "u2" if dtype == "BFloat16" else "f2")).astype("f8").transpose(1, 0, 2)
    logarithms = np.where(seen, np.log(np.where(seen, sums, 1)), 0)
    return np.abs(y - want).max(), np.abs(m.get(lse, sums.shape, "f4") - logarithms).max()


@pytest.mark.parametrize(
    "how",
    [{}, {"causal": 1, "blocks": 2, "backwards": True}, {"keys": 700, "queries": 20, "backwards": True},
     {"dtype": "Half", "tiles": 48, "width": 40, "blocks": 3}, {"dtype": "Half", "tiles": 80, "width": 72, "masked": 1},
     {"tiles": 128, "width": 128, "queries": 130, "shared": 1},
     {"tiles": 160, "width": 136, "queries": 70, "blocks": 2}],
)  # fmt: skip
def test_attention_by_warpgroups(ptx, how):
    y, lse = attention(ptx["attention_wgmma"], **how)
    print(f"attention by warpgroups {how}: y {y:.1e}, lse {lse:.1e}")
    assert y < (2.5e-3 if how.get("dtype") == "Half" else 0.02) and lse < 1e-5


def of_64(edit, said):
    return "attention_wgmma", attention, inside("8BFloat16ELi64ELb0E", edit), said


WAIT = r"wgmma\.wait_group\.sync\.aligned"
# what is broken, how, what says so: a fault, or a result that is wrong by more
BROKEN = {
    "scores taken too soon": of_64(without(WAIT + " 1"), "belongs to a wgmma"),
    "weights changed under a product": of_64(without(WAIT + " 0", 1), "belongs to a wgmma"),
    "no last wait": of_64(without(WAIT + " 0", -1), "belongs to a wgmma"),
    "no fence of weights": of_64(without("wgmma.fence", -1), "touched the registers"),
    "values as rows along k": of_64(other(r"(m64n64k16.*), 1, 1, 1, 1;", r"\1, 1, 1, 1, 0;"), "bringing"),
    "head and batch": of_64(other(r"\{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\}\]", r"{\1, \2, \4, \3}]"), 0.05),
    "row and column": of_64(other(r"\{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\}\]", r"{\2, \1, \3, \4}]"), 0.05),
    "no wait for copies": of_64(instead("mbarrier.try_wait", "setp.eq.u32 p, 0, 0;", -1), "bringing|nothing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_attention_is_found(ptx, name):
    edits.check(ptx, *BROKEN[name])
