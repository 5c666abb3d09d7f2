"""Golden files of CLIP's text encoders: what transformers' compute.

Usage: /path/to/python-with-transformers tests/golden/make_golden_models_clip.py
Writes models/clip (.json.gz, .safetensors.gz) and keys.tar.xz: see model_fixture.py.
"""

from model_fixture import ModelFixture
from transformers import CLIPTextModel, CLIPTextModelWithProjection

TINY = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "projection_dim": 20, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 16, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 98,
}  # fmt: skip
# Two rows of ids: 98 ends the first after 6 tokens, with padding; the second after 9, with more of itself.
IDS = [[0, 5, 17, 44, 3, 98, 1, 1, 1, 1], [0, 9, 96, 60, 31, 2, 77, 8, 98, 98]]
MASK = [[1, 1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]]
CASES = [
    ("plain", CLIPTextModel, {}, {}),
    ("mask", CLIPTextModel, {"hidden_act": "gelu", "eos_token_id": 2}, {"attention_mask": MASK}),
    (
        "positions",
        CLIPTextModel,
        {"hidden_act": "gelu", "layer_norm_eps": 1e-3, "pad_token_id": 98},
        {"position_ids": [[3, 2, 1, 0, 4, 5, 6, 7, 15, 9]]},
    ),
    ("projection", CLIPTextModelWithProjection, {}, {"attention_mask": MASK}),
    ("projection of two heads", CLIPTextModelWithProjection, {"hidden_act": "gelu", "num_attention_heads": 2}, {}),
]
BY_KEYWORD = "transformers takes it among **kwargs"
DIFFERENCES = {"forward": dict.fromkeys(("output_attentions", "output_hidden_states", "return_dict"), BY_KEYWORD)}


def key(name):
    """As in files: transformers 5 has the text model's tensors at the root of CLIPTextModel."""
    return name if name.startswith("text_") else "text_model." + name


def main():
    fixture = ModelFixture("clip")
    large = {
        "clip_vit_l": {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
        },
        "openclip_vit_h": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 23,
            "num_attention_heads": 16,
        },
    }
    fixture.model(CLIPTextModel, large, DIFFERENCES, key=key)
    large = {
        "openclip_bigg": {
            "hidden_size": 1280,
            "intermediate_size": 5120,
            "num_hidden_layers": 32,
            "num_attention_heads": 20,
            "projection_dim": 1280,
        }
    }
    fixture.model(CLIPTextModelWithProjection, large, DIFFERENCES, key=key)
    for name, cls, config, inputs in CASES:
        fixture.case(name, cls, {**TINY, **config}, {"input_ids": IDS, "output_hidden_states": True, **inputs})
    fixture.write()


if __name__ == "__main__":
    main()
