"""Kernels of compute capability 9.0a, run from their PTX, and what is wrong in broken ones (docs/internals/cuda.md)."""

import math
import re

import edits
import numpy as np
import pytest
from edits import inside, instead, later, other, without
from inputs import codes, filled, random
from instructions import float8, from_bf16, to_bf16
from machine import Machine
from program import Fault


def ring(text, dtype="BFloat16", tile=80, groups=1, m=100, n=150, k=184, swizzle=128, cluster=1, blocks=2, **how):
    """Tiles of 64 * groups x tile by TMA and wgmma; the blocks of a cluster share rows of b."""
    machine = Machine(text, **how)
    narrow, widen = (to_bf16, from_bf16) if dtype == "BFloat16" else (lambda x: x.astype("f2"), lambda x: x)
    a, b, c = narrow(random(m, k)), narrow(random(n, k, seed=1)), machine.put(np.zeros((m, n), "f4"), False)
    boxes = ((a, 64 * groups), (b, tile // cluster))
    maps = [machine.tensor_map(machine.put(x), 2, *x.shape, 2 * k, rows, 64, swizzle) for x, rows in boxes]
    problem = b"".join(maps) + np.array([c], "i8").tobytes() + np.array([m, n, k], "i4").tobytes()
    shared = 2 * 128 * (64 * groups + tile)
    kernel = f"{len(dtype)}{dtype}ELi{tile}ELi{groups}ELi{cluster}"
    machine.launch(kernel, blocks, 128 * (groups + 1), [problem.ljust(384)], shared, cluster)
    return np.abs(machine.get(c, (m, n), "f4") - widen(a).astype("f8") @ widen(b).astype("f8").T).max()


CLUSTER = {"cluster": 2, "k": 312}
LARGE = {"tile": 128, "groups": 2, "m": 150, "n": 264, "backwards": True}


@pytest.mark.parametrize(
    "how",
    [{}, LARGE, LARGE | {"dtype": "Half"}, CLUSTER | {"m": 200, "blocks": 4, "k": 184}, CLUSTER | LARGE,
     CLUSTER | {"n": 80, "backwards": True}],
)  # fmt: skip
def test_ring(ptx, how):
    error = ring(ptx["warpgroup"], **how)
    print(f"ring {how}: {error:.1e}")
    assert error < 1e-4


def stored(text, kind="bf16", **how):
    m = Machine(text, **how)
    a, b, c = to_bf16(random(64, 64)), to_bf16(random(8, 64, seed=1)), random(64, 8, seed=2)
    widen = [lambda x: from_bf16(x).astype("f8")] * 2
    if kind == "e5m2":
        a, b, widen = (
            codes(64, 128),
            codes(8, 128, seed=1, low=56, high=68),
            (float8("e4m3x2").take, float8("e5m2x2").take),
        )
    at = m.put(c)
    m.launch("stored_" + kind, 1, 128, [m.put(a), m.put(b), at])
    y = c - widen[0](a) @ widen[1](b).T
    return np.abs(m.get(at, (64, 8), "f4") - y).max() / np.abs(y).max()


@pytest.mark.parametrize("kind", ["bf16", "e5m2"])
def test_products_of_stored_matrices(ptx, kind):
    assert stored(ptx["warpgroup"], kind) < 1e-5


def gates(act, z):
    return 1 / (1 + np.exp(-z)) if act == "silu" else 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


def linear(
    text,
    dtype="BFloat16",
    groups=2,
    sums=160,
    act="",
    m=150,
    n=168,
    k=136,
    blocks=1,
    wide=False,
    scaled=0,
    cluster=1,
    **how,
):
    """A linear layer with residual, or one whose gate is half of its columns: the error, as a part of the largest."""
    machine, float8s = Machine(text, **how), dtype == "Float8E4M3"
    result, name = ("BFloat16", "NS_8BFloat16E") if float8s else (dtype, "S2_")
    narrow, widen = (to_bf16, from_bf16) if result == "BFloat16" else (lambda x: x.astype("f2"), lambda x: x)
    a, b, gate = ((codes if float8s else random)(*s, seed=i) for i, s in enumerate([(m, k), (n, k), (n, k)]))
    a, b, gate = (x if float8s else narrow(x) for x in (a, b, gate))
    r, bias, gate_bias = narrow(random(m, n, seed=3)), random(n, seed=5), random(n, seed=6)
    scales = (np.abs(random(m if scaled & 1 else 1, seed=7)) / 99, np.abs(random(n if scaled & 2 else 1, seed=8)) / 99)
    stored = (lambda x: x) if wide else narrow
    c, rows, columns = machine.put(np.zeros((m, n), r.dtype), False), 64 * groups, sums // (2 if act else 1)
    numbers = [m, n, k * a.itemsize, rows, columns, machine.put(stored(bias)), machine.put(stored(gate_bias)), wide]
    numbers += [0 if act else machine.put(r), c, *(machine.put(x) if float8s else 0 for x in scales)]
    size = machine.get(machine.symbols["bytes"], (), "i4")
    (g,) = filled(machine, [size], "fill", [*numbers, scaled & 1, scaled >> 1, cluster])
    boxes = ((a, rows), (b, columns // cluster), (gate, columns // cluster))
    item = a.itemsize
    maps = [machine.tensor_map(machine.put(x), item, *x.shape, item * k, box, 128 // item) for x, box in boxes]
    number = {"": 0, "gelu": 2, "silu": 4}[act]
    stages = min(8, ((227 << 10) - 1280) // (128 * (rows + sums)))
    shared = 1280 + stages * 128 * (rows + sums)
    kernel = f"wgmma_productINS_{len(dtype)}{dtype}E{name}Li{groups}ELi{sums}ELNS_10ActivationE{number}E"
    machine.launch(kernel, blocks, 128 * (groups + 1), [*maps, g], shared, cluster)
    a, b, gate = (float8("e4m3x2")[x] if float8s else widen(x).astype("f8") for x in (a, b, gate))
    if float8s:
        a, b = a * scales[0][:, None], b * scales[1][:, None]
    bias, gate_bias = (x if wide else widen(narrow(x)) for x in (bias, gate_bias))
    y, z = 0.5 * a @ b.T + bias, 0.5 * a @ gate.T + gate_bias
    y = y + 2 * widen(r).astype("f8") if not act else y * z * gates(act, z)
    return np.abs(widen(machine.get(c, (m, n), r.dtype)) - y).max() / np.abs(y).max()


@pytest.mark.parametrize(
    "how",
    [{}, {"sums": 256, "n": 264, "k": 72, "blocks": 2, "backwards": True},
     {"dtype": "Half", "groups": 1, "sums": 80, "k": 584, "wide": True},  # ten steps: the ring goes round
     {"sums": 256, "act": "gelu", "n": 136, "k": 72}, {"dtype": "Half", "groups": 1, "act": "silu", "n": 88},
     {"dtype": "Float8E4M3", "k": 272, "scaled": 3, "blocks": 2},
     {"cluster": 2, "blocks": 2, "k": 328}, {"cluster": 2, "blocks": 4, "sums": 256, "n": 264, "backwards": True},
     {"cluster": 2, "blocks": 2, "dtype": "Half", "groups": 1, "act": "silu", "k": 264},
     {"dtype": "Float8E4M3", "k": 144, "m": 70, "n": 40}],
)  # fmt: skip
def test_linear_by_warpgroups(ptx, how):
    error = linear(ptx["wgmma_product"], **how)
    print(f"linear by warpgroups {how}: {error:.1e}")
    assert error < 2.0 ** (-11 if how.get("dtype") == "Half" else -8)  # half a unit in the last place


ENDED, TOUCHED = "setp.eq.u32 p, 0, 0;", "wgmma.fence.sync.aligned;\nadd.f32 %f9, %f9, %f9;"


def of_pair(edit, said):
    """Of a ring of two blocks."""
    return "warpgroup", lambda text, **how: ring(text, **CLUSTER, **how), inside("8BFloat16ELi80ELi1ELi2", edit), said


FIRST, LAST = (
    rf"barrier\.cluster\.arrive\.{how};\s*barrier\.cluster\.wait\.acquire;" for how in ("relaxed", "release")
)
LEAVE = "{ .reg .pred q; .reg .b32 z; mov.u32 z, %cluster_ctarank; setp.eq.u32 q, z, 1; @q ret; }"
# what is broken, how, what says so: a fault, or a result that is wrong by more
BROKEN = {
    "no wait for boxes": ("warpgroup", ring, instead("mbarrier.try_wait", ENDED, 1), "still bringing|nothing"),
    "no wait for an empty stage": ("warpgroup", ring, instead("mbarrier.try_wait", ENDED), "a race|still bringing"),
    "an early arrival": ("warpgroup", ring, later("wgmma.wait_group"), "a race"),
    "one group of products left": ("warpgroup", ring, other("wait_group.sync.aligned 0", "wait_group.sync.aligned 1"),
                                   "a race"),
    "no wait for products": ("warpgroup", ring, without("wgmma.wait_group"), "a race|not waited for"),
    "no wait for sums": ("warpgroup", stored, without("wgmma.wait_group", -1), "belongs to a wgmma"),
    "no end of a group": ("warpgroup", stored, without("wgmma.commit_group", -1), "belongs to a wgmma"),
    "no fence of sums": ("warpgroup", ring, without("wgmma.fence"), "no wgmma.fence before"),
    "sums touched": ("warpgroup", stored, instead("wgmma.fence", TOUCHED, -1), "touched the registers"),
    "mode of a swizzle": ("warpgroup", ring, other("4611686293305360384", str(2 << 62 | 64 << 32 | 1 << 16)), "mode 2"),
    "distance of rows": ("warpgroup", ring, other("4611686293305360384", str(1 << 62 | 32 << 32 | 1 << 16)), 1e-4),
    "more bytes": ("warpgroup", ring, other(r"(mov.u32\s+%r\d+), 18432", r"\1, 18448"), "misses 0 arrivals, 16 bytes"),
    "fewer bytes": ("warpgroup", ring, other(r"(mov.u32\s+%r\d+), 18432", r"\1, 8192"), "still bringing"),
    "more arrivals": ("warpgroup", ring, other(r"(mov.u32\s+%r\d+), 4(;\s*mbarrier.init)", r"\1, 5\2"),
                      "misses 1 arrivals, 0 bytes"),
    "fewer arrivals": ("warpgroup", lambda text, **how: ring(text, k=504, **how),
                       other(r"(mov.u32\s+%r\d+), 4(;\s*mbarrier.init)", r"\1, 3\2"), "a race"),
    "no fence of barriers": ("warpgroup", ring, without("fence.mbarrier_init"), "no fence between"),
    "no barrier behind them": ("warpgroup", ring, without(r"bar\.sync"), "not initialized|a race"),
    "no fence of stores": ("warpgroup", stored, without("fence.proxy.async", -1), "no fence between"),
    "row and column": ("warpgroup", ring, other(r"\{(%r\d+), (%r\d+)\}\]", r"{\2, \1}]"), 1e-4),
    "another parity": ("warpgroup", ring, other(r"(xor\.b32\s+%r\d+, %r\d+), 1;", r"\1, 0;"), "misses"),
    "no last barrier of a cluster": of_pair(other(LAST, ""), "has ended|done with its shared memory"),
    "a last one that is relaxed": of_pair(other("arrive.release;", "arrive.relaxed;"), "done with its shared memory"),
    "no first barrier of a cluster": of_pair(other(FIRST, "bar.sync 0;"), "not initialized|made this mbarrier"),
    "a copy into a block that ended": of_pair(other(f"({FIRST})", rf"\1 {LEAVE}"), "of a block that has ended"),
    "no fence before a relaxed barrier": of_pair(without("fence.mbarrier_init"), "made this mbarrier"),
    "no arrival in the other block": of_pair(without(r"mbarrier\.arrive\.release\.cluster", 1), "misses 4 arrivals"),
    "two in one's own": of_pair(other(r"(?s)(mapa\S+ \S+ \S+ )(%r\d+)(.*?mapa\S+ \S+ \S+ )%r\d+", r"\1\2\3\2"),
                              "a race|bringing"),
    "an arrival for one's own block": of_pair(other("arrive.release.cluster.sh", "arrive.release.cta.sh"), "a race"),
    "a wait for one's own block": of_pair(other("acquire.cluster", "acquire.cta"), "a race"),
    "an early arrival in a pair": of_pair(later("wgmma.wait_group"), "a race"),
    "a copy for one block": of_pair(other(r"(mov.u16\s+%rs\d+), 3;", r"\1, 1;"), "misses 0 arrivals"),
    "a copy for a third block": of_pair(other(r"(mov.u16\s+%rs\d+), 3;", r"\1, 7;"), "not in the cluster"),
    "bytes of one block": of_pair(other(r"(mov.u32\s+%r\d+), 18432;", r"\1, 13312;"), "bringing|nothing was written"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_code_is_found(ptx, name):
    edits.check(ptx, *BROKEN[name])


def test_maps_are_checked(ptx):
    assert ring(ptx["warpgroup"], swizzle=0) > 1
    m = Machine(ptx["warpgroup"])
    for args, said in (
        ((8, 2, 64, 64, 128, 64, 64), "multiple of 16"),
        ((0, 2, 64, 64, 136, 64, 64), "multiple of 16"),
        ((0, 2, 512, 64, 128, 257, 64), "1 to 256"),
        ((0, 2, 64, 4, 128, 64, 4), "multiple of 16 bytes"),
        ((0, 2, 64, 128, 256, 64, 128), "do not fit"),
    ):
        with pytest.raises(Fault, match=said):
            m.tensor_map(*args)
    with pytest.raises(Fault, match="no tensor map is there"):
        problem = bytes(256) + np.array([0, 9 << 32 | 9, 9], "i8").tobytes()
        m.launch("BFloat16ELi80ELi1ELi1", 1, 256, [problem.ljust(384)], 36864)


def snippet(body, warps=1, cluster=1, **how):
    """Runs this on mbarriers `bar` and shared words `words`, %r0 the thread, %r1 its lane, %r2 its warp."""
    text = (
        """.visible .entry snippet(
        .param .u64 snippet_param_0
        )
        { .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
        .shared .align 8 .b8 bar[32]; .shared .align 1024 .b8 words[8192];
        mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5;
        setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r2, 0; setp.eq.u32 %p3, %r2, 1;
        """
        + body.replace("arrive ", "mbarrier.arrive.release.cta.shared::cta.b64 _, ")
        .replace("init ", "mbarrier.init.shared::cta.b64 ")
        .replace("try ", "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 ")
        + " ret; }"
    )
    Machine(text, (1 << 22) + 4096, **how).launch("snippet", cluster, 32 * warps, [0], 0, cluster)


ORDERED = """@%p1 init [bar], 1; bar.sync 0; @%p3 bra $read;
    setp.eq.u32 %p4, %r1, 1; @%p4 st.shared.u32 [words], %r0; SYNC @%p1 arrive [bar]; ret;
    $read: try %p5, [bar], 0; @!%p5 bra $read; ld.shared.u32 %r3, [words];"""
CHAIN = """@%p1 init [bar], 1; @%p1 init [bar+8], 1; bar.sync 0; @%p3 bra $second; @!%p2 bra $third;
    @%p1 st.shared.u32 [words], %r0; @%p1 arrive [bar]; ret;
    $second: try %p5, [bar], 0; @!%p5 bra $second; @%p0 arrive [bar+8]; ret;
    $third: try %p5, [WHICH], 0; @!%p5 bra $third; ld.shared.u32 %r3, [words];"""
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, "
STAGED = """mov.u64 %rd1, 4611686293305360384; mov.u64 %rd2, words; shr.u64 %rd2, %rd2, 4; or.b64 %rd1, %rd1, %rd2;
    shl.b32 %r3, %r0, 6; mov.u32 %r4, words; add.u32 %r4, %r4, %r3; mov.u32 %r5, 0; AT0 AT16 AT32 AT48
    fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned; """
STAGED = re.sub(r"AT(\d+)", r"st.shared.v4.u32 [%r4+\1], {%r5, %r5, %r5, %r5};", STAGED)


@pytest.mark.parametrize(
    "body, warps, said",
    [(ORDERED.replace("SYNC", "bar.warp.sync 0xffffffff;"), 2, None), (ORDERED.replace("SYNC", ""), 2, "a race"),
     (CHAIN.replace("WHICH", "bar+8"), 3, None), (CHAIN.replace("WHICH", "bar"), 3, None),
     (CHAIN.replace("WHICH", "bar").replace("$third: ", "$third: ld.shared.u32 %r3, [words]; "), 3, "nothing|a race"),
     ("@%p1 st.shared.u32 [words], %r0; @%p3 bra $w; bar.sync 1, 64; ld.shared.u32 %r3, [words]; $w:", 3, None),
     ("bar.sync 1, 64;", 3, "some never reach"),
     ("@%p1 arrive [bar];", 1, "not initialized"), ("@%p1 init [bar+4], 1;", 1, "not on 8 bytes"),
     ("@%p1 init [bar], 1; @%p1 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 16; "
      "@%p1 arrive [bar];", 1, "1 arrivals where an mbarrier's phase misses 0"),
     ("@%p1 init [bar], 3; @%p1 arrive [bar], 4;", 1, "4 arrivals where an mbarrier's phase misses 3"),
     ("@%p1 init [bar], 1; @%p1 init [bar], 1;", 1, "in use"), ("@%p1 init [bar], 0;", 1, "so many"),
     ("@%p1 init [bar], 1; ld.shared.u32 %r3, [bar+4];", 1, "ordinary access"),
     ("@%p1 init [bar], 1; @%p1 st.shared.u32 [bar], %r0;", 1, "ordinary access"),
     ("@%p1 init [bar], 2; @%p1 arrive [bar]; $w: try %p5, [bar], 0; @!%p5 bra $w;", 1, "misses 1 arrivals"),
     ("@%p1 init [bar], 1; $w: try %p5, [bar], 1; @!%p5 bra $w;", 1, None),  # the phase before the first one
     ("{ .reg .pred p; setp.ge.u32 p, %r0, 0; { .reg .b32 p; mov.u32 p, 7; } @p bra here; here: } mov.u32 %r3, 1;"
      "{ .reg .b32 p; mov.u32 p, 7; bra here; here: } st.shared.u32 [words], %r3;", 1, None),
     ("setmaxnreg.dec.sync.aligned.u32 20;", 4, "from 24 to 256"), ("setmaxnreg.dec.sync.aligned.u32 24;", 2, "whole"),
     ("@%p2 bra $w; setmaxnreg.dec.sync.aligned.u32 24; $w:", 4, "not all of its warpgroup"),
     ("setmaxnreg.dec.sync.aligned.u32 24; setmaxnreg.inc.sync.aligned.u32 256;", 12, "than there are"),
     (STAGED + PRODUCT + "0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", 4, None),
     (STAGED + PRODUCT + "0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;", 4, "ended with wgmma"),
     (STAGED + PRODUCT + "0, 1, 1, 1, 0;", 4, "transposed"), (STAGED + PRODUCT + "1, 1, 1, 0, 0;", 4, "never written"),
     (STAGED + "add.u64 %rd1, %rd1, 8;" + PRODUCT + "0, 1, 1, 0, 0;", 4, "1024 bytes"),
     (STAGED + "setp.gt.u32 %p4, %r2, 1;" + PRODUCT + "%p4, 1, 1, 0, 0;", 4, "never written|disagree"),
     (STAGED + "@%p2 bra $w;" + PRODUCT + "0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; "
      "wgmma.wait_group.sync.aligned 0; $w:", 4, "in 3 of 4 warps"),
     (STAGED + PRODUCT + "0, 1, 1, 0, 0; st.shared.u32 [%r4], %r5;", 4, "under way"),
     (STAGED + PRODUCT + "0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; mov.f32 %f3, 0f00000000;", 4, "belongs")],
)  # fmt: skip
@pytest.mark.parametrize("backwards", [False, True])
def test_snippets(body, warps, said, backwards):
    if said is None:
        return snippet(body, warps, backwards=backwards)
    with pytest.raises(Fault, match=said):
        snippet(body, warps, backwards=backwards)


# of two blocks: %r5 and %r6 are the mbarrier and the words of the other one
PAIR = """mov.u32 %r3, %cluster_ctarank; xor.b32 %r3, %r3, 1; mov.u32 %r5, bar; mov.u32 %r6, words;
    mapa.shared::cluster.u32 %r5, %r5, %r3; mapa.shared::cluster.u32 %r6, %r6, %r3; @%p1 init [bar], 1; """
MEET = "barrier.cluster.arrive.HOW; barrier.cluster.wait.acquire; "
RELEASE, RELAXED = MEET.replace("HOW", "release"), MEET.replace("HOW", "relaxed")
THERE = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5]; "
FENCE, STORE, LOAD = "fence.mbarrier_init.release.cluster; ", "@%p1 st.shared.u32 [words], %r0; ", "ld.shared::cluster"
LOAD += ".u32 %r4, [%r6]; "
AWAIT = "$w: mbarrier.try_wait.parity.acquire.SCOPE.shared::cta.b64 %p5, [bar], 0; @!%p5 bra $w; "


@pytest.mark.parametrize(
    "body, said",
    [(RELEASE + THERE + RELEASE, None), (FENCE + RELAXED + THERE + RELEASE, None), (RELAXED + THERE, "made this"),
     (THERE, "not initialized|made this"), (RELEASE + THERE + RELAXED, "done with"), (RELEASE + THERE, "ended"),
     (RELEASE + THERE + AWAIT.replace("SCOPE", "cluster"), None),  # of the last arrival, which is the last access
     (STORE + RELEASE + LOAD + RELEASE, None), (STORE + FENCE + RELAXED + LOAD + RELEASE, "a race"),
     (STORE + RELEASE + THERE + AWAIT.replace("SCOPE", "cta") + RELEASE, None),
     (RELEASE + STORE + THERE + AWAIT.replace("SCOPE", "cluster") + LOAD + RELEASE, None),
     (RELEASE + STORE + THERE + AWAIT.replace("SCOPE", "cta") + LOAD + RELEASE, "a race|nothing"),
     (RELEASE + "@%p1 st.shared::cluster.u32 [%r6], %r0; " + RELEASE, None),
     (RELEASE + "@%p1 st.shared::cluster.u32 [%r6], %r0;", "out of bounds|done with"),
     (RELEASE + "@!%p1 ret; barrier.cluster.arrive; barrier.cluster.wait;", None),  # those that ended are not missed
     (RELEASE + "@%p3 ret; " + RELEASE, None), ("barrier.cluster.arrive; " + RELEASE, "alternate"),
     ("barrier.cluster.wait;", "alternate"), ("@%p1 " + RELEASE, "whole warps|alternate"),
     ("barrier.cluster.arrive.acquire;", "unknown"), ("mapa.shared::cluster.u32 %r5, %r5, 2;", "no such block"),
     (RELEASE + AWAIT.replace("SCOPE", "cluster").replace("bar]", "%r5]"), "outside"),
     (RELEASE + "@%p1 mbarrier.arrive.release.cluster.shared::cta.b64 _, [%r5];", "outside"),
     ("@%p1 init [%r5], 1;", "this block's")],
)  # fmt: skip
@pytest.mark.parametrize("backwards", [False, True])
def test_snippets_of_pairs(body, said, backwards):
    if said is None:
        return snippet(PAIR + body, 2, 2, backwards=backwards)
    with pytest.raises(Fault, match=said):
        snippet(PAIR + body, 2, 2, backwards=backwards)


def test_pairs_fill_their_launch():
    with pytest.raises(Fault, match="fill no cluster"):
        ring_of = Machine(".visible .entry none(\n)\n{ ret; }", (1 << 22) + 4096)
        ring_of.launch("none", 3, 32, [], 0, 2)
