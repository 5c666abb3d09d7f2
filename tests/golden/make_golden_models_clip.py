"""Golden files of CLIP's text encoders: for each config transformers' outputs and the gradient of every parameter, and the keys of full-size models.

Usage: /path/to/python-with-transformers tests/golden/make_golden_models_clip.py
Writes models/clip.json and models/clip.safetensors (outputs whole, gradients at a few places) and keys/<model>.txt. Weights and inputs follow rules that
tests/python/models/test_models_clip.py has too (hashed_weights.py).
"""

import json
import pathlib

import torch
import transformers
from hashed_weights import hashed, hashed_weight, places
from safetensors.torch import save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

HERE = pathlib.Path(__file__).parent
TINY = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "projection_dim": 20, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 16, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 98,
}  # fmt: skip
# Two rows of ids: 98 ends the first after 6 tokens, with padding; the second after 9, with more of itself.
IDS = [[0, 5, 17, 44, 3, 98, 1, 1, 1, 1], [0, 9, 96, 60, 31, 2, 77, 8, 98, 98]]
MASK = [[1, 1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]]
CASES = [
    ("CLIPTextModel", {}, {}),
    ("CLIPTextModel", {"hidden_act": "gelu", "eos_token_id": 2}, {"attention_mask": MASK}),
    ("CLIPTextModel", {"hidden_act": "gelu", "layer_norm_eps": 1e-3, "pad_token_id": 98}, {"position_ids": [[3, 2, 1, 0, 4, 5, 6, 7, 15, 9]]}),
    ("CLIPTextModelWithProjection", {}, {"attention_mask": MASK}),
    ("CLIPTextModelWithProjection", {"hidden_act": "gelu", "num_attention_heads": 2}, {}),
]
LARGE = {
    "clip_vit_l": ("CLIPTextModel", {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}),
    "openclip_vit_h": ("CLIPTextModel", {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16}),
    "openclip_bigg": (
        "CLIPTextModelWithProjection",
        {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20, "projection_dim": 1280},
    ),
}
CLASSES = {c.__name__: c for c in (CLIPTextModel, CLIPTextModelWithProjection)}


def key(name):
    """As in files: transformers 5 has the text model's tensors at the root of CLIPTextModel."""
    return name if name.startswith("text_") else "text_model." + name


def run(number, class_name, config, inputs):
    model = CLASSES[class_name](CLIPTextConfig(**{**TINY, **config})).eval()
    for name, p in model.named_parameters():
        p.data.copy_(torch.from_numpy(hashed_weight(key(name), tuple(p.shape))))
    arguments = {k: torch.tensor(v) for k, v in inputs.items()}
    out = model(torch.tensor(IDS), output_hidden_states=True, **arguments)
    numbers = {k: v for k, v in out.items() if k != "hidden_states"}
    numbers |= {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}
    total = sum((y * torch.from_numpy(hashed("cotangent of " + k, tuple(y.shape)))).sum() for k, y in numbers.items())
    total.backward()
    numbers |= {f"gradient.{key(k)}": p.grad.reshape(-1)[places(key(k), p.numel())] for k, p in model.named_parameters()}
    numbers["norms"] = torch.stack([p.grad.double().norm() for _, p in sorted(model.named_parameters(), key=lambda item: key(item[0]))])
    case = {"class": class_name, "config": {**TINY, **config}, "inputs": inputs, "outputs": [k for k in numbers if not k.startswith(("gradient", "norms"))]}
    return case, {f"{number}.{k}": v.detach().clone() for k, v in numbers.items()}


def main():
    cases, tensors = [], {}
    for number, case in enumerate(CASES):
        entry, numbers = run(number, *case)
        cases.append(entry)
        tensors |= numbers
    made_by = {"torch": torch.__version__, "transformers": transformers.__version__}
    (HERE / "models/clip.json").write_text(json.dumps({**made_by, "ids": IDS, "cases": cases}, indent=1) + "\n")
    save_file(tensors, HERE / "models/clip.safetensors", metadata=made_by)
    for name, (class_name, config) in LARGE.items():
        with torch.device("meta"):
            state = CLASSES[class_name](CLIPTextConfig(**config)).state_dict()
        lines = sorted(f"{key(k)} {list(v.shape)}" for k, v in state.items())
        (HERE / f"keys/{name}.txt").write_text(f"# transformers {transformers.__version__}: {class_name}\n# {json.dumps(config)}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
