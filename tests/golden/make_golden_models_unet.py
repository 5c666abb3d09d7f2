"""Golden files of UNet2DConditionModel and Transformer2DModel: outputs and gradients of small configs, and the keys of the published models.

Usage: /path/to/python-with-torch-and-diffusers tests/golden/make_golden_models_unet.py
Writes models/unet.json (versions, cases) and models/unet.safetensors beside this file, and keys/*.txt: name and shape of every tensor of a state dict.
Weights and inputs follow a rule that tests/python/models/test_models_unet.py has too, since the random numbers are the same: they need no storing.
diffusers computes in float64, so that what is compared is the error of one side.
"""

import itertools
import json
import math
import pathlib

import diffusers
import torch
from diffusers.models.embeddings import get_timestep_embedding
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
KEPT = 4  # values of each gradient

SMALL = {
    "sample_size": 16,
    "block_out_channels": [32, 64],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "layers_per_block": 2,
    "cross_attention_dim": 24,
    "norm_num_groups": 8,
    "attention_head_dim": 4,
}
ONE = {**SMALL, "layers_per_block": 1, "block_out_channels": [16, 32]}
XL = {
    **SMALL,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "block_out_channels": [32, 32, 64],
    "transformer_layers_per_block": [1, 2, 3],
    "attention_head_dim": [2, 4, 8],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 64,
}
XL_INPUTS = {"text_embeds": [2, 16], "time_ids": [2, 6]}

# name: (class, config, inputs by shape beside the usual ones, whether gradients are kept)
CASES = {
    "sd15": ("UNet2DConditionModel", SMALL, {}, True),
    "sd21": ("UNet2DConditionModel", {**SMALL, "attention_head_dim": [2, 4], "use_linear_projection": True, "upcast_attention": True}, {}, True),
    "sdxl": ("UNet2DConditionModel", XL, XL_INPUTS, True),
    "inpainting": ("UNet2DConditionModel", {**ONE, "in_channels": 9}, {}, True),
    "time_cond": ("UNet2DConditionModel", {**ONE, "time_cond_proj_dim": 12}, {"timestep_cond": [2, 12]}, True),
    "pooled text": ("UNet2DConditionModel", {**ONE, "addition_embed_type": "text", "addition_embed_type_num_heads": 4}, {}, True),
    "odd sizes": ("UNet2DConditionModel", {**XL, "addition_embed_type": None}, {"sample": [2, 4, 13, 10]}, True),
    "one sample": ("UNet2DConditionModel", SMALL, {"sample": [1, 4, 12, 16], "encoder_hidden_states": [1, 7, 24], "timestep": [1]}, True),
    "class table": ("UNet2DConditionModel", {**ONE, "num_class_embeds": 10}, {"class_labels": "integers"}, True),
    "class timestep": ("UNet2DConditionModel", {**ONE, "class_embed_type": "timestep"}, {"class_labels": "integers"}, False),
    "class projection": (
        "UNet2DConditionModel",
        {**ONE, "class_embed_type": "projection", "projection_class_embeddings_input_dim": 20},
        {"class_labels": [2, 20]},
        False,
    ),
    "class simple projection": (
        "UNet2DConditionModel",
        {**ONE, "class_embed_type": "simple_projection", "projection_class_embeddings_input_dim": 20},
        {"class_labels": [2, 20]},
        False,
    ),
    "class identity": ("UNet2DConditionModel", {**ONE, "class_embed_type": "identity"}, {"class_labels": [2, 64]}, False),
    "class concat": ("UNet2DConditionModel", {**ONE, "num_class_embeds": 10, "class_embeddings_concat": True}, {"class_labels": "integers"}, False),
    "scale_shift": ("UNet2DConditionModel", {**ONE, "resnet_time_scale_shift": "scale_shift", "center_input_sample": True}, {}, True),
    "shapes": (
        "UNet2DConditionModel",
        {**ONE, "conv_in_kernel": 5, "conv_out_kernel": 1, "downsample_padding": 0, "out_channels": 8, "mid_block_scale_factor": 2.0, "norm_eps": 1e-3},
        {},
        False,
    ),
    "embedding": ("UNet2DConditionModel", {**ONE, "flip_sin_to_cos": False, "freq_shift": 1, "time_embedding_dim": 48}, {}, False),
    "plain middle": ("UNet2DConditionModel", {**ONE, "mid_block_type": "UNetMidBlock2D"}, {}, False),
    "no middle": ("UNet2DConditionModel", {**ONE, "mid_block_type": None}, {}, False),
    "only cross": ("UNet2DConditionModel", {**ONE, "only_cross_attention": [True, False]}, {}, True),
    "lists": (
        "UNet2DConditionModel",
        {
            **XL,
            "addition_embed_type": None,
            "layers_per_block": [1, 2, 1],
            "cross_attention_dim": [24, 24, 24],
            "transformer_layers_per_block": [1, [1, 2], [2]],
            "reverse_transformer_layers_per_block": [[1, 2], [1, 1, 2], 1],
        },
        {},
        False,
    ),
    "text projection": ("UNet2DConditionModel", {**ONE, "encoder_hid_dim": 20}, {"encoder_hidden_states": [2, 7, 20]}, True),
    "masks": ("UNet2DConditionModel", SMALL, {"encoder_attention_mask": "mask"}, False),
    "controlnet": (
        "UNet2DConditionModel",
        ONE,
        {"down_block_additional_residuals": [[2, 16, 16, 16]] * 2 + [[2, 16, 8, 8], [2, 32, 8, 8]], "mid_block_additional_residual": [2, 32, 8, 8]},
        False,
    ),
    "adapter": ("UNet2DConditionModel", ONE, {"down_intrablock_additional_residuals": [[2, 16, 16, 16], [2, 32, 8, 8]]}, False),
    "transformer": (
        "Transformer2DModel",
        {"num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 16, "num_layers": 2, "norm_num_groups": 4, "cross_attention_dim": 24},
        {},
        True,
    ),
    "transformer linear": (
        "Transformer2DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 16,
            "norm_num_groups": 4,
            "use_linear_projection": True,
            "attention_bias": True,
            "activation_fn": "gelu-approximate",
            "norm_elementwise_affine": False,
        },
        {},
        False,
    ),
    "transformer double": (
        "Transformer2DModel",
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 16, "norm_num_groups": 4, "double_self_attention": True, "activation_fn": "gelu"},
        {"encoder_hidden_states": None},
        False,
    ),
    "transformer ada_norm": (
        "Transformer2DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 16,
            "norm_num_groups": 4,
            "cross_attention_dim": 24,
            "norm_type": "ada_norm",
            "num_embeds_ada_norm": 1000,
            "activation_fn": "geglu-approximate",
        },
        {},
        True,
    ),
}

