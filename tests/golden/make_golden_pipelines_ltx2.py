"""Golden files of LTX-2's pipelines: what diffusers' make with tiny networks.

    python tests/golden/make_golden_pipelines_ltx2.py

The Python is one that has torch, diffusers, transformers and av. Writes pipelines/ltx2 (.json.gz, .safetensors.xz; see
pipeline_fixture.py), and pipelines/ltx2_tokenizer/, a small vocabulary as Gemma's is laid out.
"""

import json

import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    FlowMatchEulerDiscreteScheduler,
    LTX2ConditionPipeline,
    LTX2ImageToVideoPipeline,
    LTX2LatentUpsamplePipeline,
    LTX2Pipeline,
    LTX2VideoTransformer3DModel,
)
from diffusers.pipelines.ltx2 import LTX2LatentUpsamplerModel, LTX2TextConnectors, LTX2Vocoder
from diffusers.pipelines.ltx2.utils import apply_image_conditioning_crf
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture
from pipeline_inputs import embeds, picture
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import Gemma3TextModel, GemmaTokenizer

TEXT = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8,
        "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 512, "use_cache": False}  # fmt: skip
TRANSFORMER = {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8,
               "cross_attention_dim": 16, "audio_in_channels": 4, "audio_out_channels": 4,
               "audio_num_attention_heads": 2, "audio_attention_head_dim": 4, "audio_cross_attention_dim": 8,
               "num_layers": 2, "caption_channels": 16, "rope_type": "split"}  # fmt: skip
LATER = {**TRANSFORMER, "gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True,
         "audio_cross_attn_mod": True, "use_prompt_embeddings": False, "perturbed_attn": True}  # fmt: skip
CONNECTORS = {"caption_channels": 16, "text_proj_in_factor": 3, "connector_rope_base_seq_len": 32,
              "rope_type": "split", "rope_double_precision": True,
              **{f"{of}_connector_{what}": n for of in ("video", "audio")
                 for what, n in {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1,
                                 "num_learnable_registers": 8}.items()}}  # fmt: skip
LATER_CONNECTORS = {**CONNECTORS, "audio_connector_attention_head_dim": 4, "per_modality_projections": True,
                    "video_hidden_dim": 16, "audio_hidden_dim": 8, "proj_bias": True, "video_gated_attn": True,
                    "audio_gated_attn": True}  # fmt: skip
VAE = {"latent_channels": 4, "block_out_channels": [8], "decoder_block_out_channels": [8], "layers_per_block": [1, 1],
       "decoder_layers_per_block": [1, 1], "spatio_temporal_scaling": [True],
       "decoder_spatio_temporal_scaling": [True], "decoder_inject_noise": [False, False],
       "downsample_type": ["spatial"], "upsample_residual": [False], "upsample_factor": [1], "patch_size": 4,
       "patch_size_t": 1}  # fmt: skip
AUDIO_VAE = {"base_channels": 4, "output_channels": 2, "ch_mult": [1], "num_res_blocks": 1, "in_channels": 2,
             "resolution": 32, "latent_channels": 2, "norm_type": "pixel", "causality_axis": "height",
             "mid_block_add_attention": False, "mel_bins": 8}  # fmt: skip
VOCODER = {"in_channels": 16, "hidden_channels": 16, "out_channels": 2, "upsample_kernel_sizes": [4, 4],
           "upsample_factors": [2, 2], "resnet_kernel_sizes": [3], "resnet_dilations": [[1, 3, 5]],
           "output_sampling_rate": 16000}  # fmt: skip
# As LTX-2 has them, but for many more tokens: these networks' latents are of few pixels
SHIFTED = {"use_dynamic_shifting": True, "base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024,
           "max_image_seq_len": 409600, "shift_terminal": 0.1}  # fmt: skip
PLAIN = {"guidance_scale": 1.0, "stg_scale": 0.0, "modality_scale": 1.0, "guidance_rescale": 0.0,
         "audio_guidance_scale": 1.0, "audio_stg_scale": 0.0, "audio_modality_scale": 1.0,
         "audio_guidance_rescale": 0.0}  # fmt: skip
