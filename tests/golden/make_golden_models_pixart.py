"""Golden files of PixArtTransformer2DModel, from diffusers: tiny configs, and the keys of PixArt-Sigma-XL-2 and of
PixArt-alpha's XL-2 at 1024.

python tests/golden/make_golden_models_pixart.py      # a Python that has torch, diffusers and transformers
"""

from diffusers import PixArtTransformer2DModel
from model_fixture import ModelFixture, floats

TINY = {
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "num_layers": 2,
    "sample_size": 8,
    "cross_attention_dim": 24,
    "caption_channels": 10,
}
SIGMA = {
    "sample_size": 128,
    "caption_channels": 4096,
    "cross_attention_dim": 1152,
    "interpolation_scale": 2,
    "use_additional_conditions": False,
}
ALPHA = {"sample_size": 128, "caption_channels": 4096, "cross_attention_dim": 1152}
UNCHANGED = {**TINY, "caption_channels": None}

fixture = ModelFixture("pixart")
fixture.model(PixArtTransformer2DModel, full_size={"pixart_sigma_xl_2": SIGMA, "pixart_alpha_xl_2": ALPHA})
text = {"encoder_hidden_states": floats(2, 5, 10), "encoder_attention_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]}
fixture.case(
    "sigma", PixArtTransformer2DModel, TINY, {"hidden_states": floats(2, 4, 8, 8), "timestep": [17, 903], **text}
)
sizes = {"dict": {"resolution": [[64.0, 96.0], [32.0, 48.0]], "aspect_ratio": [[0.7], [1.5]]}}
wide = {
    "hidden_states": floats(2, 4, 8, 12),
    "timestep": [500, 3],
    "encoder_hidden_states": floats(2, 5, 10),
    "added_cond_kwargs": sizes,
}
fixture.case(
    "alpha_sizes",
    PixArtTransformer2DModel,
    {**TINY, "use_additional_conditions": True, "sample_size": 16, "interpolation_scale": 2},
    wide,
)
other = {**UNCHANGED, "patch_size": 4, "in_channels": 3, "out_channels": None, "norm_elementwise_affine": True,
         "norm_eps": 1e-3, "attention_bias": False, "activation_fn": "geglu", "sample_size": 128,
         "use_additional_conditions": False}  # fmt: skip
bias = {"encoder_hidden_states": floats(1, 3, 24), "encoder_attention_mask": [[[0.0, -10000.0, -0.5]]]}
fixture.case(
    "other_fields", PixArtTransformer2DModel, other, {"hidden_states": floats(1, 3, 16, 16), "timestep": [999], **bias}
)
alone = {**UNCHANGED, "cross_attention_dim": None, "num_layers": 1}
fixture.case("without_text", PixArtTransformer2DModel, alone, {"hidden_states": floats(1, 4, 4, 4), "timestep": [0]})
fixture.write()
