"""Golden files of CogVideoX's transformer and autoencoder, from diffusers: tiny configs, and the keys of 2B, 5B,
5B-I2V, 1.5-5B, 1.5-5B-I2V and their autoencoder.

    python tests/golden/make_golden_models_cogvideox.py      # a Python that has torch, diffusers and transformers

Positions, tiles and slices are for test_models_cogvideox.py.
"""

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
from diffusers.models.embeddings import get_3d_rotary_pos_embed, get_3d_sincos_pos_embed
from hashed_weights import hashed
from model_fixture import ModelFixture, floats

TINY = {
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "in_channels": 4,
    "out_channels": 4,
    "time_embed_dim": 8,
    "text_embed_dim": 10,
    "num_layers": 2,
    "sample_width": 8,
    "sample_height": 4,
    "sample_frames": 9,
    "max_text_seq_length": 5,
}
ROTARY = {**TINY, "use_rotary_positional_embeddings": True}
I2V = {**ROTARY, "in_channels": 8, "use_learned_positional_embeddings": True}
ONE_HALF = {**ROTARY, "in_channels": 6, "patch_size_t": 2, "patch_bias": False, "ofs_embed_dim": 8}
OTHER = {
    **TINY,
    "out_channels": 3,
    "flip_sin_to_cos": False,
    "freq_shift": 1,
    "attention_bias": False,
    "patch_size": 1,
    "temporal_compression_ratio": 8,
    "activation_fn": "gelu",
    "norm_elementwise_affine": False,
    "norm_eps": 1e-3,
    "spatial_interpolation_scale": 1.5,
    "temporal_interpolation_scale": 2.0,
    "patch_bias": False,
}

