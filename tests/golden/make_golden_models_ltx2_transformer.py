"""Golden files of LTX-2's transformer and of its text connectors, from diffusers: tiny configs, and the keys of LTX-2.0
and LTX-2.3.

    python tests/golden/make_golden_models_ltx2_transformer.py    # a Python that has torch, diffusers and transformers

Places of patches are for test_models_ltx2_transformer.py.
"""

import torch
from diffusers import LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2 import LTX2TextConnectors
from model_fixture import ModelFixture, floats

TINY = {
    "in_channels": 4,
    "out_channels": 4,
    "num_attention_heads": 2,
    "attention_head_dim": 8,
    "cross_attention_dim": 16,
    "audio_in_channels": 3,
    "audio_out_channels": 3,
    "audio_num_attention_heads": 2,
    "audio_attention_head_dim": 4,
    "audio_cross_attention_dim": 8,
    "num_layers": 2,
    "caption_channels": 10,
    "rope_type": "split",
}
NEWER = {
    **TINY,
    "gated_attn": True,
    "cross_attn_mod": True,
    "audio_gated_attn": True,
    "audio_cross_attn_mod": True,
    "use_prompt_embeddings": False,
    "perturbed_attn": True,
}
OTHER = {
    **TINY,
    "rope_type": "interleaved",
    "out_channels": None,
    "audio_out_channels": 5,
    "patch_size": 2,
    "patch_size_t": 2,
    "audio_patch_size_t": 2,
    "vae_scale_factors": [4, 16, 8],
    "pos_embed_max_pos": 2,
    "audio_pos_embed_max_pos": 3,
    "base_height": 64,
    "base_width": 48,
    "audio_scale_factor": 2,
    "audio_sampling_rate": 8000,
    "audio_hop_length": 100,
    "norm_elementwise_affine": True,
    "norm_eps": 1e-3,
    "attention_bias": False,
    "attention_out_bias": False,
    "ff_bias": False,
    "activation_fn": "gelu",
    "rope_theta": 10.0,
    "rope_double_precision": False,
    "causal_offset": 2,
    "timestep_scale_multiplier": 100,
    "cross_attn_timestep_scale_multiplier": 25,
}
# Streams whose heads differ, one of which has gates and modulates its text's queries.
MIXED = {
    **TINY,
    "num_attention_heads": 4,
    "attention_head_dim": 4,
    "audio_num_attention_heads": 2,
    "num_layers": 1,
    "audio_gated_attn": True,
    "cross_attn_mod": True,
    "use_prompt_adaln_single": False,
    "audio_ff_bias": False,
    "perturbed_attn": True,
}
GATED = {"gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True, "audio_cross_attn_mod": True}
PUBLISHED = {
    "ltx2_transformer": {"rope_type": "split"},
    "ltx2_3_transformer": {"rope_type": "split", **GATED, "use_prompt_embeddings": False, "perturbed_attn": True},
}

CONNECTORS = {
    "caption_channels": 8,
    "text_proj_in_factor": 3,
    "video_connector_num_attention_heads": 2,
    "video_connector_attention_head_dim": 4,
    "video_connector_num_layers": 1,
    "video_connector_num_learnable_registers": 4,
    "audio_connector_num_attention_heads": 1,
    "audio_connector_attention_head_dim": 8,
    "audio_connector_num_layers": 2,
    "audio_connector_num_learnable_registers": 2,
    "connector_rope_base_seq_len": 32,
    "rope_type": "split",
}
NEWER_CONNECTORS = {
    **CONNECTORS,
    "video_gated_attn": True,
    "audio_gated_attn": True,
    "per_modality_projections": True,
    "video_connector_attention_head_dim": 8,
    "video_hidden_dim": 16,
    "audio_hidden_dim": 8,
    "proj_bias": True,
}
OTHER_CONNECTORS = {
    **CONNECTORS,
    "rope_type": "interleaved",
    "video_connector_num_learnable_registers": None,
    "audio_connector_num_learnable_registers": None,
    "rope_theta": 20.0,
    "rope_double_precision": False,
    "causal_temporal_positioning": True,
}
PUBLISHED_CONNECTORS = {
    "ltx2_connectors": {"rope_type": "split"},
    "ltx2_3_connectors": {
        "video_connector_num_attention_heads": 32,
        "video_connector_num_layers": 8,
        "video_gated_attn": True,
        "audio_connector_num_attention_heads": 32,
        "audio_connector_attention_head_dim": 64,
        "audio_connector_num_layers": 8,
        "audio_gated_attn": True,
        "rope_type": "split",
        "per_modality_projections": True,
        "proj_bias": True,
    },
}

SIZE = {"num_frames": 2, "height": 3, "width": 2, "audio_num_frames": 5, "fps": 25.0}  # 12 tokens


def tokens(batch, video, audio, text=4, channels=(10, 10), config=TINY):
    return {
        "hidden_states": floats(batch, video, config["in_channels"]),
        "audio_hidden_states": floats(batch, audio, config["audio_in_channels"]),
        "encoder_hidden_states": floats(batch, text, channels[0]),
        "audio_encoder_hidden_states": floats(batch, text, channels[1]),
    }


def bounds(*starts):
    """[1, axes, N, 2]: a list of starts for each axis, each patch one unit long."""
    return [[[[start, start + 1.0] for start in axis] for axis in starts]]


fixture = ModelFixture("ltx2_transformer")
fixture.model(LTX2VideoTransformer3DModel, full_size=PUBLISHED)
fixture.case(
    "text_to_video",
    LTX2VideoTransformer3DModel,
    TINY,
    {
        **tokens(2, 12, 5),
        "timestep": [8.5, 31.25],
        "encoder_attention_mask": [[1, 1, 1, 0], [1, 1, 1, 1]],
        "audio_encoder_attention_mask": [[0, 1, 1, 1], [1, 1, 0, 0]],
        **SIZE,
    },
)
# Of an image to video the first frame's tokens have less noise than the others.
fixture.case(
    "newer",
    LTX2VideoTransformer3DModel,
    NEWER,
    {
        **tokens(2, 12, 5, channels=(16, 8)),
        "timestep": [[0.0] * 6 + [8.5] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]],
        "audio_timestep": [8.5, 12.0],
        "sigma": [8.5, 12.0],
        "audio_sigma": [6.5, 2.0],
        "use_cross_timestep": True,
        **SIZE,
    },
)
fixture.case(
    "newer_audio_by_tokens",
    LTX2VideoTransformer3DModel,
    NEWER,
    {
        **tokens(1, 3, 2, channels=(16, 8)),
        "timestep": [[1.0, 2.0, 3.0]],
        "audio_timestep": [[4.0, 5.0]],
        "sigma": [6.0],
        "video_coords": bounds([0.0, 0.25, 7.5], [0.0, 32.0, 512.0], [32.0, 96.0, 0.0]),
        "audio_coords": bounds([0.5, 3.0]),
    },
    gradients=False,
)
fixture.case(
    "half_perturbed",
    LTX2VideoTransformer3DModel,
    NEWER,
    {
        **tokens(2, 12, 5, channels=(16, 8)),
        "timestep": [8.5, 31.25],
        "sigma": [8.5, 31.25],
        "spatio_temporal_guidance_blocks": {"list": [1]},
        "perturbation_mask": floats(2),
        **SIZE,
    },
    gradients=False,
)
fixture.case(
    "perturbed",
    LTX2VideoTransformer3DModel,
    MIXED,
    {
        **tokens(1, 12, 5),
        "timestep": [8.5],
        "spatio_temporal_guidance_blocks": {"list": [0]},
        **SIZE,
    },
)
fixture.case(
    "heads_differ",
    LTX2VideoTransformer3DModel,
    MIXED,
    {**tokens(1, 12, 5), "timestep": [8.5], **SIZE},
    gradients=False,
)
fixture.case(
    "isolated",
    LTX2VideoTransformer3DModel,
    OTHER,
    {**tokens(1, 4, 3), "timestep": [8.5], "isolate_modalities": True, "num_frames": 2, "height": 4, "width": 4,
     "audio_num_frames": 6},
    gradients=False,
)  # fmt: skip
fixture.case(
    "masked_video",
    LTX2VideoTransformer3DModel,
    OTHER,
    {
        **tokens(1, 4, 3),
        "timestep": [8.5],
        "video_self_attention_mask": [[[float(i >= j) for j in range(4)] for i in range(4)]],
        "num_frames": 2,
        "height": 4,
        "width": 4,
        "audio_num_frames": 6,
    },
)

