"""Golden files of Stable Diffusion's pipelines: what diffusers' make of them with tiny networks.

    python tests/golden/make_golden_pipelines_stable_diffusion.py    # with torch, diffusers, transformers

Writes pipelines/stable_diffusion (.json.gz, .safetensors.gz; see pipeline_fixture.py), and pipelines/tokenizer*/,
a small CLIP vocabulary.
"""

import json
import warnings

import diffusers
import transformers
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture
from pipeline_inputs import CALLBACKS

warnings.simplefilter("ignore")
# transformers 5 made it the model itself, which diffusers' clip_skip does not know yet
if not hasattr(transformers.CLIPTextModel, "text_model"):
    transformers.CLIPTextModel.text_model = property(lambda self: self)

# ---- the tokenizer

MERGES = [
    "t h",
    "th e</w>",
    "c a",
    "ca t</w>",
    "o f</w>",
    "a n",
    "an d</w>",
    "p h",
    "ph o",
    "pho t",
    "phot o</w>",
    "i n",
    "in g</w>",
    "r e",
    "re d</w>",
    "d o",
    "do g</w>",
]


def bytes_to_unicode():
    bs = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    cs, n = bs[:], 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return [chr(c) for c in cs]


def write_tokenizer(folder, pad):
    letters = bytes_to_unicode()
    vocab = [
        *letters,
        *(c + "</w>" for c in letters),
        *(m.replace(" ", "") for m in MERGES),
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocab)}, ensure_ascii=True) + "\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
    config = {
        "model_max_length": 77,
        "bos_token": "<|startoftext|>",
        "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "pad_token": pad,
        "tokenizer_class": "CLIPTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    return len(vocab)


# ---- the networks


def configs(vocab):
    text = {"vocab_size": vocab, "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 4,
            "num_attention_heads": 4, "max_position_embeddings": 77, "projection_dim": 32, "hidden_act": "gelu",
            "bos_token_id": vocab - 2, "eos_token_id": vocab - 1, "pad_token_id": 1}  # fmt: skip
    unet = {"sample_size": 16, "in_channels": 4, "out_channels": 4,
            "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"], "norm_num_groups": 8,
            "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "block_out_channels": [16, 32],
            "layers_per_block": 1, "cross_attention_dim": 32, "attention_head_dim": 4}  # fmt: skip
    xl = {**unet, "attention_head_dim": [2, 4], "use_linear_projection": True, "addition_embed_type": "text_time",
          "addition_time_embed_dim": 8, "transformer_layers_per_block": [1, 2],
          "projection_class_embeddings_input_dim": 80, "cross_attention_dim": 64}  # fmt: skip
    vae = {"block_out_channels": [16, 32], "in_channels": 3, "out_channels": 3,
           "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
           "latent_channels": 4, "norm_num_groups": 8, "layers_per_block": 1, "sample_size": 32}  # fmt: skip
    return {
        "text": text,
        "unet": unet,
        "unet9": {**unet, "in_channels": 9},
        "unet_cond": {**unet, "time_cond_proj_dim": 8},
        "xl": xl,
        "xl9": {**xl, "in_channels": 9},
        "refiner": {**xl, "projection_class_embeddings_input_dim": 72, "cross_attention_dim": 32},
        "vae": vae,
        "xl_vae": {
            **vae,
            "scaling_factor": 0.13025,
            "latents_mean": [0.1, -0.2, 0.3, 0.0],
            "latents_std": [1.1, 0.9, 1.2, 1.0],
        },
    }


SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
SCHEDULERS = {
    "ddim": ("DDIMScheduler", {**SD, "clip_sample": False, "set_alpha_to_one": False}),
    "ddpm": ("DDPMScheduler", {**SD, "clip_sample": False}),
    "pndm": ("PNDMScheduler", {**SD, "skip_prk_steps": True, "set_alpha_to_one": False}),
    "euler": ("EulerDiscreteScheduler", SD),
    "euler_a": ("EulerAncestralDiscreteScheduler", SD),
    "dpm": ("DPMSolverMultistepScheduler", {**SD, "use_karras_sigmas": True}),
    "heun": ("HeunDiscreteScheduler", SD),
    "unipc": ("UniPCMultistepScheduler", SD),
    "lcm": ("LCMScheduler", SD),
    "v": (
        "DDIMScheduler",
        {
            **SD,
            "prediction_type": "v_prediction",
            "rescale_betas_zero_snr": True,
            "timestep_spacing": "trailing",
            "clip_sample": False,
        },
    ),
}

