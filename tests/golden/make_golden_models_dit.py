"""Golden files of DiTTransformer2DModel: diffusers' outputs and gradients for tiny configs, and the keys of DiT-XL/2.

Usage: /path/to/python-with-diffusers tests/golden/make_golden_models_dit.py
Writes models/dit.json, models/dit.safetensors (outputs whole, gradients at a few places, their norms) and keys/dit_xl_2.txt. Weights and inputs follow
hashed_weights.py; tests/python/models/test_models_dit.py repeats the calls.
"""

import json
import pathlib

import diffusers
import torch
from diffusers import DiTTransformer2DModel
from hashed_weights import hashed, hashed_weight, places
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
TINY = {"num_attention_heads": 2, "attention_head_dim": 10, "num_layers": 2, "sample_size": 8, "num_embeds_ada_norm": 7}
# (config, batch and sides, timesteps, labels)
CASES = [
    (TINY, (2, 4, 8, 8), [17, 903], [3, 7]),
    ({**TINY, "patch_size": 4, "in_channels": 3, "out_channels": 6, "activation_fn": "geglu", "norm_eps": 1e-3}, (1, 3, 16, 16), [500], [0]),
    ({**TINY, "attention_bias": False, "norm_elementwise_affine": True, "sample_size": 4, "activation_fn": "gelu"}, (2, 4, 12, 12), [0, 999], [6, 6]),
]
LARGE = {"num_attention_heads": 16, "attention_head_dim": 72, "out_channels": 8, "num_layers": 28}


def run(number, config, sizes, timesteps, labels):
    model = DiTTransformer2DModel(**config).eval()
    for name, p in model.named_parameters():
        p.data.copy_(torch.from_numpy(hashed_weight(name, tuple(p.shape))))
    x = torch.from_numpy(hashed(f"latents {number}", sizes)).requires_grad_()
    y = model(x, timestep=torch.tensor(timesteps), class_labels=torch.tensor(labels)).sample
    (y * torch.from_numpy(hashed("cotangent", tuple(y.shape)))).sum().backward()
    numbers = {"sample": y, "input": x.grad}
    numbers |= {f"gradient.{k}": p.grad.reshape(-1)[places(k, p.numel())] for k, p in model.named_parameters()}
    numbers["norms"] = torch.stack([p.grad.double().norm() for _, p in sorted(model.named_parameters())])
    return {f"{number}.{k}": v.detach().clone().contiguous() for k, v in numbers.items()}


def main():
    tensors = {}
    for number, case in enumerate(CASES):
        tensors |= run(number, *case)
    made_by = {"torch": torch.__version__, "diffusers": diffusers.__version__}
    (HERE / "models/dit.json").write_text(json.dumps({**made_by, "cases": CASES}, indent=1) + "\n")
    save_file(tensors, HERE / "models/dit.safetensors", metadata=made_by)
    (HERE / "models/dit.safetensors").chmod(0o644)
    with torch.device("meta"):
        state = DiTTransformer2DModel(**LARGE).state_dict()
    lines = sorted(f"{k} {list(v.shape)}" for k, v in state.items())
    (HERE / "keys/dit_xl_2.txt").write_text(f"# diffusers {diffusers.__version__}: DiTTransformer2DModel\n# {json.dumps(LARGE)}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
