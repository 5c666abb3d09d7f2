"""Golden file of FP4 and int8 as bitsandbytes (on the CPU) gives and stores them.

Usage: /path/to/python-with-torch-and-bitsandbytes tests/golden/make_golden_quantized_rows.py
Writes quantized_rows.safetensors.gz, made with bitsandbytes 0.50.2 and torch 2.15;
tests/python/models/test_quantization_config.py and test_quantized_folders_of_others.py compare.
"""

import pathlib

import bitsandbytes as bnb
import bitsandbytes.functional as F
import torch
from packed import LONG_SUFFIX, write_packed
from safetensors.torch import save

HERE = pathlib.Path(__file__).parent

torch.manual_seed(7)
x = torch.randn(9, 96) * torch.logspace(-3, 1, 9).unsqueeze(1)
x[4] = 0
x[6, :8] = torch.tensor([0.0, -0.0, 1e-4, -1e-4, 0.004, -0.004, 12.0, -12.0])
out = {"x": x, "fp4.table": F.get_4bit_type("fp4", "cpu")}
codes, state = F.quantize_4bit(x, blocksize=64, quant_type="fp4")
out |= {"fp4.codes": codes, "fp4.absmax": state.absmax, "fp4.numbers": F.dequantize_4bit(codes, state)}
rows = x.clone()
rows[4, 0] = 1e-3  # bitsandbytes divides by a row's magnitude
eight, scale, _ = F.int8_vectorwise_quant(rows)
numbers = F.int8_vectorwise_dequant(eight, scale)
out |= {"int8.x": rows, "int8.codes": eight, "int8.scale": scale, "int8.numbers": numbers}

# Layers as bitsandbytes saves them.
dense = (torch.randn(24, 64) * torch.logspace(-2, 0, 24).unsqueeze(1)).to(torch.bfloat16)
layer = bnb.nn.Linear4bit(64, 24, bias=True, compute_dtype=torch.bfloat16, quant_type="fp4")
layer.weight = bnb.nn.Params4bit(dense.clone(), requires_grad=False, compress_statistics=False, quant_type="fp4")
layer = layer.to("cpu")
out |= {f"fp4.layer.{k}": v.clone() for k, v in layer.state_dict().items()}
out["fp4.layer.numbers"] = F.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
write_packed(HERE / f"quantized_rows{LONG_SUFFIX}", save({k: v.contiguous() for k, v in out.items()}))
