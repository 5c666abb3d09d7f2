"""Golden files of Stable Diffusion 3's pipelines: what diffusers' make of them with tiny networks.

    python tests/golden/make_golden_pipelines_stable_diffusion_3.py    # with torch, diffusers, transformers

Writes pipelines/stable_diffusion_3 (.json.gz, .safetensors.xz; see pipeline_fixture.py). The tokenizers are those of
Stable Diffusion's and of PixArt's script.
"""

import json
import warnings

import diffusers
import transformers
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture

warnings.simplefilter("ignore")

VOCABULARY = len(json.loads((FOLDER / "tokenizer" / "vocab.json").read_text()))
CLIP = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
        "num_attention_heads": 2, "max_position_embeddings": 77, "projection_dim": 16, "hidden_act": "quick_gelu",
        "bos_token_id": VOCABULARY - 2, "eos_token_id": VOCABULARY - 1, "pad_token_id": 1}  # fmt: skip
# As many features as both CLIPs have, and some more.
T5 = {"vocab_size": 235, "d_model": 48, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
      "feed_forward_proj": "gated-gelu"}  # fmt: skip
TRANSFORMER = {"sample_size": 8, "in_channels": 16, "out_channels": 16, "num_layers": 3, "num_attention_heads": 2,
               "attention_head_dim": 8, "joint_attention_dim": 48, "caption_projection_dim": 16,
               "pooled_projection_dim": 40, "pos_embed_max_size": 12}  # fmt: skip
VAE = {"block_out_channels": [16, 32], "in_channels": 3, "out_channels": 3, "latent_channels": 16,
       "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
       "norm_num_groups": 8, "layers_per_block": 1, "sample_size": 16, "use_quant_conv": False,
       "use_post_quant_conv": False, "scaling_factor": 1.5305, "shift_factor": 0.0609}  # fmt: skip
SCHEDULERS = {"shift": {"shift": 3.0}, "dynamic": {"use_dynamic_shifting": True, "base_image_seq_len": 4,
              "max_image_seq_len": 64}}  # fmt: skip

T2I, I2I = "StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline"
INPAINT = "StableDiffusion3InpaintPipeline"
PROMPT = {"prompt": "a photo of the cat", "num_inference_steps": 3, "guidance_scale": 4.0, "max_sequence_length": 12}
TWO = {**PROMPT, "prompt": ["a photo of the cat", "the red dog and the cat running"]}
OTHERS = {"prompt_2": "red cat", "prompt_3": "A dog", "negative_prompt": "dog, red", "negative_prompt_2": "the",
          "negative_prompt_3": "stars at night"}  # fmt: skip
PICTURE, MASK = {"picture": [20, 28]}, {"mask": [20, 28]}


def key(name):
    """As in files: transformers 5 has the text model's tensors at the root of CLIPTextModel."""
    return name if name.startswith(("text_model.", "text_projection.")) else "text_model." + name


def without(call, *names):
    return {k: v for k, v in call.items() if k not in names}


fixture = PipelineFixture("stable_diffusion_3")
fixture.network("text", transformers.CLIPTextModelWithProjection, CLIP, key)
fixture.network("text_2", transformers.CLIPTextModelWithProjection, {**CLIP, "hidden_size": 24, "projection_dim": 24,
                "hidden_act": "gelu"}, key)  # fmt: skip
fixture.network("t5", transformers.T5EncoderModel, T5)
fixture.network("sd3", diffusers.SD3Transformer2DModel, TRANSFORMER)
fixture.network("sd35", diffusers.SD3Transformer2DModel, {**TRANSFORMER, "qk_norm": "rms_norm",
                "dual_attention_layers": [0, 1]})  # fmt: skip
fixture.network("sd3_33", diffusers.SD3Transformer2DModel, {**TRANSFORMER, "in_channels": 33})
fixture.network("vae", diffusers.AutoencoderKL, VAE)
# diffusers' inpainting takes shift_factor into account when it encodes, not when it decodes; ours does both.
fixture.network("vae_unshifted", diffusers.AutoencoderKL, {**VAE, "shift_factor": 0.0})
for name, config in SCHEDULERS.items():
    fixture.scheduler(name, diffusers.FlowMatchEulerDiscreteScheduler, config)
for name in ("tokenizer", "tokenizer_2"):
    fixture.tokenizer(name, transformers.CLIPTokenizer)
fixture.tokenizer("pixart_tokenizer", transformers.T5Tokenizer)
CALL = {"guidance_mode": "ours: both halves in one call of the network, or two"}
for name in (T2I, I2I, INPAINT):
    fixture.pipeline(getattr(diffusers, name), {"__call__": CALL})


