"""What stays wide in every registered model when it is quantised, by the rules in scaffolding/nn/quantize.cpp."""

import re

import pytest

import scaffolding as sf
from scaffolding import _core

TRANSFORMER = ["norm_out.linear", "patch_embed.proj", "patch_embed.text_proj", "proj_out", "time_embedding.linear_#",
               "transformer_blocks.#.norm#.linear"]  # fmt: skip
UNET = ["conv_in", "conv_out", "time_embedding.linear_#"]
# Linear layers and Conv2d, with # for numbers. Whole autoencoders stay wide in pipelines and files; parts of networks,
# and networks without a first or last layer of a name of its own, have nothing that must.
WIDE = {
    "AutoencoderKL": [f"{part}.conv_{end}" for part in ("decoder", "encoder") for end in ("in", "out")],
    "AutoencoderKLCogVideoX": [],
    "AutoencoderKLLTX2Video": [],
    "AutoencoderKLLTX2Audio": [f"{part}.conv_{end}.conv" for part in ("decoder", "encoder") for end in ("in", "out")],
    "AutoencoderTiny": [],
    "CLIPTextModel": [],
    "CLIPTextModelWithProjection": ["text_projection"],
    "CogVideoXTransformer3DModel": TRANSFORMER,
    "ControlNetModel": ["controlnet_cond_embedding.blocks.#", "controlnet_cond_embedding.conv_in",
                        "controlnet_cond_embedding.conv_out", "controlnet_down_blocks.#", "controlnet_mid_block",
                        "conv_in", "time_embedding.linear_#"],
    "DiTModel": ["blocks.#.adaLN_modulation", "final_linear", "final_modulation", "t_embedder.linear_#",
                 "text_embedder.linear_#", "x_embedder"],
    "DiTTransformer2DModel": ["pos_embed.proj", "proj_out_#",
                              "transformer_blocks.#.norm#.emb.timestep_embedder.linear_#",
                              "transformer_blocks.#.norm#.linear"],
    # its blocks are told the timestep by a quarter of all weights, which are no exception
    "FluxTransformer2DModel": ["context_embedder", "norm_out.linear", "proj_out", "x_embedder",
                               *(f"time_text_embed.{what}_embedder.linear_#" for what in ("text", "timestep"))],
    "Gemma3TextModel": [],
    "LTX2TextConnectors": [],
    "LTX2VideoTransformer3DModel": [
        *(f"{stream}proj_{end}" for stream in ("", "audio_") for end in ("in", "out")),
        *(f"{stream}caption_projection.linear_#" for stream in ("", "audio_")),
        *(f"{which}.{layer}" for layer in ("emb.timestep_embedder.linear_#", "linear")
          for which in ("time_embed", "audio_time_embed", "av_cross_attn_video_scale_shift",
                        "av_cross_attn_audio_scale_shift", "av_cross_attn_video_a#v_gate",
                        "av_cross_attn_audio_v#a_gate")),
    ],
    "LTX2LatentUpsamplerModel": [],
    "LTX2Vocoder": [],
    "LTX2VocoderWithBWE": [],
    "PixArtTransformer2DModel": [*(f"adaln_single.emb.{what}_embedder.linear_#"
                                   for what in ("aspect_ratio", "resolution", "timestep")),
                                 "adaln_single.linear", "pos_embed.proj", "proj_out"],
    "Qwen3Model": [],
    "RRDBNet": ["conv_first", "conv_last"],
    "ResBlock3D": [],
    "SD3Transformer2DModel": ["context_embedder", "norm_out.linear", "pos_embed.proj", "proj_out",
                              "time_text_embed.text_embedder.linear_#", "time_text_embed.timestep_embedder.linear_#",
                              "transformer_blocks.#.norm#.linear", "transformer_blocks.#.norm#_context.linear"],
    "SRVGGNetCompact": [],
    "SimpleUNet3D": ["time_embedding.linear_#"],
    "SpatialTemporalAttention": [],
    "T5EncoderModel": [],
    "TextEncoder": [],
    "ToraTransformer3DModel": [*TRANSFORMER, "fuser.#.flow_beta_spatial", "fuser.#.flow_gamma_spatial",
                               "traj_extractor.conv_in"],
    "Transformer2DModel": ["proj_in", "proj_out"],
    "UNet2DConditionModel": UNET,
    "UNet2DModel": UNET,
    "UNet3D": ["time_embedding.linear_#"],
    "VideoDecoder": [],
    "VideoEncoder": [],
    "VideoTimestepEmbedding": [],
    "ZImageTransformer2DModel": ["all_final_layer.#-#.adaLN_modulation.#", "all_final_layer.#-#.linear",
                                 "all_x_embedder.#-#", "cap_embedder.#", "layers.#.adaLN_modulation.#",
                                 "noise_refiner.#.adaLN_modulation.#", "t_embedder.mlp.#"],
}  # fmt: skip


@pytest.mark.parametrize("name", _core._models.names())
def test_what_must_be_wide_stays_so(name):
    with sf.device("meta"):
        model = getattr(sf.models, name)(**({"in_channels": 32} if name == "Transformer2DModel" else {}))
    layers = {n: m for n, m in model.named_modules() if n and type(m) in (sf.nn.Linear, sf.nn.Conv2d)}
    wide = {
        re.sub(r"\d+", "#", n)
        for n, m in layers.items()
        if not _core._quantized_format(n, m.weight.numel(), "Q8_0", [])
    }
    assert sorted(wide) == sorted(WIDE[name])
    assert not layers or len(wide) < len({re.sub(r"\d+", "#", n) for n in layers})
