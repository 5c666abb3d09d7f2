"""Golden files of FLUX's pipelines: what diffusers' make of tiny networks.

    python tests/golden/make_golden_pipelines_flux.py    # with torch, diffusers, transformers

Writes pipelines/flux (.json.gz, .safetensors.xz; see pipeline_fixture.py). Tokenizers are those of Stable Diffusion's
and PixArt's cases.
"""

from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    FluxFillPipeline,
    FluxImg2ImgPipeline,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
    UniPCMultistepScheduler,
)
from pipeline_fixture import PipelineFixture
from transformers import CLIPTextModel, CLIPTokenizer, T5EncoderModel, T5Tokenizer

CLIP = {"vocab_size": 531, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 77, "hidden_act": "quick_gelu", "bos_token_id": 529,
        "eos_token_id": 530, "pad_token_id": 1}  # fmt: skip
T5 = {"vocab_size": 235, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
      "feed_forward_proj": "gated-gelu"}  # fmt: skip
FLUX = {"in_channels": 16, "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 8, "num_attention_heads": 2,
        "joint_attention_dim": 24, "pooled_projection_dim": 12, "axes_dims_rope": [2, 2, 4]}  # fmt: skip
VAE = {"block_out_channels": [16, 16], "in_channels": 3, "out_channels": 3,
       "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
       "latent_channels": 4, "norm_num_groups": 8, "layers_per_block": 1, "sample_size": 32, "scaling_factor": 0.3611,
       "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False,
       "force_upcast": False}  # fmt: skip
DYNAMIC = {"use_dynamic_shifting": True, "base_image_seq_len": 16, "max_image_seq_len": 256}

fixture = PipelineFixture("flux")
fixture.network("clip", CLIPTextModel, CLIP, key=lambda name: f"text_model.{name}")  # as files have it
fixture.network("t5", T5EncoderModel, T5)
fixture.network("dev", FluxTransformer2DModel, {**FLUX, "guidance_embeds": True})
fixture.network("schnell", FluxTransformer2DModel, FLUX)
fixture.network("fill", FluxTransformer2DModel,
                {**FLUX, "guidance_embeds": True, "in_channels": 48, "out_channels": 16})  # fmt: skip
fixture.network("vae", AutoencoderKL, VAE)
fixture.tokenizer("tokenizer", CLIPTokenizer)
fixture.tokenizer("pixart_tokenizer", T5Tokenizer)
fixture.scheduler("dynamic", FlowMatchEulerDiscreteScheduler, DYNAMIC)
fixture.scheduler("plain", FlowMatchEulerDiscreteScheduler, {"shift": 1.0})
fixture.scheduler("unipc", UniPCMultistepScheduler,
                  {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0})  # fmt: skip
more = {"guidance_mode": "as the other pipelines have it"}
broken = "theirs wants it without an image, and then fails for want of one"
fixture.pipeline(FluxFillPipeline, differences={"__call__": {"masked_image_latents": broken}})
for cls in (FluxPipeline, FluxImg2ImgPipeline, FluxKontextPipeline):
    fixture.pipeline(cls, differences={"__call__": more})

CALL = {"prompt": "a photo of a cat", "num_inference_steps": 3, "height": 32, "width": 24}
TWO = {**CALL, "prompt": ["a photo of a cat", "the red dog"], "prompt_2": ["stars at night", "A photo of two dogs"]}
NEGATIVE = {"negative_prompt": "the dog", "true_cfg_scale": 2.5}
PICTURE = {"image": {"picture": [32, 24]}, "strength": 0.6}


def case(name, call, cls=FluxPipeline, transformer="dev", scheduler="dynamic", seed=0):
    parts = {"scheduler": scheduler, "vae": "vae", "text_encoder": "clip", "tokenizer": "tokenizer",
             "text_encoder_2": "t5", "tokenizer_2": "pixart_tokenizer", "transformer": transformer}  # fmt: skip
    fixture.case(f"flux_{name}", cls, parts, call, seed=seed)


def without(call, *names):
    return {k: v for k, v in call.items() if k not in names}


case("dev", CALL)
case("schnell", {**CALL, "num_inference_steps": 1, "max_sequence_length": 20}, transformer="schnell", scheduler="plain")
case("two", {**TWO, "num_images_per_prompt": 2, "max_sequence_length": 12}, seed=[3, 1, 4, 1])
case("negative", {**TWO, **NEGATIVE, "negative_prompt_2": "lazy dogs", "guidance_scale": 1.5})
case("negative_unguided", {**CALL, "negative_prompt": "the dog"}, transformer="schnell")
case("sigmas", {**without(CALL, "num_inference_steps"), "sigmas": [0.9, 0.5, 0.1]})
case("unipc", CALL, scheduler="unipc")
case("latents", {**CALL, "latents": {"floats": [1, 48, 16]}, "output_type": "latent"})
case("shift", {**CALL, **NEGATIVE, "callback_on_step_end": {"callback": "shift"}})
given = {"prompt_embeds": {"floats": [2, 9, 24]}, "pooled_prompt_embeds": {"floats": [2, 12]}}
case("embeds", {**without(CALL, "prompt"), **given})
negative = {f"negative_{name}": {"floats": value["floats"]} for name, value in given.items()}
case("embeds_negative", {**without(CALL, "prompt"), **given, **negative, "true_cfg_scale": 3.0})
case("img2img", {**CALL, **PICTURE, "num_inference_steps": 4}, FluxImg2ImgPipeline)
case("img2img_two", {**TWO, **PICTURE, **NEGATIVE, "strength": 0.34}, FluxImg2ImgPipeline, "schnell", "plain")
FILL = {"image": {"picture": [32, 24]}, "mask_image": {"mask": [32, 24]}, "guidance_scale": 30.0}
case("fill", {**CALL, **FILL}, FluxFillPipeline, "fill")
case("fill_two", {**TWO, **FILL, "strength": 0.7}, FluxFillPipeline, "fill", seed=[4, 2])
SMALL = {"max_area": 32 * 24, "_auto_resize": False}
case("kontext_text", {**CALL, "max_area": 32 * 24}, FluxKontextPipeline, "schnell")
case("kontext", {**CALL, **SMALL, "image": {"picture": [20, 28]}}, FluxKontextPipeline)
case(
    "kontext_two",
    {**TWO, **SMALL, **NEGATIVE, "image": {"picture": [16, 12]}, "height": 96, "width": 48, "max_area": 48 * 24},
    FluxKontextPipeline,
)
fixture.write()
