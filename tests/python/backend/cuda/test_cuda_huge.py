"""Tensors of more than 2**31 elements and of many rows on CUDA: of each grid the emulator runs the first and last
blocks, on memory that is there when it is touched. An index that overflows reads or writes far away and ends the
program; a grid that no GPU takes is an error."""

import os
import subprocess
import sys

import pytest

import scaffolding as sf

pytestmark = pytest.mark.skipif(
    not sf.cuda.is_available() or "emulator" not in sf.cuda.get_device_name(), reason="needs the CUDA emulator"
)

BEFORE = """
import scaffolding as sf
from scaffolding.nn import functional as F
def new(*shape, dtype=sf.bfloat16):
    return sf.empty(*shape, dtype=dtype, device="cuda")
bf16, f32, i64, u8 = sf.bfloat16, sf.float32, sf.int64, sf.uint8
"""
N, M, ROWS = 2**31 + 5, 2**32 + 3, 2**24 + 1
CASES = {
    "unary": f"new({M}).exp()",
    "binary": f"x = new({N}); x + x",
    "in place": f"new({M}, dtype=u8).add_(1)",
    "broadcast": f"new({ROWS}, 160) * new(160)",
    "compare": f"new({N}) > 0",
    "transposed": "new(65537, 32771).t().contiguous()",
    "cast": f"new({N}).to(sf.float16)",
    "fill": f"new({M}).fill_(1)",
    "slice": f"new({M})[3:].clone()",
    "cat": f"sf.cat([new({N}), new(3)])",
    "arange": f"sf.arange({N}, device='cuda')",
    "softmax, rows": f"F.softmax(new({ROWS}, 130), -1)",
    "softmax, odd rows": f"F.softmax(new({ROWS}, 129), -1)",
    "layer_norm": f"F.layer_norm(new({ROWS}, 130), (130,))",
    "rms_norm": f"F.rms_norm(new({ROWS}, 130), (130,))",
    "group_norm": "F.group_norm(new(70000, 32, 961), 8)",
    "group_norm, channels last": "F.group_norm(new(70000, 32, 31, 31).contiguous(memory_format=sf.channels_last), 8)",
    "sum of rows": f"new({ROWS}, 130).sum(-1)",
    "sum of columns": f"new(130, {ROWS}).sum(0)",
    "argmax": f"new({ROWS}, 130).argmax(-1)",
    "cumsum": "new(70000, 1000).cumsum(-1)",
    "cross_entropy": f"F.cross_entropy(new({ROWS}, 130), sf.zeros({ROWS}, dtype=i64, device='cuda'))",
    "embedding": f"F.embedding(sf.zeros({ROWS}, dtype=i64, device='cuda'), new(10, 130))",
    "gather": f"new({ROWS}, 130).gather(1, sf.zeros({ROWS}, 2, dtype=i64, device='cuda'))",
    "interpolate": "F.interpolate(new(70000, 2, 64, 64), scale_factor=2)",
    "bilinear": "F.interpolate(new(70000, 2, 64, 64), scale_factor=2, mode='bilinear')",
    "pad": "F.pad(new(70000, 32, 31, 31), (1, 1, 1, 1))",
    "max_pool": "F.max_pool2d(new(70000, 32, 31, 31), 2)",
    "avg_pool": "F.avg_pool2d(new(70000, 32, 31, 31), 2)",
    "unfold": "F.unfold(new(70000, 4, 31, 31), 3)",
    "tril": "new(65537, 32771).tril()",
    "glu": f"F.glu(new({ROWS}, 260))",
    "sgd": f"p = new({N}).requires_grad_(); p.grad = new({N}); sf.optim.SGD([p], lr=0.1).step()",
    "many small rows": f"F.softmax(new({N}, 1), -1)",
    "matmul of many": "sf.matmul(new(70000, 2, 3), new(70000, 3, 2))",
    "sort of many rows": "new(2**21, 64).sort(-1)",
}


@pytest.mark.parametrize("case", CASES)
def test_indices_and_grids(case):
    program = BEFORE + "def run():\n    " + CASES[case].replace("\n", "\n    ") + "\nrun()\nsf.cuda.synchronize()\n"
    environment = {**os.environ, "SF_CUDA_EMULATOR_BLOCKS": "ends", "SF_CUDA_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_index_of_32_bits_is_found():
    source = 'extern "C" __global__ void f(float* y) { int i = int(blockIdx.x * blockDim.x + threadIdx.x); y[i] = 1; }'
    program = BEFORE + (
        f"y = new({N}, dtype=f32)\nsf.cuda.Kernel({source!r}, 'f')({N} // 256 + 1, 256, "
        "(y,))\nsf.cuda.synchronize()\n"
    )
    environment = {**os.environ, "SF_CUDA_EMULATOR_BLOCKS": "ends", "SF_CUDA_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode != 0 and "an index that overflowed" in done.stderr, done.stderr[-2000:]
