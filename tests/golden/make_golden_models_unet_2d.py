"""Golden files of UNet2DModel: what diffusers' computes.

Usage: /path/to/python-with-torch-and-diffusers tests/golden/make_golden_models_unet_2d.py
Writes models/unet_2d.json, models/unet_2d.safetensors and keys.tar.xz: see model_fixture.py.
"""

import torch
from diffusers import UNet2DModel
from model_fixture import ModelFixture, floats

# The shapes of the published networks with few channels.
DDPM = {"sample_size": 8, "block_out_channels": [8, 16], "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"], "layers_per_block": 1, "norm_num_groups": 4,
        "attention_head_dim": 8}  # fmt: skip
CIFAR = {**DDPM, "downsample_padding": 0, "flip_sin_to_cos": False, "freq_shift": 1, "norm_eps": 1e-6,
         "attention_head_dim": None, "down_block_types": ["AttnDownBlock2D", "UNetResDownBlock2D"],
         "up_block_types": ["UpBlock2D", "AttnUpBlock2D"]}  # fmt: skip
NCSNPP = {"block_out_channels": [32, 32], "layers_per_block": 1, "norm_eps": 1e-6, "norm_num_groups": None,
          "down_block_types": ["AttnSkipDownBlock2D", "SkipDownBlock2D"],
          "up_block_types": ["AttnSkipUpBlock2D", "SkipUpBlock2D"], "attention_head_dim": None,
          "time_embedding_type": "fourier", "mid_block_scale_factor": 1.41421356237}  # fmt: skip

# name: (config, arguments beside sample and timestep, whether gradients are kept)
CASES = {
    "ddpm": (DDPM, {}, True),
    "cifar": (CIFAR, {}, False),
    "ncsnpp": (NCSNPP, {"timestep": [0.5, 80.0]}, True),
    "resampling residual blocks": (
        {
            **DDPM,
            "block_out_channels": [8, 8, 16],
            "down_block_types": ["ResnetDownsampleBlock2D", "AttnDownBlock2D", "DownBlock2D"],
            "up_block_types": ["UpBlock2D", "AttnUpBlock2D", "ResnetUpsampleBlock2D"],
            "downsample_type": "resnet",
            "upsample_type": "resnet",
            "resnet_time_scale_shift": "scale_shift",
        },
        {"class_labels": None},
        True,
    ),
    "learned times": (
        {**DDPM, "time_embedding_type": "learned", "num_train_timesteps": 12, "time_embedding_dim": 20},
        {"timestep": [11, 3]},
        False,
    ),
    "class table": (
        {**DDPM, "num_class_embeds": 5, "add_attention": False, "center_input_sample": True},
        {"class_labels": [3, 4]},
        False,
    ),
    "class timestep": ({**DDPM, "class_embed_type": "timestep"}, {"class_labels": [3, 700]}, False),
    "class identity": ({**DDPM, "class_embed_type": "identity"}, {"class_labels": floats(2, 32)}, False),
    "no middle": ({**DDPM, "mid_block_type": None, "in_channels": 1, "out_channels": 2}, {}, False),
    "groups of attention": (
        {**DDPM, "attn_norm_num_groups": 2, "mid_block_scale_factor": 2.0, "attention_head_dim": 3},
        {"timestep": {"values": 77}},
        False,
    ),
}

# The published configs: what differs from UNet2DModel's defaults.
GOOGLE = {"attention_head_dim": None, "downsample_padding": 0, "flip_sin_to_cos": False, "freq_shift": 1,
          "norm_eps": 1e-6}  # fmt: skip
PUBLISHED = {
    "ddpm_celebahq_256_unet": {
        **GOOGLE,
        "sample_size": 256,
        "block_out_channels": [128, 128, 256, 256, 512, 512],
        "down_block_types": [*["DownBlock2D"] * 4, "AttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "AttnUpBlock2D", *["UpBlock2D"] * 4],
    },
    "ncsnpp_celebahq_256_unet": {
        "sample_size": 256,
        "attention_head_dim": None,
        "block_out_channels": [128, 128, 256, 256, 256, 256, 256],
        "down_block_types": [*["SkipDownBlock2D"] * 4, "AttnSkipDownBlock2D", *["SkipDownBlock2D"] * 2],
        "up_block_types": [*["SkipUpBlock2D"] * 2, "AttnSkipUpBlock2D", *["SkipUpBlock2D"] * 4],
        "mid_block_scale_factor": 1.41421356237,
        "norm_eps": 1e-6,
        "norm_num_groups": None,
        "time_embedding_type": "fourier",
    },
}


def main():
    fixture = ModelFixture("unet_2d")
    fixture.model(UNet2DModel, PUBLISHED)
    for name, (config, more, gradients) in CASES.items():
        sample = floats(2, config.get("in_channels", 3), 8, 4)
        # diffusers gives labels' sines to a layer without a cast
        dtype = torch.float32 if config.get("class_embed_type") == "timestep" else torch.float64
        arguments = {"sample": sample, "timestep": [961, 3], **more}
        fixture.case(name, UNet2DModel, config, arguments, gradients=gradients, dtype=dtype)
    fixture.write()


if __name__ == "__main__":
    main()
