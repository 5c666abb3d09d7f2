"""Golden file of quantised storage: what bitsandbytes (on the CPU) and PyTorch's float8 conversions give.

Usage: /path/to/python-with-torch-and-bitsandbytes tests/golden/make_golden_quantize.py
Writes quantize.safetensors.xz and quantized_layers.safetensors.xz, made with bitsandbytes 0.50.2 and torch 2.15;
tests/python/ops/test_quantize.py and tests/python/models/test_quantized_folders_of_others.py compare.
"""

import hashlib
import pathlib

import bitsandbytes.functional as F
import torch
from packed import LONG_SUFFIX, write_packed
from safetensors.torch import save

HERE = pathlib.Path(__file__).parent


def write(name, tensors):
    write_packed(HERE / f"{name}{LONG_SUFFIX}", save({k: v.contiguous() for k, v in tensors.items()}))


def digest(tensor):
    """SHA-256 of what must be equal to the bit, as [32] bytes."""
    raw = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return torch.tensor(list(hashlib.sha256(raw).digest()), dtype=torch.uint8)


torch.manual_seed(7)
out = {"nf4_table": F.get_4bit_type("nf4", "cpu"), "dynamic_map": F.create_dynamic_map()}
for name, shape, dtype in [
    ("whole", (33, 64), torch.float32),
    ("large", (140, 128), torch.bfloat16),
    ("zeros", (4, 64), torch.float32),
]:
    x = (torch.randn(shape) * torch.logspace(-3, 1, shape[0]).unsqueeze(1)).to(dtype)
    if name == "zeros":
        x[1:3] = 0
    if name == "large":  # more blocks than share a nested magnitude; a part again and again, which packs well
        x = torch.cat([x[::7].flatten().roll(37 * i) for i in range(7)]).reshape(shape)
    plain, state = F.quantize_4bit(x, blocksize=64, quant_type="nf4")
    codes, nested = F.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True)
    # Given as float64, bitsandbytes compares with every entry, as its CUDA code does;
    # its code for float32 on the CPU finds one that is near.
    eight, eight_absmax = torch.ops.bitsandbytes.quantize_blockwise.default(x.double(), F.create_dynamic_map(), 256)
    out |= {
        f"{name}.x": x,
        f"{name}.codes": plain,
        f"{name}.absmax": state.absmax,
        f"{name}.numbers.sha256": digest(F.dequantize_4bit(plain, state)),
        f"{name}.nested.absmax": nested.absmax,
        f"{name}.nested.nested_absmax": nested.state2.absmax,
        f"{name}.nested.offset": nested.offset,
        f"{name}.nested.numbers": F.dequantize_4bit(codes, nested)[-24:],  # of both nested magnitudes
        f"{name}.eight": eight,
        f"{name}.eight.absmax": eight_absmax,
        f"{name}.eight.numbers.sha256": digest(F.dequantize_blockwise(eight, absmax=eight_absmax, blocksize=256)),
    }
for name, dtype in [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)]:
    x = torch.randn(20, 48) * torch.logspace(-4, 2, 20).unsqueeze(1)
    out[f"{name}.x"] = x
    for how, most in [("tensor", x.abs().amax()), ("row", x.abs().amax(-1, keepdim=True))]:
        scale = most / torch.finfo(dtype).max
        q = (x / scale).to(dtype)
        out |= {f"{name}.{how}.scale": scale, f"{name}.{how}.q": q, f"{name}.{how}.numbers": q.float() * scale}
write("quantize", out)

# A layer as bitsandbytes saves it, with compressed magnitudes and without.
import bitsandbytes as bnb  # noqa: E402

layers = {}
for name, nested in [("nested", True), ("plain", False)]:
    layer = bnb.nn.Linear4bit(
        128, 160, bias=True, compute_dtype=torch.bfloat16, compress_statistics=nested, quant_type="nf4"
    )
    dense = (torch.randn(160, 128) * torch.logspace(-2, 0, 160).unsqueeze(1)).to(torch.bfloat16)
    layer.weight = bnb.nn.Params4bit(dense.clone(), requires_grad=False, compress_statistics=nested, quant_type="nf4")
    layer = layer.to("cpu")
    layers |= {f"{name}.{k}": v.clone() for k, v in layer.state_dict().items()}
    layers[f"{name}.numbers"] = F.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
write("quantized_layers", layers)
