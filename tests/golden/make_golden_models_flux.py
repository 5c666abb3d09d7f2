"""Golden files of FluxTransformer2DModel, from diffusers: tiny configs, and the keys of FLUX.1 dev, schnell and Fill.

python tests/golden/make_golden_models_flux.py      # a Python that has torch, diffusers and transformers
"""

from diffusers import FluxTransformer2DModel
from model_fixture import ModelFixture, floats

TINY = {
    "in_channels": 8,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 10,
    "pooled_projection_dim": 6,
    "axes_dims_rope": [2, 2, 4],
}
PUBLISHED = {
    "flux_1_dev": {"guidance_embeds": True},
    "flux_1_schnell": {},
    "flux_1_fill_dev": {"guidance_embeds": True, "in_channels": 384, "out_channels": 64},
}


def inputs(batch, height, width, words):
    places = [[0.0, float(y), float(x)] for y in range(height) for x in range(width)]
    return {
        "hidden_states": floats(batch, height * width, 8),
        "encoder_hidden_states": floats(batch, words, 10),
        "pooled_projections": floats(batch, 6),
        "timestep": [0.25, 0.5][:batch],  # in thousandths they are exact in bfloat16, as the guidance is
        "img_ids": places,
        "txt_ids": [[0.0, 0.0, 0.0]] * words,
    }


fixture = ModelFixture("flux")
fixture.model(FluxTransformer2DModel, full_size=PUBLISHED)
fixture.case("schnell", FluxTransformer2DModel, TINY, inputs(2, 2, 3, 4))
dev = {**TINY, "guidance_embeds": True, "out_channels": 3, "patch_size": 2, "num_layers": 2, "num_single_layers": 3}
control = {
    "controlnet_block_samples": {"list": [floats(1, 6, 16)]},
    "controlnet_single_block_samples": {"list": [floats(1, 6, 16), floats(1, 6, 16)]},
}
fixture.case("dev_with_control", FluxTransformer2DModel, dev, {**inputs(1, 3, 2, 5), "guidance": [4.0], **control})
going_round = {
    "controlnet_block_samples": {"list": [floats(1, 4, 16), floats(1, 4, 16)]},
    "controlnet_blocks_repeat": True,
}
three = {**TINY, "num_layers": 3}
fixture.case(
    "control_goes_round", FluxTransformer2DModel, three, {**inputs(1, 2, 2, 3), **going_round}, gradients=False
)
fixture.write()
