"""Golden files of SD3Transformer2DModel, from diffusers: tiny configs, and the keys of Stable Diffusion 3 medium, 3.5
medium and 3.5 large.

python tests/golden/make_golden_models_sd3.py      # a Python that has torch, diffusers and transformers
"""

from diffusers import SD3Transformer2DModel
from model_fixture import ModelFixture, floats

TINY = {
    "sample_size": 8,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 2,
    "num_attention_heads": 2,
    "attention_head_dim": 8,
    "joint_attention_dim": 12,
    "caption_projection_dim": 16,
    "pooled_projection_dim": 10,
    "pos_embed_max_size": 6,
}
# As the repositories' config.json have them.
SD3_MEDIUM = {"sample_size": 128, "num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536,
              "pos_embed_max_size": 192}  # fmt: skip
SD35_MEDIUM = {**SD3_MEDIUM, "pos_embed_max_size": 384, "dual_attention_layers": list(range(13)), "qk_norm": "rms_norm"}
SD35_LARGE = {**SD3_MEDIUM, "num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432,
              "qk_norm": "rms_norm"}  # fmt: skip


def told(batch, height, width, words, timestep):
    return {
        "hidden_states": floats(batch, 4, height, width),
        "encoder_hidden_states": floats(batch, words, 12),
        "pooled_projections": floats(batch, 10),
        "timestep": timestep,
    }


fixture = ModelFixture("sd3")
fixture.model(
    SD3Transformer2DModel,
    full_size={"sd3_medium": SD3_MEDIUM, "sd35_medium": SD35_MEDIUM, "sd35_large": SD35_LARGE},
)
fixture.case("sd3", SD3Transformer2DModel, TINY, told(2, 8, 6, 3, [17.5, 903.0]))
fixture.case(
    "sd35_medium",
    SD3Transformer2DModel,
    {**TINY, "qk_norm": "rms_norm", "dual_attention_layers": [0]},
    told(2, 4, 12, 2, [500.0, 3.0]),
)
# Four blocks, of which one is left out, told of two more states than their own: of two blocks each.
control = {"list": [floats(1, 6, 16, name="control_0"), floats(1, 6, 16, name="control_1")]}
fixture.case(
    "control_and_skipped",
    SD3Transformer2DModel,
    {**TINY, "num_layers": 4, "patch_size": 1},
    {
        **told(1, 2, 3, 2, [999.0]),
        "block_controlnet_hidden_states": control,
        "skip_layers": {"list": [1]},
    },
    gradients=False,
)
fixture.write()
