"""Golden files of LTX-2's autoencoder of videos and of the network that enlarges its latents, from diffusers: tiny
configs, and the keys of LTX-2.0's and LTX-2.3's.

    python tests/golden/make_golden_models_ltx2_video_vae.py      # a Python that has torch and diffusers

Tiles are for test_models_ltx2_video_vae.py.
"""

import torch
from diffusers import AutoencoderKLLTX2Video
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from hashed_weights import hashed
from model_fixture import ModelFixture, floats

RATIOS = {"decoder_causal": False, "spatial_compression_ratio": 32, "temporal_compression_ratio": 8}
PUBLISHED = {
    "ltx2_vae": RATIOS,
    "ltx2_3_vae": {
        **RATIOS,
        "block_out_channels": [256, 512, 1024, 1024],
        "decoder_block_out_channels": [256, 512, 512, 1024],
        "layers_per_block": [4, 6, 4, 2, 2],
        "decoder_layers_per_block": [4, 6, 4, 2, 2],
        "decoder_spatio_temporal_scaling": [True] * 4,
        "decoder_inject_noise": [False] * 5,
        "upsample_type": ["spatiotemporal", "spatiotemporal", "temporal", "spatial"],
        "upsample_residual": [False] * 4,
        "upsample_factor": [2, 2, 1, 2],
        "decoder_spatial_padding_mode": "zeros",
    },
}

# As LTX-2.0 and LTX-2.3 are, with one block less and smaller patches.
TINY = {
    "latent_channels": 4,
    "block_out_channels": [8, 8, 16],
    "down_block_types": ["LTX2VideoDownBlock3D"] * 3,
    "decoder_block_out_channels": [8, 16],
    "layers_per_block": [1, 1, 1, 1],
    "decoder_layers_per_block": [1, 1, 1],
    "spatio_temporal_scaling": [True] * 3,
    "decoder_spatio_temporal_scaling": [True] * 2,
    "decoder_inject_noise": [False] * 3,
    "downsample_type": ["spatial", "temporal", "spatiotemporal"],
    "upsample_type": ["spatiotemporal", "spatiotemporal"],
    "upsample_residual": [True, True],
    "upsample_factor": [2, 2],
    "patch_size": 2,
    "decoder_causal": False,
    "spatial_compression_ratio": 8,
    "temporal_compression_ratio": 4,
}
TINY_2_3 = {
    **TINY,
    "decoder_block_out_channels": [8, 8, 16],
    "decoder_layers_per_block": [1, 1, 1, 1],
    "decoder_spatio_temporal_scaling": [True] * 3,
    "decoder_inject_noise": [False] * 4,
    "upsample_type": ["spatiotemporal", "temporal", "spatial"],
    "upsample_residual": [False] * 3,
    "upsample_factor": [2, 1, 2],
    "decoder_spatial_padding_mode": "zeros",
}
OTHER = {
    **TINY,
    "in_channels": 2,
    "out_channels": 1,
    "block_out_channels": [4, 8],
    "decoder_block_out_channels": [4, 6],
    "layers_per_block": [2, 1, 1],
    "decoder_layers_per_block": [1, 2, 1],
    "spatio_temporal_scaling": [True, True],
    "decoder_spatio_temporal_scaling": [False, True],
    "downsample_type": ["conv", "spatiotemporal"],
    "upsample_type": ["spatiotemporal", "temporal"],
    "upsample_residual": False,
    "upsample_factor": [1, 1],
    "patch_size": 1,
    "resnet_norm_eps": 1e-3,
    "encoder_causal": False,
    "decoder_causal": True,
    "encoder_spatial_padding_mode": "replicate",
    "decoder_spatial_padding_mode": "circular",
}
TOLD = {**TINY, "timestep_conditioning": True, "upsample_residual": [True, False]}

