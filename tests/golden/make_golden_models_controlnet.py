"""Golden files of ControlNetModel, from diffusers: tiny configs, and the keys of the published canny networks.

python tests/golden/make_golden_models_controlnet.py      # a Python that has torch, diffusers and transformers
"""

from diffusers import ControlNetModel
from model_fixture import ModelFixture, floats

TINY = {
    "block_out_channels": [8, 16],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "layers_per_block": 1,
    "cross_attention_dim": 12,
    "norm_num_groups": 4,
    "attention_head_dim": 2,
    "conditioning_embedding_out_channels": [4, 6, 8],
}
XL = {
    **TINY,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "transformer_layers_per_block": [1, 2],
    "attention_head_dim": [1, 2],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 4,
    "projection_class_embeddings_input_dim": 32,
    "controlnet_conditioning_channel_order": "bgr",
}
POOLED = {
    **TINY,
    "mid_block_type": "UNetMidBlock2D",
    "class_embed_type": "projection",
    "projection_class_embeddings_input_dim": 6,
    "global_pool_conditions": True,
    "conditioning_channels": 1,
    "resnet_time_scale_shift": "scale_shift",
}
SD15 = {"cross_attention_dim": 768}
SD21 = {"cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True}
SDXL = {
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "use_linear_projection": True,
    "cross_attention_dim": 2048,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}

fixture = ModelFixture("controlnet")
fixture.model(ControlNetModel, full_size={"sd15_controlnet": SD15, "sd21_controlnet": SD21, "sdxl_controlnet": SDXL})
usual = {
    "sample": floats(2, 4, 4, 6),
    "timestep": [17, 903],
    "encoder_hidden_states": floats(2, 5, 12),
    "controlnet_cond": floats(2, 3, 16, 24),
}
fixture.case("sd15", ControlNetModel, TINY, usual)
sizes = {"dict": {"text_embeds": floats(2, 8), "time_ids": [[64.0, 48, 0, 0, 32, 32], [32, 32, 8, 4, 64, 64]]}}
fixture.case("sdxl", ControlNetModel, XL, {**usual, "added_cond_kwargs": sizes, "conditioning_scale": 0.7})
fixture.case(
    "guess",
    ControlNetModel,
    {**TINY, "num_class_embeds": 5},
    {**usual, "class_labels": [3, 1], "guess_mode": True, "conditioning_scale": 0.5},
    gradients=False,
)
pooled = {**usual, "controlnet_cond": floats(2, 1, 16, 24), "class_labels": floats(2, 6), "guess_mode": True}
fixture.case("pooled", ControlNetModel, POOLED, pooled, gradients=False)
fixture.write()