# ---- the calls

T2I, I2I, INPAINT = "StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline", "StableDiffusionInpaintPipeline"
XL, XLI2I = "StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline"
XLINPAINT = "StableDiffusionXLInpaintPipeline"
PROMPT = {"prompt": "a photo of the cat", "num_inference_steps": 5, "guidance_scale": 7.5}
TWO = {**PROMPT, "prompt": ["a photo of the cat", "the red dog and the cat running"]}


def components(pipeline, unet, scheduler):
    """Names of the parts, as the fixture has them, and options of the constructor."""
    parts = {
        "unet": unet,
        # diffusers' inpainting with SDXL takes latents_mean and latents_std into account when it decodes, not when it
        # encodes; ours does both.
        "vae": "xl_vae" if "XL" in pipeline and pipeline != XLINPAINT else "vae",
        "scheduler": scheduler,
        "tokenizer": "tokenizer",
        "text_encoder": "text",
    }
    if "XL" not in pipeline:
        return parts, {}
    parts |= {"text_encoder_2": "text_2", "tokenizer_2": "tokenizer_2"}
    if unet == "refiner":
        parts |= {"text_encoder": None, "tokenizer": None}
    return parts, {"requires_aesthetics_score": unet == "refiner"} if pipeline in (XLI2I, XLINPAINT) else {}


def case(name, pipeline, call, scheduler="ddim", unet=None, seed=0, then=None, **inputs):
    """inputs: arguments of the call as pipeline_cases.py writes them."""
    unet = unet or ("xl" if "XL" in pipeline else "unet")
    parts, options = components(pipeline, unet, scheduler)
    return {
        "name": name,
        "cls": getattr(diffusers, pipeline),
        "components": parts,
        "options": options,
        "call": {**call, **inputs},
        "seed": seed,
        "then": then,
    }


def changing(callback):
    return {
        "callback_on_step_end": {"callback": callback},
        "callback_on_step_end_tensor_inputs": ["latents", "prompt_embeds"],
    }