UPSAMPLER = {"in_channels": 4, "mid_channels": 32, "num_blocks_per_stage": 1}
UPSAMPLERS = {
    "rational 2": {},
    "rational 1.5": {"rational_spatial_scale": 1.5},
    "rational 0.75 of each frame": {"rational_spatial_scale": 0.75, "dims": 2, "num_blocks_per_stage": 0},
    "doubled": {"use_rational_resampler": False},
    "frames": {"spatial_upsample": False, "temporal_upsample": True, "num_blocks_per_stage": 0},
    "both": {"temporal_upsample": True, "num_blocks_per_stage": 0},
}

# size of the videos, attributes
TILED = {
    "pictures": ((2, 5, 48, 32), {"use_tiling": True, "tile_sample_min_height": 32, "tile_sample_min_width": 24,
                                  "tile_sample_stride_height": 24, "tile_sample_stride_width": 16}),
    "frames": ((1, 21, 16, 16), {"use_framewise_decoding": True, "tile_sample_min_num_frames": 8,
                                 "tile_sample_stride_num_frames": 4}),
    "both": ((1, 17, 32, 16), {"use_tiling": True, "use_framewise_decoding": True, "tile_sample_min_height": 24,
                               "tile_sample_min_width": 24, "tile_sample_stride_height": 16,
                               "tile_sample_stride_width": 16, "tile_sample_min_num_frames": 12,
                               "tile_sample_stride_num_frames": 8}),
}  # fmt: skip


def tensor(name, shape):
    return torch.from_numpy(hashed(name, tuple(shape))).double()


def autoencoders(fixture):
    model = AutoencoderKLLTX2Video
    methods = ("forward", "encode", "decode", "tiled_encode", "tiled_decode", "enable_tiling")
    fixture.model(model, PUBLISHED, methods=methods)
    sample, z = {"sample": floats(2, 3, 5, 16, 16, name="video")}, floats(1, 4, 2, 2, 3, name="latents")
    fixture.case("there and back", model, TINY, sample)
    fixture.case("encode", model, TINY, {"x": floats(1, 3, 9, 8, 16, name="video")}, method="encode", gradients=False)
    fixture.case("decode", model, TINY, {"z": z}, method="decode", gradients=False)
    causal = {"z": z, "causal": True}
    fixture.case("decode without later frames", model, TINY, causal, method="decode", gradients=False)
    fixture.case("2.3: decode", model, TINY_2_3, {"z": z}, method="decode")
    other = {"sample": floats(1, 2, 5, 8, 8, name="video")}
    fixture.case("other there and back", model, OTHER, other)
    told = {"z": floats(2, 4, 2, 2, 2, name="latents"), "temb": [0.05, 0.6]}
    fixture.case("told timesteps", model, TOLD, told, method="decode")
    for name, (sizes, attributes) in TILED.items():
        vae = fixture.filled(model, TINY).double()
        vae.use_slicing = True
        for attribute, value in attributes.items():
            assert hasattr(vae, attribute)
            setattr(vae, attribute, value)
        with torch.no_grad():
            posterior = vae.encode(tensor("video", (sizes[0], 3, *sizes[1:]))).latent_dist
            fixture.extra(f"{name}: tiled_moments", posterior.parameters)
            fixture.extra(f"{name}: tiled_decoded", vae.decode(tensor("latents", posterior.mean.shape)).sample)
        fixture.extra(f"{name}: latents", list(posterior.mean.shape))
    fixture.extra("tiled", TILED)


def upsamplers(fixture):
    model = LTX2LatentUpsamplerModel
    fixture.model(
        model, {"ltx2_spatial_upsampler_x2": {}, "ltx2_3_spatial_upsampler_x2": {"use_rational_resampler": False}}
    )
    for name, config in UPSAMPLERS.items():
        frames = 1 if config.get("dims") == 2 else 2
        latents = {"hidden_states": floats(1, 4, frames, 4, 4, name="latents")}
        fixture.case(name, model, {**UPSAMPLER, **config}, latents, gradients=name in ("rational 1.5", "doubled"))


def main():
    fixture = ModelFixture("ltx2_video_vae")
    autoencoders(fixture)
    upsamplers(fixture)
    fixture.write()


if __name__ == "__main__":
    main()