SMALL = {"height": 32, "width": 32, "num_frames": 3, "frame_rate": 25.0, "num_inference_steps": 3,
         "max_sequence_length": 16, "prompt": "a photo of a cat"}  # fmt: skip
TWO = {**SMALL, "prompt": ["a photo of a cat", "the dog and the cat, and 3 dogs more in the very long photo of a dog"]}
STG = {"spatio_temporal_guidance_blocks": [1]}
GUIDED = {**SMALL, **PLAIN, "guidance_scale": 3.0, "audio_guidance_scale": 7.0}
LARGER = {"width": 64, "num_frames": 5}
IMAGE = {"image": {"picture": [40, 60]}, "image_crf": 0}


def write_tokenizer(folder):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=TEXT["vocab_size"], special_tokens=special, show_progress=False)
    t.train_from_iterator([*TWO["prompt"]] * 20, trainer)
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    config = {"add_bos_token": True, "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
              "padding_side": "left", "tokenizer_class": "GemmaTokenizer", "unk_token": "<unk>"}  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(t.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


write_tokenizer(FOLDER / "ltx2_tokenizer")
fixture = PipelineFixture("ltx2")
fixture.network("text", Gemma3TextModel, TEXT)
fixture.network("transformer", LTX2VideoTransformer3DModel, TRANSFORMER)
fixture.network("later", LTX2VideoTransformer3DModel, LATER)
fixture.network("connectors", LTX2TextConnectors, CONNECTORS)
fixture.network("later_connectors", LTX2TextConnectors, LATER_CONNECTORS)
fixture.network("vae", AutoencoderKLLTX2Video, VAE)
fixture.network("vae_told", AutoencoderKLLTX2Video, {**VAE, "timestep_conditioning": True})
fixture.network("audio_vae", AutoencoderKLLTX2Audio, AUDIO_VAE)
fixture.network(
    "upsampler", LTX2LatentUpsamplerModel, {"in_channels": 4, "mid_channels": 32, "num_blocks_per_stage": 1}
)
fixture.network("vocoder", LTX2Vocoder, VOCODER)
fixture.tokenizer("ltx2_tokenizer", GemmaTokenizer)
fixture.scheduler("shifted", FlowMatchEulerDiscreteScheduler, SHIFTED)
fixture.scheduler("plain", FlowMatchEulerDiscreteScheduler, {})
later = "of later models: it changes nothing"
whole = "prompts are taken as they are"
differences = {
    "guidance_mode": "as the other pipelines have it",
    "num_frames": "None is 121, which the signature shows",
    "min_seconds": later,
    "max_seconds": later,
    "enable_prompt_enhancement": whole,
    "prompt_enhancement_seed": whole,
}
for cls in (LTX2Pipeline, LTX2ImageToVideoPipeline, LTX2ConditionPipeline):
    more = {"audio_scheduler": "the sound takes the clip's sampler"} if cls is LTX2ConditionPipeline else {}
    fixture.pipeline(cls, differences={"__call__": differences, "__init__": more})


def case(name, call, cls=LTX2Pipeline, seed=0, transformer="transformer", connectors="connectors", **parts):
    parts = {"vae": "vae", "audio_vae": "audio_vae", "text_encoder": "text", "tokenizer": "ltx2_tokenizer",
             "connectors": connectors, "transformer": transformer, "vocoder": "vocoder",
             "scheduler": "shifted", **parts}  # fmt: skip
    fixture.case(f"ltx2_{name}", cls, parts, call, seed=seed)


OF_23 = {"transformer": "later", "connectors": "later_connectors"}
case("guided", {**GUIDED, **LARGER, "use_cross_timestep": False})
case("alone", {**SMALL, **PLAIN}, scheduler="plain")
case("negative", {**GUIDED, "negative_prompt": "a dog", "guidance_rescale": 0.5}, seed=3)
case("of_23", {**SMALL, **STG}, **OF_23)
case("of_23_sound_as_clip", {**SMALL, **STG, "audio_guidance_scale": None, "audio_stg_scale": None,
                             "audio_modality_scale": None, "audio_guidance_rescale": None}, **OF_23)  # fmt: skip
case("stg", {**SMALL, **PLAIN, **STG, "stg_scale": 1.5}, **OF_23)
case("modality", {**SMALL, **PLAIN, "modality_scale": 2.0})
case("two", {**TWO, **STG, "negative_prompt": ["", "a dog"]}, seed=[3, 4], **OF_23)
case("copies", {**GUIDED, "num_videos_per_prompt": 2}, seed=[1, 2])
case("slow", {**GUIDED, "motion_speed": 0.5, "frame_rate": 30.0})
case("sigmas", {**GUIDED, "sigmas": [1.0, 0.7, 0.3]}, scheduler="plain")
case("shift", {**GUIDED, "callback_on_step_end": {"callback": "shift"}})
case("latents", {**GUIDED, "output_type": "latent"})
given = {"latents": {"floats": [1, 4, 2, 4, 4]}, "audio_latents": {"floats": [1, 2, 4, 2]}}
case("second_stage", {**GUIDED, **given, "noise_scale": 0.7})
case("tokens", {**GUIDED, "latents": {"floats": [1, 32, 4]}, "audio_latents": {"floats": [1, 3, 4]}})

case("decode_timestep", {**GUIDED, "decode_timestep": 0.3, "decode_noise_scale": 0.2}, vae="vae_told")

case("i2v", {**GUIDED, **IMAGE, **LARGER}, LTX2ImageToVideoPipeline)
case("i2v_of_23", {**SMALL, **STG, **IMAGE}, LTX2ImageToVideoPipeline, seed=5, **OF_23)
case("i2v_alone", {**SMALL, **PLAIN, **IMAGE}, LTX2ImageToVideoPipeline, scheduler="plain")
case("i2v_second_stage", {**GUIDED, **given, "noise_scale": 0.7}, LTX2ImageToVideoPipeline)

first = {"frames": 1, "size": [32, 64], "index": 0, "strength": 1.0}
last = {"frames": 1, "size": [30, 20], "index": -1, "strength": 0.8}
clip = {"frames": 4, "size": [32, 32], "index": 1, "strength": 0.5}


def through(name, *conditions, **call):
    parts = call.pop("parts", {})
    call = {**GUIDED, "conditions": {"conditions": conditions}, **call}
    case(f"condition_{name}", call, LTX2ConditionPipeline, **parts)


through("first", first, **LARGER)
through("first_and_last", {**first, "size": [40, 60]}, last, num_frames=5)
through("clip", clip, num_frames=5, frame_rate=30.0, motion_speed=0.5)
through("begins_with_clip", {**clip, "index": 0}, num_frames=5)
through("of_23", last, **{**SMALL, **STG}, parts=OF_23)
case("condition_none", GUIDED, LTX2ConditionPipeline)
case("condition_second_stage", {**GUIDED, **given, "noise_scale": 0.4}, LTX2ConditionPipeline)

# Between two stages: no pipeline of steps
upsampler = LTX2LatentUpsamplePipeline(fixture.parts["vae"], fixture.parts["upsampler"])
latents = torch.from_numpy(embeds("latents", [1, 4, 2, 3, 4]))
for name, call in {
    "plain": {},
    "filtered": {"adain_factor": 0.4, "tone_map_compression_ratio": 0.6},
    "normalized": {"latents_normalized": True},
}.items():
    made = upsampler(latents=latents, height=24, width=32, output_type="latent", **call).frames
    fixture.pictures[f"ltx2_upsampled.{name}"] = made

# What H.264 leaves of a picture; libx264 cuts taller ones for each core of the machine
fixture.pictures["ltx2_compressed"] = apply_image_conditioning_crf(picture(16, 32), 33)

fixture.write()
