"""Golden file of GGUF's block formats: what the gguf package makes of numbers and of blocks, and how far ggml's own
encoders of the other formats are off.

Usage: /path/to/python-with-gguf-and-safetensors tests/golden/make_golden_gguf_blocks.py GGML
GGML: a folder ggml of llama.cpp's sources (the source archive of the package llama-cpp-python has one in
vendor/llama.cpp); its ggml-quants.c is compiled with gcc. Writes gguf_blocks.safetensors.xz, made with gguf 0.19.0 and
the sources in llama-cpp-python 0.3.36; tests/python/ops/test_gguf.py compares.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from packed import LONG_SUFFIX, write_packed
from safetensors.numpy import save

HERE = pathlib.Path(__file__).parent
SIMPLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
SEARCHED = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]


def ggml_library(folder, to):
    names = {"IQ4_NL": "iq4_nl"} | {n: n.lower().replace("_k", "_K") for n in SEARCHED if n != "IQ4_NL"}
    calls = "".join(
        f"void encode_{n}(const float* x, long k, void* y) {{ quantize_row_{f}_ref(x, y, k); }}\n"
        for n, f in names.items()
    )
    source = pathlib.Path(to, "calls.c")
    source.write_text('#include "ggml-quants.h"\n' + calls)
    library = pathlib.Path(to, "libquants.so")
    subprocess.run(
        ["gcc", "-O2", "-w", "-fPIC", "-shared", f"-I{folder}/include", f"-I{folder}/src", source,
         f"{folder}/src/ggml-quants.c", "-o", library, "-lm", "-Wl,--unresolved-symbols=ignore-all"],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(library), mode=os.RTLD_LAZY)


random = np.random.default_rng(22)
x = random.standard_normal((5, 256)).astype(np.float32) * np.logspace(-2, 0, 5, dtype=np.float32)[:, None]
x[2] += 0.02  # all on one side of zero
x[3, :32] = 0
x[4, 40] = 4
x = x.astype(np.float16)
numbers = x.astype(np.float32)
out = {"x": x}
for name in SIMPLE:
    out[f"{name}.blocks"] = gguf.quantize(numbers, GGMLQuantizationType[name])
for name in SIMPLE + SEARCHED:
    kind = GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    some = random.integers(0, 256, (256 // block, size), dtype=np.uint8)
    two = name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
    for at in {"Q2_K": [80, 82], "Q3_K": [108], "Q6_K": [208]}.get(name, [0, 2] if two else [0]):
        some[:, at + 1] = some[:, at + 1] & 0xBF  # below 2: finite
    out |= {f"{name}.some": some, f"{name}.some.numbers": gguf.dequantize(some, kind)}
with tempfile.TemporaryDirectory() as folder:
    ggml = ggml_library(sys.argv[1], folder)
    for name in SEARCHED:
        kind = GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.zeros((5, 256 // block * size), np.uint8)
        getattr(ggml, f"encode_{name}")(
            numbers.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(numbers.size), blocks.ctypes.data_as(ctypes.c_void_p)
        )
        error = gguf.dequantize(blocks, kind).astype(np.float64) - numbers
        out[f"{name}.error"] = np.sqrt((error**2).mean(-1)).astype(np.float32)  # of each row
write_packed(HERE / f"gguf_blocks{LONG_SUFFIX}", save({k: np.ascontiguousarray(v) for k, v in out.items()}))
