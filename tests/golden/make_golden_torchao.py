"""Golden file of a linear layer as torchao stores it in safetensors, by the functions that diffusers saves with.

Usage: /path/to/python-with-torch-torchao-and-diffusers tests/golden/make_golden_torchao.py
Writes torchao_layers.safetensors.gz, made with torchao 0.18 and torch 2.15;
tests/python/models/test_quantized_folders_of_others.py compares. Of each kind: the layer's tensors under their names in
files, quantization_config as JSON text in bytes, and what the layer makes of x.
"""

import json
import pathlib

import torch
from diffusers import TorchAoConfig
from packed import LONG_SUFFIX, write_packed
from safetensors.torch import save
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)

HERE = pathlib.Path(__file__).parent
torch.manual_seed(7)
x, bias = torch.randn(4, 32), torch.randn(24)
weight = torch.randn(24, 32) * torch.logspace(-2, 0, 24).unsqueeze(1)
out = {"x": x, "bias": bias}
for name, config in {
    "int8": Int8WeightOnlyConfig(),
    "dynamic": Int8DynamicActivationInt8WeightConfig(),
    "float8": Float8WeightOnlyConfig(),
}.items():
    model = torch.nn.Sequential(torch.nn.Linear(32, 24))
    model[0].weight.data, model[0].bias.data = weight.clone(), bias.clone()
    quantize_(model, config)
    tensors, _ = flatten_tensor_state_dict(model.state_dict())
    out |= {f"{name}.{k.removeprefix('0.')}": v for k, v in tensors.items() if "bias" not in k}
    text = json.dumps(TorchAoConfig(config).to_dict()).encode()
    out[f"{name}.config"] = torch.tensor(list(text), dtype=torch.uint8)
    with torch.no_grad():
        out[f"{name}.y"] = model(x)
write_packed(HERE / f"torchao_layers{LONG_SUFFIX}", save({k: v.contiguous() for k, v in out.items()}))
