"""Golden files of UNet2DConditionModel and Transformer2DModel: what diffusers' compute.

Usage: /path/to/python-with-torch-and-diffusers tests/golden/make_golden_models_unet.py
Writes models/unet (.json.gz, .safetensors.gz) and keys.tar.xz: see model_fixture.py. A table of timestep_embedding's
values is for test_models_unet.py."""

import itertools

import torch
from diffusers import Transformer2DModel, UNet2DConditionModel
from diffusers.models.embeddings import get_timestep_embedding
from model_fixture import ModelFixture, floats

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
TIME_IDS = [[1024.0, 1024, 0, 0, 512, 768], [512, 640, 16, 8, 1024, 1024]]
XL_INPUTS = {"added_cond_kwargs": {"dict": {"text_embeds": floats(2, 16), "time_ids": TIME_IDS}}}

# name: (class, config, arguments beside the usual ones, whether gradients are kept)
CASES = {
    "sd15": (UNet2DConditionModel, SMALL, {}, True),
    "sd21": (
        UNet2DConditionModel,
        {**SMALL, "attention_head_dim": [2, 4], "use_linear_projection": True, "upcast_attention": True},
        {},
        True,
    ),
    "sdxl": (UNet2DConditionModel, XL, XL_INPUTS, True),
    "inpainting": (UNet2DConditionModel, {**ONE, "in_channels": 9}, {}, True),
    "time_cond": (UNet2DConditionModel, {**ONE, "time_cond_proj_dim": 12}, {"timestep_cond": floats(2, 12)}, True),
    "pooled text": (
        UNet2DConditionModel,
        {**ONE, "addition_embed_type": "text", "addition_embed_type_num_heads": 4},
        {},
        True,
    ),
    "odd sizes": (UNet2DConditionModel, {**XL, "addition_embed_type": None}, {"sample": floats(2, 4, 13, 10)}, True),
    "one sample": (
        UNet2DConditionModel,
        SMALL,
        {"sample": floats(1, 4, 12, 16), "encoder_hidden_states": floats(1, 7, 24), "timestep": [961.0]},
        True,
    ),
    "class table": (UNet2DConditionModel, {**ONE, "num_class_embeds": 10}, {"class_labels": [3, 7]}, True),
    "class timestep": (UNet2DConditionModel, {**ONE, "class_embed_type": "timestep"}, {"class_labels": [3, 7]}, False),
    "class projection": (
        UNet2DConditionModel,
        {**ONE, "class_embed_type": "projection", "projection_class_embeddings_input_dim": 20},
        {"class_labels": floats(2, 20)},
        False,
    ),
    "class simple projection": (
        UNet2DConditionModel,
        {**ONE, "class_embed_type": "simple_projection", "projection_class_embeddings_input_dim": 20},
        {"class_labels": floats(2, 20)},
        False,
    ),
    "class identity": (
        UNet2DConditionModel,
        {**ONE, "class_embed_type": "identity"},
        {"class_labels": floats(2, 64)},
        False,
    ),
    "class concat": (
        UNet2DConditionModel,
        {**ONE, "num_class_embeds": 10, "class_embeddings_concat": True},
        {"class_labels": [3, 7]},
        False,
    ),
    "scale_shift": (
        UNet2DConditionModel,
        {**ONE, "resnet_time_scale_shift": "scale_shift", "center_input_sample": True},
        {},
        True,
    ),
    "shapes": (
        UNet2DConditionModel,
        {
            **ONE,
            "conv_in_kernel": 5,
            "conv_out_kernel": 1,
            "downsample_padding": 0,
            "out_channels": 8,
            "mid_block_scale_factor": 2.0,
            "norm_eps": 1e-3,
        },
        {},
        False,
    ),
    "embedding": (
        UNet2DConditionModel,
        {**ONE, "flip_sin_to_cos": False, "freq_shift": 1, "time_embedding_dim": 48},
        {},
        False,
    ),
    "plain middle": (UNet2DConditionModel, {**ONE, "mid_block_type": "UNetMidBlock2D"}, {}, False),
    "no middle": (UNet2DConditionModel, {**ONE, "mid_block_type": None}, {}, False),
    "only cross": (UNet2DConditionModel, {**ONE, "only_cross_attention": [True, False]}, {}, True),
    "lists": (
        UNet2DConditionModel,
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
    "text projection": (
        UNet2DConditionModel,
        {**ONE, "encoder_hid_dim": 20},
        {"encoder_hidden_states": floats(2, 7, 20)},
        True,
    ),
    "masks": (
        UNet2DConditionModel,
        SMALL,
        {"encoder_attention_mask": [[1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]]},
        False,
    ),
    "controlnet": (
        UNet2DConditionModel,
        ONE,
        {
            "down_block_additional_residuals": {
                "list": [*[floats(2, 16, 16, 16)] * 2, floats(2, 16, 8, 8), floats(2, 32, 8, 8)]
            },
            "mid_block_additional_residual": floats(2, 32, 8, 8),
        },
        False,
    ),
    "adapter": (
        UNet2DConditionModel,
        ONE,
        {"down_intrablock_additional_residuals": {"list": [floats(2, 16, 16, 16), floats(2, 32, 8, 8)]}},
        False,
    ),
    "transformer": (
        Transformer2DModel,
        {
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "in_channels": 16,
            "num_layers": 2,
            "norm_num_groups": 4,
            "cross_attention_dim": 24,
        },
        {},
        True,
    ),
    "transformer linear": (
        Transformer2DModel,
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
        Transformer2DModel,
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 16,
            "norm_num_groups": 4,
            "double_self_attention": True,
            "activation_fn": "gelu",
        },
        {"encoder_hidden_states": None},
        False,
    ),
    "transformer ada_norm": (
        Transformer2DModel,
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
        {"timestep": {"values": 77}},
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


def arguments_of(cls, config, more):
    channels = config.get("cross_attention_dim")
    channels = channels[0] if isinstance(channels, list) else channels
    text = floats(2, 7, channels) if channels else None
    if cls is Transformer2DModel:
        return {"hidden_states": floats(2, 16, 6, 5), "encoder_hidden_states": text, **more}
    return {
        "sample": floats(2, config.get("in_channels", 4), 16, 16),
        "timestep": [961.0, 3.5],
        "encoder_hidden_states": text,
        **more,
    }


def timestep_embeddings():
    """diffusers' sines and cosines for every pair of the two options, an even and an odd size."""
    out = []
    for dim, flip, shift, more in itertools.product(
        (8, 11), (False, True), (0, 1), ({}, {"scale": 0.5, "max_period": 100})
    ):
        arguments = {"embedding_dim": dim, "flip_sin_to_cos": flip, "downscale_freq_shift": shift, **more}
        timesteps = torch.tensor([0, 1, 500.5, 999])
        out.append(
            {
                "arguments": arguments,
                "timesteps": timesteps.tolist(),
                "embedding": get_timestep_embedding(timesteps, **arguments).tolist(),
            }
        )
    return out


def main():
    fixture = ModelFixture("unet")
    fixture.model(UNet2DConditionModel, PUBLISHED)
    full_size = {
        "sd15_transformer": {
            "num_attention_heads": 8,
            "attention_head_dim": 160,
            "in_channels": 1280,
            "cross_attention_dim": 768,
        }
    }
    fixture.model(Transformer2DModel, full_size, required={"in_channels": 32})
    for name, (cls, config, more, gradients) in CASES.items():
        fixture.case(name, cls, config, arguments_of(cls, config, more), gradients=gradients)
    fixture.extra("timestep_embeddings", timestep_embeddings())
    fixture.write()


if __name__ == "__main__":
    main()