def case(name, pipeline, call, transformer="sd3", scheduler="shift", t5=True, seed=0, **inputs):
    """inputs: arguments of the call as pipeline_cases.py writes them."""
    parts = {
        "transformer": transformer,
        "scheduler": scheduler,
        "vae": "vae_unshifted" if pipeline == INPAINT else "vae",
        "text_encoder": "text",
        "tokenizer": "tokenizer",
        "text_encoder_2": "text_2",
        "tokenizer_2": "tokenizer_2",
        "text_encoder_3": "t5" if t5 else None,
        "tokenizer_3": "pixart_tokenizer" if t5 else None,
    }
    fixture.case(f"sd3_{name}", getattr(diffusers, pipeline), parts, {**call, **inputs}, seed=seed)


case("t2i", T2I, PROMPT)
case("t2i_prompts", T2I, {**PROMPT, **OTHERS}, "sd35")
case("t2i_without_t5", T2I, {**PROMPT, "negative_prompt": "dog"}, "sd35", t5=False)
case("t2i_two", T2I, {**TWO, "negative_prompt": ["dog", ""], "num_images_per_prompt": 2}, seed=[3, 1, 4, 1])
case("t2i_clip_skip", T2I, {**PROMPT, "clip_skip": 1})
case("t2i_no_guidance", T2I, {**PROMPT, "guidance_scale": 1.0})
case("t2i_dynamic", T2I, {**PROMPT, "height": 16, "width": 24}, scheduler="dynamic")
case("t2i_mu", T2I, {**PROMPT, "mu": 0.2}, scheduler="dynamic")
case("t2i_sigmas", T2I, {**without(PROMPT, "num_inference_steps"), "sigmas": [1.0, 0.7, 0.2]})
case("t2i_latents", T2I, PROMPT, latents={"floats": [1, 16, 8, 12]}, scheduler="dynamic")
case("t2i_long", T2I, {**PROMPT, "prompt": "the cat and the dog, " * 30})
skipping = {"num_inference_steps": 6, "skip_guidance_layers": [1], "skip_layer_guidance_stop": 0.5}
case("t2i_skip_layers", T2I, {**PROMPT, **skipping}, "sd35")
case("t2i_skip_layers_two", T2I, {**TWO, **skipping, "skip_guidance_layers": [0, 2], "skip_layer_guidance_scale": 1.5,
     "skip_layer_guidance_start": 0.2}, seed=[1, 2])  # fmt: skip
given = {"prompt_embeds": [1, 9, 48], "negative_prompt_embeds": [1, 9, 48], "pooled_prompt_embeds": [1, 40],
         "negative_pooled_prompt_embeds": [1, 40]}  # fmt: skip
case("t2i_embeds", T2I, without(PROMPT, "prompt"), **{name: {"floats": shape} for name, shape in given.items()})
case("t2i_callback", T2I, PROMPT, callback_on_step_end={"callback": "shift"},
     callback_on_step_end_tensor_inputs=["latents", "prompt_embeds"])  # fmt: skip
SQUARE = {"height": 16, "width": 16}  # as the networks have it without
case("i2i", I2I, {**PROMPT, **SQUARE, "num_inference_steps": 5, "strength": 0.6}, image=PICTURE)
case("i2i_default_size", I2I, {**PROMPT, "num_inference_steps": 2, "strength": 0.5}, image=PICTURE)
case("i2i_part_of_a_step", I2I, {**PROMPT, "num_inference_steps": 5, "strength": 0.5, "height": 16, "width": 24},
     scheduler="dynamic", image=PICTURE)  # fmt: skip
others = {"prompt_2": ["red cat", "the"], "prompt_3": ["A dog", "stars"], "negative_prompt": ["dog", "cat"],
          "negative_prompt_2": ["the", "red"], "negative_prompt_3": ["night", "fox"]}  # fmt: skip
case("i2i_two", I2I, {**TWO, **others, "strength": 0.8}, "sd35", image={"picture": [16, 16]})
case("inpaint", INPAINT, {**PROMPT, **SQUARE, "num_inference_steps": 5}, image=PICTURE, mask_image=MASK)
case("inpaint_two", INPAINT, {**TWO, "strength": 1.0}, "sd35", image=PICTURE, mask_image=MASK, seed=[4, 2])
case("inpaint_33", INPAINT, {**PROMPT, "strength": 0.7}, "sd3_33", image=PICTURE, mask_image=MASK)
case("inpaint_crop", INPAINT, {**PROMPT, "padding_mask_crop": 4}, image={"picture": [36, 28]},
     mask_image={"mask": [36, 28]})  # fmt: skip
fixture.write()