fixture.model(LTX2TextConnectors, full_size=PUBLISHED_CONNECTORS)
MASK = [[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]
fixture.case(
    "connectors",
    LTX2TextConnectors,
    CONNECTORS,
    {"text_encoder_hidden_states": floats(2, 8, 8, 3), "attention_mask": MASK},
)
fixture.case(
    "newer_connectors",
    LTX2TextConnectors,
    NEWER_CONNECTORS,
    {"text_encoder_hidden_states": floats(2, 8, 8, 3), "attention_mask": MASK},
)
fixture.case(
    "connectors_without_registers",
    LTX2TextConnectors,
    OTHER_CONNECTORS,
    {
        "text_encoder_hidden_states": floats(2, 3, 24),
        "attention_mask": [[1, 1, 0], [1, 1, 1]],
        "padding_side": "right",
        "scale_factor": 4,
    },
    gradients=False,
)

model = LTX2VideoTransformer3DModel(**OTHER)
fixture.extra("video_coords", model.rope.prepare_video_coords(2, 3, 5, 4, torch.device("cpu"), fps=30.0))
fixture.extra("audio_coords", model.audio_rope.prepare_audio_coords(2, 5, torch.device("cpu"), shift=1))
fixture.extra("config of coords", OTHER)
fixture.write()
