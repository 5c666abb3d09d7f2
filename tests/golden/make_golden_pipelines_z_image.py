"""Golden files of Z-Image's pipelines: what diffusers' make with tiny networks.

    python tests/golden/make_golden_pipelines_z_image.py

The Python is one that has torch, diffusers and transformers. Writes pipelines/z_image (.json.gz, .safetensors.xz; see
pipeline_fixture.py). pipelines/z_image_tokenizer/ is make_golden_tokenizers_qwen2.py's.
"""

from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    ZImageImg2ImgPipeline,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from pipeline_fixture import PipelineFixture
from transformers import Qwen2Tokenizer, Qwen3Model

TEXT = {"vocab_size": 291, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 512,
        "use_cache": False, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}  # fmt: skip
TRANSFORMER = {"in_channels": 4, "dim": 32, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2,
               "cap_feat_dim": 16, "axes_dims": [4, 6, 6], "axes_lens": [640, 32, 32]}  # fmt: skip
VAE = {"block_out_channels": [8, 8], "in_channels": 3, "out_channels": 3, "latent_channels": 4, "norm_num_groups": 4,
       "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
       "layers_per_block": 1, "sample_size": 32, "scaling_factor": 0.3611, "shift_factor": 0.1159,
       "use_quant_conv": False, "use_post_quant_conv": False}  # fmt: skip
SCHEDULERS = {
    "turbo": {"num_train_timesteps": 1000, "shift": 3.0, "use_dynamic_shifting": False},
    "dynamic": {"num_train_timesteps": 1000, "use_dynamic_shifting": True},
}
SMALL = {"height": 16, "width": 20, "num_inference_steps": 3}
CAT = {**SMALL, "prompt": "a photo of a cat"}
# Of one and of two multiples of 32 tokens.
TWO = {**SMALL, "prompt": ["a photo of a cat", "the dog and the cat and a photo of the dog, 3 dogs"]}


def without(call, *names):
    return {k: v for k, v in call.items() if k not in names}


fixture = PipelineFixture("z_image")
fixture.network("text", Qwen3Model, TEXT)
fixture.network("transformer", ZImageTransformer2DModel, TRANSFORMER)
fixture.network("vae", AutoencoderKL, VAE)
fixture.tokenizer("z_image_tokenizer", Qwen2Tokenizer)
for name, config in SCHEDULERS.items():
    fixture.scheduler(name, FlowMatchEulerDiscreteScheduler, config)
ours = {"guidance_mode": "as the other pipelines have it"}
for cls in (ZImagePipeline, ZImageImg2ImgPipeline):
    fixture.pipeline(cls, differences={"__call__": ours})


def case(name, call, scheduler="turbo", cls=ZImagePipeline, seed=0):
    parts = {"vae": "vae", "text_encoder": "text", "tokenizer": "z_image_tokenizer", "scheduler": scheduler,
             "transformer": "transformer"}  # fmt: skip
    fixture.case(f"z_image_{name}", cls, parts, call, seed=seed)


case("turbo", CAT)
case("dynamic", {**CAT, "negative_prompt": "the dog"}, "dynamic")
case("no_guidance", {**CAT, "guidance_scale": 0.0})
case("two", {**TWO, "negative_prompt": ["", "cat"], "num_images_per_prompt": 2}, seed=[3, 1, 4, 1])
case("two_alone", {**TWO, "guidance_scale": 0.0}, "dynamic")
case("little_guidance", {**CAT, "guidance_scale": 0.5})
case("normalised", {**TWO, "cfg_normalization": True, "guidance_scale": 3.0})
case("truncated", {**TWO, "cfg_truncation": 0.2, "num_inference_steps": 4})
case("sigmas", {**without(CAT, "num_inference_steps"), "sigmas": [1.0, 0.7, 0.2]})
case("cut_off", {**TWO, "max_sequence_length": 14})
case("unicode", {**CAT, "prompt": "  caf\u00e9 \u732b\n\n<|im_end|> \U0001f408 "})
case("empty", {**CAT, "prompt": "", "num_inference_steps": 1})
case("latents", {**CAT, "latents": {"floats": [1, 4, 8, 10]}})
case("latent_output", {**CAT, "output_type": "latent"})
given = {**without(CAT, "prompt"), "prompt_embeds": {"list": [{"floats": [5, 16]}, {"floats": [33, 16]}]}}
case("embeds", {**given, "negative_prompt_embeds": {"list": [{"floats": [3, 16]}, {"floats": [7, 16]}]}})
case("embeds_alone", {**given, "guidance_scale": 0.0, "num_images_per_prompt": 2})
picture = {**without(CAT, "height", "width"), "image": {"picture": [16, 20]}, "num_inference_steps": 4}
case("img2img", picture, cls=ZImageImg2ImgPipeline)
case("img2img_whole", {**picture, "strength": 1.0, "guidance_scale": 0.0}, "dynamic", cls=ZImageImg2ImgPipeline)
case("img2img_two", {**picture, "prompt": TWO["prompt"], "num_images_per_prompt": 2, "strength": 0.4},
     cls=ZImageImg2ImgPipeline)  # fmt: skip
case("img2img_generators", {**picture, "num_images_per_prompt": 2, "cfg_truncation": 0.5}, cls=ZImageImg2ImgPipeline,
     seed=[5, 6])  # fmt: skip
case("img2img_odd_size", {**picture, "image": {"picture": [19, 22]}}, cls=ZImageImg2ImgPipeline)
fixture.write()