BIG = {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
BIG_ONE_HALF = {**BIG, "patch_size_t": 2, "patch_bias": False, "sample_height": 300, "sample_width": 300,
                "sample_frames": 81}  # fmt: skip
PUBLISHED = {
    "cogvideox_2b": {},
    "cogvideox_5b": BIG,
    "cogvideox_5b_i2v": {**BIG, "in_channels": 32, "use_learned_positional_embeddings": True},
    "cogvideox_1_5_5b": BIG_ONE_HALF,
    "cogvideox_1_5_5b_i2v": {**BIG_ONE_HALF, "in_channels": 32, "ofs_embed_dim": 512},
}

VAE = {
    "down_block_types": ["CogVideoXDownBlock3D"] * 3,
    "up_block_types": ["CogVideoXUpBlock3D"] * 3,
    "block_out_channels": [8, 8, 16],
    "latent_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_height": 48,
    "sample_width": 80,
}
VAE_OTHER = {
    **VAE,
    "down_block_types": ["CogVideoXDownBlock3D"] * 2,
    "up_block_types": ["CogVideoXUpBlock3D"] * 2,
    "block_out_channels": [12, 8],
    "in_channels": 4,
    "out_channels": 2,
    "layers_per_block": 2,
    "act_fn": "swish",
    "norm_eps": 1e-3,
    "norm_num_groups": 2,
    "temporal_compression_ratio": 2,
    "scaling_factor": 0.7,
    "invert_scale_latents": True,
}
QUANTISED = {**VAE_OTHER, "latent_channels": 2, "use_quant_conv": True, "use_post_quant_conv": True}
EACH_FRAME = {**VAE, "temporal_compression_ratio": 1}
# Frames of a video and of its latents, for which chunks differ; gradients go from chunk to chunk.
LENGTHS = [(9, 3, True), (1, 1, False), (5, 2, False), (17, 5, True)]

ROTARIES = {
    "crop": {"embed_dim": 64, "crops_coords": [[0, 0], [30, 45]], "grid_size": [30, 45], "temporal_size": 3},
    "inner crop": {"embed_dim": 16, "crops_coords": [[3, 5], [25, 31]], "grid_size": [6, 9], "temporal_size": 4,
                   "theta": 500.0},
    "slice": {"embed_dim": 32, "crops_coords": None, "grid_size": [5, 7], "temporal_size": 6, "grid_type": "slice",
              "max_size": [8, 8]},
}  # fmt: skip
SINES = {
    "2b": {"embed_dim": 48, "spatial_size": [45, 30], "temporal_size": 4, "spatial_interpolation_scale": 1.875},
    "square": {"embed_dim": 16, "spatial_size": 3, "temporal_size": 2, "temporal_interpolation_scale": 0.5},
}
# size of the videos, arguments of enable_tiling
TILED = {
    "as it is": ((2, 9, 44, 72), {}),
    "small": ((1, 5, 28, 20), {"tile_sample_min_height": 16, "tile_sample_min_width": 12,
                               "tile_overlap_factor_height": 0.25, "tile_overlap_factor_width": 0.4}),
}  # fmt: skip


def rotary(frames, height, width, grid_type="linspace"):
    """Cosines and sines as lists of few digits."""
    both = get_3d_rotary_pos_embed(
        16, ((0, 0), (height, width)), (height, width), frames, grid_type=grid_type, max_size=(height, width)
    )
    return {"list": [[[round(x, 4) for x in row] for row in t.tolist()] for t in both]}


def transformers(fixture):
    model = CogVideoXTransformer3DModel
    fixture.model(model, PUBLISHED)
    text = {"encoder_hidden_states": floats(2, 5, 10), "timestep": [17, 903]}
    fixture.case("sines", model, TINY, {"hidden_states": floats(2, 3, 4, 4, 8), **text})
    fixture.case("sines of another size", model, TINY, {"hidden_states": floats(2, 2, 4, 6, 6), **text})
    fixture.case("other fields", model, OTHER, {"hidden_states": floats(2, 2, 4, 4, 5), **text})
    turned = {"hidden_states": floats(2, 2, 4, 4, 6), **text, "image_rotary_emb": rotary(2, 2, 3)}
    fixture.case("rotary", model, ROTARY, turned)
    for name, frames in {"learned": 3, "learned for other frames": 2}.items():
        video = {"hidden_states": floats(2, frames, 8, 4, 8), **text, "image_rotary_emb": rotary(frames, 2, 4)}
        fixture.case(name, model, I2V, video)
    halved = {
        "hidden_states": floats(2, 4, 6, 4, 6),
        **text,
        "ofs": [2.0],
        "image_rotary_emb": rotary(2, 2, 3, "slice"),
    }
    fixture.case("frames in patches", model, ONE_HALF, halved)
    for name, arguments in ROTARIES.items():
        fixture.extra(f"rotary: {name}", torch.stack(get_3d_rotary_pos_embed(**arguments)))
    for name, arguments in SINES.items():
        sizes = arguments["spatial_size"]
        given = {**arguments, "spatial_size": sizes if isinstance(sizes, int) else tuple(sizes)}
        fixture.extra(f"sines: {name}", get_3d_sincos_pos_embed(**given))
    fixture.extra("rotaries", ROTARIES)
    fixture.extra("sines", SINES)


def tensor(name, shape):
    return torch.from_numpy(hashed(name, tuple(shape)))


def autoencoders(fixture):
    model = AutoencoderKLCogVideoX
    methods = ("forward", "encode", "decode", "tiled_encode", "tiled_decode", "enable_tiling")
    fixture.model(model, {"cogvideox_vae": {}}, methods=methods)
    fixture.case("there and back", model, VAE, {"sample": floats(1, 3, 9, 8, 12, name="video")})
    for frames, latents, trained in LENGTHS:
        x, z = floats(2, 3, frames, 8, 12, name="video"), floats(2, 4, latents, 2, 3, name="latents")
        fixture.case(f"encode {frames}", model, VAE, {"x": x}, method="encode", gradients=trained)
        fixture.case(f"decode {latents}", model, VAE, {"z": z}, method="decode", gradients=trained)
    fixture.case("encode each frame", model, EACH_FRAME, {"x": floats(1, 3, 11, 8, 12)}, method="encode")
    fixture.case("decode each frame", model, EACH_FRAME, {"z": floats(1, 4, 5, 2, 3)}, method="decode")
    fixture.case("other there and back", model, VAE_OTHER, {"sample": floats(1, 4, 3, 7, 10, name="video")})
    quantised = {"sample": floats(1, 4, 2, 6, 4, name="video")}
    fixture.case("quantised there and back", model, QUANTISED, quantised, gradients=False)
    for name, (sizes, arguments) in TILED.items():
        vae = fixture.filled(model, VAE).double()
        vae.enable_tiling(**arguments)
        vae.enable_slicing()
        with torch.no_grad():
            posterior = vae.encode(tensor("video", (sizes[0], 3, *sizes[1:])).double()).latent_dist
            fixture.extra(f"{name}: tiled_moments", posterior.parameters)
            fixture.extra(f"{name}: tiled_decoded", vae.decode(tensor("latents", posterior.mean.shape).double()).sample)
        fixture.extra(f"{name}: latents", list(posterior.mean.shape))
    fixture.extra("tiled", TILED)


def main():
    fixture = ModelFixture("cogvideox")
    transformers(fixture)
    autoencoders(fixture)
    fixture.write()


if __name__ == "__main__":
    main()
