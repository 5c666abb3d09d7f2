"""Writes tests/golden/textual_inversion.json.xz: what diffusers' TextualInversionLoaderMixin makes of concepts that are
loaded and unloaded one after the other, with transformers' CLIP: prompts with all tokens, their ids, and numbers of the
encoded text.

    TORCH_PYTHON tests/golden/make_golden_textual_inversion.py ../shared/data/clip

Vectors and the tiny encoder's weights follow hashed_weights.py.
"""

import json
import pathlib
import sys

import torch
from diffusers.loaders import TextualInversionLoaderMixin
from hashed_weights import hashed, hashed_weight, places
from packed import write_json
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

CONFIG = {
    "vocab_size": 49408, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 77, "bos_token_id": 49406, "eos_token_id": 49407, "pad_token_id": 49407,
}  # fmt: skip
PROMPTS = [
    "a photo of <cat-toy> on a table", "a photo of easything, easything", "<cat-toy>s in the style of midj-strong",
    "plain words", "easything <cat-toy> midj-strong",
]  # fmt: skip
STAGES = [
    {"load": "<cat-toy>", "vectors": 1, "format": "diffusers"},
    {"load": "easything", "vectors": 3, "format": "webui"},
    {"load": "midj-strong", "vectors": 2, "format": "tensor"},
    {"unload": ["<cat-toy>"]},
    {"load": "<cat-toy>", "vectors": 2, "format": "diffusers"},
    {"unload": None},
]


class Parts(TextualInversionLoaderMixin):
    hf_device_map = None
    components = {}

    def __init__(self, tokenizer, text_encoder):
        self.tokenizer, self.text_encoder = tokenizer, text_encoder


def concept(stage):
    vectors = torch.from_numpy(hashed(stage["load"], (stage["vectors"], CONFIG["hidden_size"])))
    if stage["format"] == "webui":
        return {"string_to_token": {"*": 265}, "string_to_param": {"*": vectors}, "name": stage["load"], "step": 9}
    return vectors if stage["format"] == "tensor" else {stage["load"]: vectors}


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(0)
    encoder = CLIPTextModel(CLIPTextConfig(**CONFIG)).eval()
    with torch.no_grad():
        for name, p in encoder.named_parameters():
            name = name if name.startswith("text_") else "text_model." + name
            p.copy_(torch.from_numpy(hashed_weight(name, tuple(p.shape))))
    parts = Parts(CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt")), encoder)
    done = []
    for stage in STAGES:
        if "load" in stage:
            token = stage["load"] if stage["format"] == "tensor" else None
            parts.load_textual_inversion(concept(stage), token=token)
        else:
            parts.unload_textual_inversion(stage["unload"])
        row = {**stage, "rows": parts.text_encoder.get_input_embeddings().weight.shape[0], "prompts": []}
        for prompt in PROMPTS:
            converted = parts.maybe_convert_prompt(prompt, parts.tokenizer)
            ids = parts.tokenizer(converted, padding="max_length", max_length=77, truncation=True)["input_ids"]
            with torch.no_grad():
                hidden = parts.text_encoder(torch.tensor([ids]))[0].flatten()
            kept = hidden[torch.from_numpy(places(prompt, hidden.numel(), 8))]
            row["prompts"].append(
                {
                    "prompt": prompt,
                    "converted": converted,
                    "ids": ids[: ids.index(49407) + 1],
                    "hidden": [round(float(v), 6) for v in kept],
                }
            )
        done.append(row)
    golden = json.dumps({"config": CONFIG, "stages": done}, indent=1) + "\n"
    write_json(pathlib.Path(__file__).with_name("textual_inversion.json.xz"), golden)


if __name__ == "__main__":
    main()