# The published configs: what differs from UNet2DConditionModel's defaults.
PUBLISHED = {
    "sd15_unet": {"cross_attention_dim": 768},
    "sd15_inpainting_unet": {"cross_attention_dim": 768, "in_channels": 9},
    "sd21_unet": {"cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True},
    "sdxl_unet": {
        "block_out_channels": [320, 640, 1280],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "transformer_layers_per_block": [1, 2, 10],
        "attention_head_dim": [5, 10, 20],
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
    "lcm_unet": {"cross_attention_dim": 768, "time_cond_proj_dim": 256},
}


def weight(number, name, shape):
    """The rule: normal numbers from the tensor's number in the sorted state dict, scaled by the number of inputs; norms' weights around 1."""
    torch.manual_seed(1000 + number)
    values = torch.randn(shape)
    if len(shape) > 1:
        return values / math.sqrt(math.prod(shape[1:]))
    return values * 0.1 + (1.0 if name.endswith("weight") else 0.0)


def values(number, name, shape):
    """An input by its number: shapes, or a word for what is no normal numbers."""
    torch.manual_seed(number)
    if shape is None:
        return None
    if shape == "integers":
        return torch.tensor([3, 7])
    if shape == "mask":
        return torch.tensor([[1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]])
    if name == "timestep":
        return torch.tensor([961.0, 3.5][: shape[0]]) if shape else torch.tensor(77)
    if name == "time_ids":
        return torch.tensor([[1024.0, 1024, 0, 0, 512, 768], [512, 640, 16, 8, 1024, 1024]])
    if isinstance(shape[0], list):
        return [torch.randn(s) for s in shape]
    return torch.randn(shape)


def inputs_of(kind, config, extra):
    if kind == "Transformer2DModel":
        shapes = {"hidden_states": [2, 16, 6, 5], "encoder_hidden_states": [2, 7, 24] if "cross_attention_dim" in config else None, "timestep": []}
    else:
        shapes = {"sample": [2, config.get("in_channels", 4), 16, 16], "timestep": [2], "encoder_hidden_states": [2, 7, config["cross_attention_dim"]]}
        if isinstance(config["cross_attention_dim"], list):
            shapes["encoder_hidden_states"][2] = config["cross_attention_dim"][0]
    shapes |= extra
    return shapes


def double(x):
    return [double(e) for e in x] if isinstance(x, list) else x.double() if x is not None and x.is_floating_point() else x


def timestep_embeddings():
    """diffusers' sines and cosines for every pair of the two options, an even and an odd size."""
    out = []
    for dim, flip, shift, more in itertools.product((8, 11), (False, True), (0, 1), ({}, {"scale": 0.5, "max_period": 100})):
        arguments = {"embedding_dim": dim, "flip_sin_to_cos": flip, "downscale_freq_shift": shift, **more}
        timesteps = torch.tensor([0, 1, 500.5, 999])
        out.append({"arguments": arguments, "timesteps": timesteps.tolist(), "embedding": get_timestep_embedding(timesteps, **arguments).tolist()})
    return out


def main():
    torch.set_default_dtype(torch.float32)
    tensors, cases = {}, {}
    for name, (kind, config, extra, gradients) in CASES.items():
        model = getattr(diffusers, kind)(**config).eval()
        keys = sorted(model.state_dict())
        model.load_state_dict({k: weight(i, k, model.state_dict()[k].shape) for i, k in enumerate(keys)})
        model.double()
        shapes = inputs_of(kind, config, extra)
        given = {k: double(values(i, k, s)) for i, (k, s) in enumerate(shapes.items())}
        if "timestep" in given and given["timestep"].is_floating_point():
            given["timestep"] = given["timestep"].float()  # embedded in float32 whatever the model's dtype
        watched = [k for k in ("sample", "hidden_states", "encoder_hidden_states") if given.get(k) is not None]
        for k in watched:
            given[k].requires_grad_()
        call = dict(given)
        added = {k: call.pop(k) for k in ("text_embeds", "time_ids") if k in call}
        if added:
            call["added_cond_kwargs"] = added
        output = model(**call, return_dict=False)[0]
        tensors[f"{name}/output"] = output.detach().float().contiguous()
        cases[name] = {"class": kind, "config": config, "inputs": shapes, "gradients": gradients}
        if gradients:
            torch.manual_seed(99)
            output.backward(torch.randn(output.shape).double())
            grads = {k: p.grad for k, p in sorted(model.named_parameters())} | {k: given[k].grad for k in watched}
            grads = {k: torch.zeros(1) if g is None else g for k, g in grads.items()}
            tensors[f"{name}/norms"] = torch.stack([g.norm() for g in grads.values()]).float()
            kept = [g.flatten()[:: max(1, g.numel() // KEPT)][:KEPT] for g in grads.values()]
            tensors[f"{name}/kept"] = torch.cat(kept).float()
    (HERE / "models").mkdir(exist_ok=True)
    save_file(tensors, HERE / "models" / "unet.safetensors")
    versions = {"torch": torch.__version__, "diffusers": diffusers.__version__}
    (HERE / "models" / "unet.json").write_text(
        json.dumps({"versions": versions, "kept": KEPT, "timestep_embeddings": timestep_embeddings(), "cases": cases}, indent=1) + "\n"
    )
    (HERE / "keys").mkdir(exist_ok=True)
    for name, config in PUBLISHED.items():
        with torch.device("meta"):
            state = diffusers.UNet2DConditionModel(**config).state_dict()
        lines = [f"# UNet2DConditionModel {json.dumps(config)}"] + [f"{k} {list(v.shape)}" for k, v in sorted(state.items())]
        (HERE / "keys" / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
