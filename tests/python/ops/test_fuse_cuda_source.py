"""The CUDA kernels that sf.fuse generates, without a GPU: their source compiled by the C++ compiler and run thread by
thread. The arithmetic, the strides, the ends of vectors and the rounding of 16-bit results are the GPU's; exp, log and
their like are the C library's: those are compared with a tolerance."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.nn import functional as F

pytestmark = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")

BEFORE = r"""
#include <math.h>
#include <string.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
struct Index { unsigned x; };
static Index blockIdx, threadIdx;
static inline float __int_as_float(int bits) { float f; memcpy(&f, &bits, 4); return f; }
static inline double __longlong_as_double(long long bits) { double f; memcpy(&f, &bits, 8); return f; }
static inline float of_half(unsigned short bits) { _Float16 h; memcpy(&h, &bits, 2); return float(h); }
static inline unsigned short to_half(float f) {
  _Float16 h = _Float16(f); unsigned short bits; memcpy(&bits, &h, 2); return bits;
}
static inline unsigned short to_bfloat16(float f) {
  unsigned bits; memcpy(&bits, &f, 4);
  return (unsigned short)(f != f ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
"""
INSTRUCTIONS = {  # the PTX of the source, as C++
    'asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));': "f = of_half(h.bits);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(float(x)));': "h.bits = to_half(float(x));",
    'asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(float(x)));': "h.bits = to_bfloat16(float(x));",
    'asm("add.rn.f32 %0, %1, 0f80000000;" : "=f"(x) : "f"(x));': "",
    'asm("add.rn.f64 %0, %1, 0d8000000000000000;" : "=d"(x) : "d"(x));': "",
}


def raw(t):
    """The bytes of a tensor's memory from its first element, as an array that ctypes can point into."""
    size = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    flat = t.as_strided((size,), (1,))
    return (flat.view(sf.int16) if t.dtype == sf.bfloat16 else flat).numpy()


def run_on_the_cpu(source, tensors, like, folder):
    """The result of every thread of the grid, in the order of the result's memory."""
    for instruction, replacement in INSTRUCTIONS.items():
        assert instruction in source
        source = source.replace(instruction, replacement)
    assert "asm" not in source
    signature = re.search(r"fused\((.*?)\) \{", source)[1].split(", ")
    pointers = [re.match(r"(.*\*) __restrict__", p)[1] for p in signature if "__restrict__" in p]
    strided = "Places places" in signature
    lanes = 1 if strided else int(re.search(r"const int V = (\d+);", source)[1])
    call = ", ".join(f"({p})p[{i}]" for i, p in enumerate(pointers)) + ", n" + (", *(Places*)places" if strided else "")
    after = (
        'extern "C" void run(void** p, long long n, void* places, unsigned blocks) {\n'
        "  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) for (threadIdx.x = 0; threadIdx.x < 256; "
        f"++threadIdx.x) fused({call});\n}}\n"
    )
    name = f"fused{len(list(folder.iterdir()))}"
    (folder / f"{name}.cpp").write_text(BEFORE + source + after)
    command = [
        "c++",
        "-std=c++17",
        "-O1",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
        "-w",
        f"{name}.cpp",
        "-o",
        f"{name}.so",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = sf.zeros(like.numel(), dtype=like.dtype)
    guard = np.full(raw(out).nbytes + 64, 0xAB, np.uint8)
    memory = [guard[: raw(out).nbytes], *map(raw, tensors)]
    data = (ctypes.c_void_p * len(memory))(*[m.ctypes.data for m in memory])
    places = merged(tensors, like) if strided else []
    n = like.numel()
    blocks = -(-n // (256 * lanes))
    ctypes.CDLL(str(folder / f"{name}.so")).run(
        data, ctypes.c_longlong(n), (ctypes.c_longlong * max(1, len(places)))(*places), ctypes.c_uint(blocks)
    )
    assert (guard[raw(out).nbytes :] == 0xAB).all(), "written behind the end"
    return memory[0].view(raw(out).dtype), lanes


def merged(tensors, like):
    """struct Places: sizes and strides of the merged dimensions, innermost first."""
    strides = [t.expand(*like.shape).stride() for t in tensors]
    order = sorted((d for d in reversed(range(like.ndim)) if like.shape[d] != 1), key=lambda d: like.stride()[d])
    sizes, steps = [], []
    for d in order:
        here = [s[d] for s in strides]
        if sizes and all(h == s * sizes[-1] for h, s in zip(here, steps[-1])):
            sizes[-1] *= like.shape[d]
        else:
            sizes.append(like.shape[d])
            steps.append(here)
    return sizes + [step[k] for k in range(len(tensors)) for step in steps]


def in_memory_order(t):
    order = sorted(range(t.ndim), key=lambda d: -t.stride()[d])
    return raw(t.permute(*order).contiguous()) if t.ndim else raw(t)


def check(f, *tensors, folder, exact=True, lanes=None):
    want = f(*tensors)
    got, taken = run_on_the_cpu(sf.fuse(f).cuda_source(*tensors), tensors, want, folder)
    want = in_memory_order(want)
    assert lanes is None or taken == lanes
    if exact:
        assert got.tobytes() == want.tobytes()
    else:
        assert np.allclose(
            got.astype(np.float64),
            want.astype(np.float64),
            rtol=2e-3 if want.dtype == np.float16 else 1e-5,
            atol=1e-5,
            equal_nan=True,
        )


def arithmetic(x, a, b):
    return sf.maximum((x * a + 0.25 * b) / 3 - x, -x) * 1.7 + x.abs().sqrt()


@pytest.mark.parametrize("dtype, lanes", [(sf.float64, 2), (sf.bfloat16, 8), (sf.float16, 8)], ids=str)
def test_arithmetic_dense_and_with_one_element_for_all(dtype, lanes, tmp_path):
    for n in (1, 1000, 4096):
        check(
            arithmetic,
            sf.randn(n).to(dtype),
            sf.randn(n).to(dtype),
            sf.randn(1).to(dtype),
            folder=tmp_path,
            exact=dtype != sf.float64,
            lanes=lanes,
        )


def test_float32(tmp_path):
    check(arithmetic, sf.randn(1001), sf.randn(1001), sf.randn(1), folder=tmp_path, exact=False, lanes=4)


def test_a_tensor_that_is_not_aligned_for_vectors(tmp_path):
    check(arithmetic, sf.randn(101)[1:], sf.randn(100), sf.randn(1), folder=tmp_path, exact=False, lanes=1)


@pytest.mark.parametrize("dtype", [sf.float32, sf.bfloat16], ids=str)
def test_strides_and_broadcasting(dtype, tmp_path):
    x = sf.randn(3, 20, 31).to(dtype)
    check(arithmetic, x, sf.randn(20, 1).to(dtype), sf.randn(31).to(dtype), folder=tmp_path, exact=False)
    check(
        arithmetic,
        sf.randn(20, 3).to(dtype).t(),
        sf.randn(3, 20).to(dtype),
        sf.randn(3, 1).to(dtype),
        folder=tmp_path,
        exact=False,
    )


def test_functions_questions_and_casts(tmp_path):
    def everything(x):
        y = sf.exp(x.clamp(-3, 2)) + sf.log1p(x.abs()) + sf.tanh(x) * sf.sin(x) - sf.erf(x) + sf.rsqrt(x * x + 1)
        y = y + F.gelu(x) + F.gelu(x, approximate="tanh") + F.mish(x) + F.softplus(x, 2.0, 3.0) + F.silu(x)
        return sf.where((x > 0.5) | sf.isnan(x), y % 0.7 + x // 0.7, sf.lerp(x, y, 0.3) + sf.atan2(x, y)) + (x >= 0).to(
            x.dtype
        )

    check(
        everything,
        sf.cat([sf.randn(999), sf.tensor([sf.nan, sf.inf, -sf.inf, 0.0, -0.0])]),
        folder=tmp_path,
        exact=False,
    )
    check(lambda x, i: (x * i + (i > 3)).to(sf.float16), sf.randn(50).to(sf.bfloat16), sf.arange(50), folder=tmp_path)