def cases():
    yield from (case(f"t2i_{s}", T2I, PROMPT, s) for s in SCHEDULERS if s != "ddpm")
    yield case("t2i_ddpm", T2I, {**PROMPT, "guidance_scale": 3.0}, "ddpm")
    yield case("t2i_no_guidance", T2I, {**PROMPT, "guidance_scale": 1.0})
    yield case("t2i_eta", T2I, {**PROMPT, "eta": 0.7})
    yield case("t2i_negative", T2I, {**PROMPT, "negative_prompt": "dog, red"}, "euler")
    yield case("t2i_two", T2I, {**TWO, "negative_prompt": ["dog", ""], "height": 24, "width": 40}, "dpm")
    yield case("t2i_images_per_prompt", T2I, {**TWO, "num_images_per_prompt": 2}, "euler_a", seed=[3, 1, 4, 1])
    yield case("t2i_generators", T2I, {**PROMPT, "num_images_per_prompt": 2, "eta": 0.5}, seed=[5, 6])
    yield case("t2i_rescale", T2I, {**PROMPT, "guidance_rescale": 0.7}, "v")
    yield case("t2i_clip_skip", T2I, {**PROMPT, "clip_skip": 2})
    yield case("t2i_long", T2I, {**PROMPT, "prompt": "the cat and the dog, " * 30})
    yield case("t2i_unicode", T2I, {**PROMPT, "prompt": "caf\u00e9 \u732b \U0001f408 (cat:1.2)"})
    yield case("t2i_empty", T2I, {**PROMPT, "prompt": ""})
    yield case("t2i_timesteps", T2I, {**PROMPT, "timesteps": [900, 700, 300, 20]}, "ddpm")
    yield case("t2i_sigmas", T2I, {**PROMPT, "sigmas": [14.0, 5.0, 1.5, 0.3]}, "euler")
    yield case("t2i_latents", T2I, PROMPT, latents={"floats": [1, 4, 16, 16]})
    yield case("t2i_latent_output", T2I, {**PROMPT, "output_type": "latent"}, "dpm")
    yield case(
        "t2i_embeds",
        T2I,
        {k: v for k, v in PROMPT.items() if k != "prompt"},
        prompt_embeds={"floats": [1, 77, 32]},
        negative_prompt_embeds={"floats": [1, 77, 32]},
    )
    yield case("t2i_distilled", T2I, PROMPT, "lcm", unet="unet_cond")
    for c in CALLBACKS:
        yield case(f"t2i_callback_{c}", T2I, PROMPT, **changing(c))
    for s in ("ddim", "euler", "dpm", "heun", "euler_a", "pndm"):
        yield case(f"i2i_{s}", I2I, {**PROMPT, "strength": 0.6}, s, image={"picture": [40, 32]})
    yield case(
        "i2i_two",
        I2I,
        {**TWO, "num_images_per_prompt": 2, "num_inference_steps": 8, "strength": 0.75},
        "euler",
        image={"picture": [32, 32]},
    )
    yield case("i2i_generators", I2I, {**TWO, "strength": 0.8}, "euler", seed=[8, 9], image={"picture": [32, 32]})
    yield case("i2i_odd_size", I2I, {**PROMPT, "strength": 1.0}, image={"picture": [33, 47]})
    for u in ("unet", "unet9"):
        yield case(
            f"inpaint_{u}",
            INPAINT,
            {**PROMPT, "height": 32, "width": 32},
            "euler",
            u,
            image={"picture": [50, 44]},
            mask_image={"mask": [50, 44]},
        )
        yield case(
            f"inpaint_{u}_strength",
            INPAINT,
            {**PROMPT, "height": 32, "width": 48, "strength": 0.7},
            "ddim",
            u,
            image={"picture": [32, 48]},
            mask_image={"mask": [32, 48]},
        )
        yield case(
            f"inpaint_{u}_two",
            INPAINT,
            {**TWO, "height": 32, "width": 32, "strength": 0.9},
            "dpm",
            u,
            image={"picture": [32, 32]},
            mask_image={"mask": [32, 32]},
        )
        yield case(
            f"inpaint_{u}_crop",
            INPAINT,
            {**PROMPT, "height": 32, "width": 32, "padding_mask_crop": 4},
            "ddim",
            u,
            image={"picture": [72, 60]},
            mask_image={"mask": [72, 60]},
        )
    yield from (case(f"xl_{s}", XL, {**PROMPT, "guidance_scale": 5.0}, s) for s in ("euler", "ddim", "dpm"))
    yield case(
        "xl_negative",
        XL,
        {**PROMPT, "negative_prompt": "dog", "prompt_2": "red cat", "negative_prompt_2": "the"},
        "euler",
    )
    yield case("xl_negative_2_alone", XL, {**PROMPT, "negative_prompt_2": "dog"}, "euler")
    yield case("xl_empty_2", XL, {**PROMPT, "prompt_2": "", "negative_prompt": "dog", "negative_prompt_2": ""}, "euler")
    sizes = {
        "original_size": [64, 48],
        "crops_coords_top_left": [4, 8],
        "target_size": [40, 40],
        "negative_original_size": [16, 16],
    }
    sizes |= {"negative_target_size": [24, 32], "negative_crops_coords_top_left": [1, 2]}
    sizes = {name: {"tuple": value} for name, value in sizes.items()} | {"height": 40, "width": 24}
    yield case("xl_sizes", XL, {**PROMPT, **sizes}, "euler")
    yield case(
        "xl_two",
        XL,
        {**TWO, "negative_prompt": ["dog", "cat"], "num_images_per_prompt": 2, "guidance_rescale": 0.5},
        "euler",
    )
    yield case("xl_clip_skip", XL, {**PROMPT, "clip_skip": 1}, "euler")
    yield case("xl_no_guidance", XL, {**PROMPT, "guidance_scale": 0.0}, "euler")
    yield case("xl_shift", XL, PROMPT, "euler", **changing("shift"))
    yield case("xl_i2i", XLI2I, {**PROMPT, "strength": 0.6}, "euler", image={"picture": [32, 40]})
    yield case(
        "xl_i2i_two",
        XLI2I,
        {**TWO, "strength": 0.8, "negative_original_size": {"tuple": [16, 16]}},
        "ddim",
        image={"picture": [32, 32]},
        seed=[1, 2],
    )
    yield case(
        "xl_refiner",
        XLI2I,
        {**PROMPT, "strength": 0.5, "aesthetic_score": 7.0, "negative_aesthetic_score": 2.0},
        "euler",
        "refiner",
        image={"picture": [32, 32]},
    )
    seconds = {"prompt_2": "red dog", "negative_prompt": "dog", "negative_prompt_2": "the"}
    yield case(
        "xl_refiner_2", XLI2I, {**PROMPT, **seconds, "strength": 0.5}, "euler", "refiner", image={"picture": [32, 32]}
    )
    # An end before the first step leaves the noise, a start behind the last one the picture.
    yield case("xl_no_step_to_the_end", XL, {**PROMPT, "denoising_end": 0.001}, "euler")
    yield case(
        "xl_i2i_no_step_from_the_start",
        XLI2I,
        {**PROMPT, "denoising_start": 0.999},
        "euler",
        image={"picture": [32, 32]},
    )
    for s in ("euler", "heun", "dpm"):
        yield case(f"xl_hand_over_{s}", XL, {**PROMPT, "num_inference_steps": 8, "denoising_end": 0.6,
                                             "output_type": "latent"}, s,
                   then={"pipeline": XLI2I, "components": components(XLI2I, "xl", s)[0],
                         "options": {"requires_aesthetics_score": False},
                         "call": {**PROMPT, "num_inference_steps": 8, "denoising_start": 0.6}})  # fmt: skip
    for u in ("xl", "xl9"):
        name, square = f"xl_inpaint_{u}", {"height": 32, "width": 32}
        small = {"image": {"picture": [32, 32]}, "mask_image": {"mask": [32, 32]}}
        large = {"image": {"picture": [72, 60]}, "mask_image": {"mask": [72, 60]}}
        yield case(name, XLINPAINT, {**PROMPT, **square}, "euler", u, **large)
        yield case(f"{name}_strength", XLINPAINT, {**PROMPT, "height": 32, "width": 48, "strength": 0.7}, "ddim", u,
                   image={"picture": [32, 48]}, mask_image={"mask": [32, 48]})  # fmt: skip
        yield case(f"{name}_noise", XLINPAINT, {**PROMPT, **square, "strength": 1.0}, "euler", u, **small)
        yield case(f"{name}_two", XLINPAINT, {**TWO, **square, "strength": 0.9, "prompt_2": ["red cat", "dog"],
                   "negative_prompt": ["dog", "the"], "negative_original_size": {"tuple": [16, 16]}}, "dpm", u,
                   seed=[4, 2], **small)  # fmt: skip
        yield case(f"{name}_crop", XLINPAINT, {**PROMPT, **square, "padding_mask_crop": 4}, "ddim", u, **large)
    small |= {"num_inference_steps": 8, "height": 32, "width": 32}
    yield case("xl_inpaint_start", XLINPAINT, {**PROMPT, **small, "denoising_start": 0.4, "denoising_end": 0.9})
    yield case("xl_inpaint_no_guidance", XLINPAINT, {**PROMPT, **small, "guidance_scale": 1.0}, "euler_a")
    yield case("xl_inpaint_refiner", XLINPAINT, {**PROMPT, **small, "strength": 0.5, "aesthetic_score": 7.0}, "euler",
               "refiner")  # fmt: skip


