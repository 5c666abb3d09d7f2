"""LoRA files in each kind that programs write, made of one adapter: for make_golden_lora.py, with torch, diffusers
and peft.

An adapter is {component: {module: (A, B, alpha)}} with modules as diffusers' files name them ("text_model.encoder...."
in text encoders) and A, B in float16; its strength is alpha / rank.
"""

import json
import re

import numpy as np
import torch
from diffusers.utils import convert_state_dict_to_diffusers, convert_state_dict_to_kohya
from hashed_weights import hashed, hashed_weight
from safetensors.torch import save_file

TEXT = "text_encoder"
STEMS = {"unet": "lora_unet", TEXT: "lora_te1", TEXT + "_2": "lora_te2"}  # kohya's


def filled(adapter, component, module, a_shape, b_shape, loud):
    """A and B by the rule: A keeps the variance of what passes it, B multiplies it by about loud * (rank / 3) ** 0.5.
    Rounded to float16, so that files in float16 and sums in float32 or float64 start from the same numbers."""
    name = f"{adapter} {component} {module}"
    values = hashed_weight(name + " A", tuple(a_shape)), hashed(name + " B", tuple(b_shape)) * np.float32(loud)
    return tuple(torch.from_numpy(v.astype(np.float16)) for v in values)


def rank_of(a):
    return a.shape[0]


def without_alpha(parts):
    """For kinds that have no alpha, which is then the rank: B holds it, in float16 where that is exact."""

    def folded(a, b, alpha):
        scaled = b.float() * (alpha / rank_of(a))
        half = scaled.half()
        return a, half if torch.equal(half.float(), scaled) else scaled, rank_of(a)

    return {component: {m: folded(*row) for m, row in layers.items()} for component, layers in parts.items()}


# ---- keys


def peft_keys(parts, text_model=True):
    """{component: {key: tensor}}; text_model: whether keys of text encoders begin with it, as diffusers' did before
    transformers 5."""

    def name(component, module):
        return module if text_model or component != TEXT else module.removeprefix("text_model.")

    return {
        component: {
            f"{name(component, module)}.lora_{side}.weight": t
            for module, (a, b, _) in layers.items()
            for side, t in (("A", a), ("B", b))
        }
        for component, layers in parts.items()
    }


def joined(keys):
    return {f"{component}.{key}": t for component, tensors in keys.items() for key, t in tensors.items()}


def script_keys(parts):
    """As the training scripts of diffusers write them: "to_q.lora.down", "q_proj.lora_linear_layer.down", and PEFT's
    names for what their table does not have."""
    keys = peft_keys(without_alpha(parts))
    return joined({component: convert_state_dict_to_diffusers(tensors) for component, tensors in keys.items()})


def down_keys(parts):
    """What diffusers' own layers were called before PEFT: "resnets.0.conv1.lora.down"."""
    sides = {"lora_A": "lora.down", "lora_B": "lora.up"}
    keys = joined(peft_keys(without_alpha(parts)))
    return {re.sub("lora_[AB]", lambda m: sides[m[0]], k): t for k, t in keys.items()}


def processor_keys(parts):
    """Of the first release with LoRA: "attn1.processor.to_q_lora.down", "self_attn.to_q_lora.down"."""
    own = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "out_proj": "to_out", "to_out.0": "to_out"}

    def renamed(key):
        head, part, side = re.fullmatch(r"(.*?)\.(to_out\.0|[a-z]+_[a-z]+)\.lora_([AB])\.weight", key).groups()
        between = ".processor." if key.startswith("unet.") else "."
        return f"{head}{between}{own.get(part, part)}_lora.{'down' if side == 'A' else 'up'}.weight"

    return {renamed(key): t for key, t in joined(peft_keys(without_alpha(parts))).items()}


def kohya_keys(parts):
    """Names by diffusers' own conversion, "lora_unet_down_blocks_...". One text encoder's are "lora_te_", two's
    "lora_te1_" and "lora_te2_"."""
    keys = convert_state_dict_to_kohya(joined(peft_keys(parts)))
    alphas = {
        f"{STEMS[component]}_{module.replace('.', '_')}.alpha": torch.tensor(float(alpha))
        for component, layers in parts.items()
        for module, (_, _, alpha) in layers.items()
    }
    assert {k for k in keys if k.endswith(".alpha")} == set(alphas), "names of alphas are not diffusers'"
    keys |= alphas
    if "text_encoder_2" not in parts:
        keys = {k.replace("lora_te1_", "lora_te_"): t for k, t in keys.items()}
    return keys


LAYERS = {
    "conv1": "in_layers.2",
    "conv2": "out_layers.3",
    "time_emb_proj": "emb_layers.1",
    "conv_shortcut": "skip_connection",
}
WHOLE = {
    "conv_in": "input_blocks.0.0",
    "conv_out": "out.2",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
}


def original_name(module, layers_per_block):
    """Of a module of the UNet in the code that Stable Diffusion was published with."""
    if module in WHOLE:
        return WHOLE[module]
    place, _, kind, layer, rest = re.fullmatch(
        r"((?:down|up)_blocks\.\d+|mid_block)(\.)(resnets|attentions|downsamplers|upsamplers)\.(\d+)\.(.*)", module
    ).groups()
    rest, layer = LAYERS.get(rest, rest), int(layer)
    if place == "mid_block":
        return f"middle_block.{1 if kind == 'attentions' else 2 * layer}.{rest}"
    block, down = int(place.rpartition(".")[2]), place.startswith("down")
    samples = kind.endswith("samplers")
    number = block * (layers_per_block + 1) + (layers_per_block if samples else layer) + down
    inner = 0 if kind in ("resnets", "downsamplers") else 1 if kind == "attentions" else 2
    return f"{'input' if down else 'output'}_blocks.{number}.{inner}.{'op' if samples and down else rest}"


def original_keys(parts, unet_config):
    """kohya's with the UNet's names of the original code; make_golden_lora.py shows that diffusers reads them so."""
    layers = {original_name(m, unet_config.layers_per_block): t for m, t in parts["unet"].items()}
    return kohya_keys({**parts, "unet": layers})


# ---- files


def written(path, tensors, metadata=None):
    """A .safetensors file with its metadata in the order of their names, so that the same is written every time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: t.contiguous() for k, t in tensors.items()}, path, metadata)
    settled(path)


def settled(path):
    """Sorts the metadata of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = dict(sorted(header.pop("__metadata__", {}).items()))
    text = json.dumps(({"__metadata__": metadata} if metadata else {}) | header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    path.chmod(0o644)
