"""Writes tests/golden/adapter_names.json.xz: which module diffusers takes each key of kohya's adapters for.

python tests/golden/make_golden_adapter_names.py        # with torch, diffusers and transformers

Keys are made of the names of a tiny SDXL UNet in diffusers and in CompVis' code (tests/golden/single_file.json.xz), and
of a text encoder in transformers. A pair of matrices filled with the key's number goes through diffusers' conversion,
so that each answer is known by what it holds.
"""

import json
import pathlib
import re

import diffusers
import torch
import transformers
from diffusers.loaders import lora_conversion_utils as lora
from packed import read_json, write_json

HERE = pathlib.Path(__file__).parent
TINY = read_json(HERE / "single_file.json.xz")["tiny"]["xl_base"]
PARTS = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}


def module_of(key):
    """Of a converted key: diffusers' own later steps, which only rename."""
    name = re.sub(r"\.(lora\.|lora_linear_layer\.)?(down|up)\.weight$", "", key.split(".", 1)[1])
    name = re.sub(r"\.processor\.(to_\w+)_lora$", r".\1", name).removesuffix("_lora")
    if ".self_attn.to_" in name:
        head, _, part = name.rpartition(".")
        return f"{head}.{PARTS[part]}"
    return name + ".0" if name.endswith(".to_out") else name


def converted(stems, sgm_config=None):
    state = {}
    for number, stem in enumerate(stems):
        state |= {
            stem + ".lora_down.weight": torch.full((1, 4), float(number)),
            stem + ".lora_up.weight": torch.full((4, 1), float(number)),
        }
    if sgm_config:
        state = lora._maybe_map_sgm_blocks_to_diffusers(state, sgm_config)
    answers, _ = lora._convert_non_diffusers_lora_to_diffusers(state)
    out = {stems[int(t.flatten()[0])]: module_of(key) for key, t in answers.items()}
    assert len(out) == len(stems), set(stems) - set(out)
    return out


def weights(names_and_shapes):
    return [n.removesuffix(".weight") for n, shape in names_and_shapes if n.endswith(".weight") and len(shape) >= 2]


def main():
    with torch.device("meta"):
        unet = diffusers.UNet2DConditionModel.from_config(TINY["configs"]["unet"])
        text = transformers.CLIPTextModel(transformers.CLIPTextConfig(**TINY["configs"]["text_encoder"]))
    ours = [
        n for n in weights((n, t.shape) for n, t in unet.state_dict().items()) if re.match("(down|mid|up)_block", n)
    ]
    ldm = "model.diffusion_model."
    theirs = weights((n.removeprefix(ldm), s) for n, s in TINY["checkpoint"].items() if n.startswith(ldm))
    theirs = [n for n in theirs if re.match("(input|output)_blocks|middle_block", n) and n != "input_blocks.0.0"]
    flat = lambda prefix, names: [prefix + n.replace(".", "_") for n in names]  # noqa: E731
    layers = [
        f"text_model.{n.removeprefix('text_model.')}"
        for n in weights((n, t.shape) for n, t in text.state_dict().items())
        if "layers" in n
    ]
    golden = {
        "versions": {
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "transformers": transformers.__version__,
        },
        "configs": {part: TINY["configs"][part] for part in ("unet", "text_encoder")},
        "unet": converted(flat("lora_unet_", ours)) | converted(flat("lora_unet_", theirs), unet.config),
        "text_encoder": converted(flat("lora_te_", layers)) | converted(flat("lora_te1_", layers)),
    }
    write_json(HERE / "adapter_names.json.xz", json.dumps(golden, indent=0) + "\n")
    print({part: len(golden[part]) for part in golden["configs"]}, len(ours), len(theirs))


main()