# ---- what differs from diffusers on purpose

CALL = {
    "guidance_mode": "ours: both halves in one call of the network, or two",
    "prompt_syntax": "ours: weights of words and prompts of any length",
}
RESCALE = {"guidance_rescale": "diffusers has it in StableDiffusionPipeline alone"}


def key(name):
    """As in files: transformers 5 has the text model's tensors at the root of CLIPTextModel."""
    return name if name.startswith(("text_model.", "text_projection.")) else "text_model." + name


def main():
    vocab = write_tokenizer(FOLDER / "tokenizer", "<|endoftext|>")
    write_tokenizer(FOLDER / "tokenizer_2", "!")
    fixture = PipelineFixture("stable_diffusion")
    for name, config in configs(vocab).items():
        if name == "text":
            fixture.network("text", transformers.CLIPTextModel, config, key)
            fixture.network("text_2", transformers.CLIPTextModelWithProjection, config, key)
        else:
            fixture.network(
                name, diffusers.AutoencoderKL if name.endswith("vae") else diffusers.UNet2DConditionModel, config
            )
    for name, (cls, config) in SCHEDULERS.items():
        fixture.scheduler(name, getattr(diffusers, cls), config)
    for name in ("tokenizer", "tokenizer_2"):
        fixture.tokenizer(name, transformers.CLIPTokenizer)
    for name in (T2I, I2I, INPAINT, XL, XLI2I, XLINPAINT):
        unchecked = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        differences = {"__call__": CALL | RESCALE if name in (I2I, INPAINT) else CALL}
        fixture.pipeline(
            getattr(diffusers, name), differences, {"add_watermarker": False} if "XL" in name else unchecked
        )
    for c in cases():
        fixture.case(**c)
    fixture.write()


if __name__ == "__main__":
    main()
