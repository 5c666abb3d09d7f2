"""Golden files of ControlNet's pipelines: what diffusers' make of them with tiny networks.

    python tests/golden/make_golden_pipelines_controlnet.py    # with torch, diffusers, transformers

The other networks, schedulers and tokenizers are those of make_golden_pipelines_stable_diffusion.py.
"""

import warnings

import diffusers
import transformers
from make_golden_pipelines_stable_diffusion import CALL, RESCALE, SCHEDULERS, configs, key, write_tokenizer
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture

warnings.simplefilter("ignore")

T2I, I2I = "StableDiffusionControlNetPipeline", "StableDiffusionControlNetImg2ImgPipeline"
INPAINT = "StableDiffusionControlNetInpaintPipeline"
XL, XLI2I = "StableDiffusionXLControlNetPipeline", "StableDiffusionXLControlNetImg2ImgPipeline"
PROMPT = {"prompt": "a photo of the cat", "num_inference_steps": 4, "guidance_scale": 5.0}
TWO = {**PROMPT, "prompt": ["a photo of the cat", "the red dog"]}
SEEN = {"picture": [16, 24]}
OWN = ("in_channels", "down_block_types", "norm_num_groups", "block_out_channels", "layers_per_block",
       "cross_attention_dim", "attention_head_dim", "use_linear_projection", "addition_embed_type",
       "addition_time_embed_dim", "transformer_layers_per_block", "projection_class_embeddings_input_dim")  # fmt: skip


def beside(unet, **fields):
    """A ControlNet's config. The autoencoder halves pictures once, so does what sees them."""
    shared = {name: unet[name] for name in OWN if name in unet}
    return {**shared, "conditioning_embedding_out_channels": [6, 8], **fields}


def components(pipeline, unet, controlnet, scheduler):
    parts = {"unet": unet, "vae": "xl_vae" if "XL" in pipeline else "vae", "scheduler": scheduler,
             "tokenizer": "tokenizer", "text_encoder": "text", "controlnet": controlnet}  # fmt: skip
    return parts | ({"text_encoder_2": "text_2", "tokenizer_2": "tokenizer_2"} if "XL" in pipeline else {})


def case(name, pipeline, call, scheduler="ddim", unet=None, controlnet=None, seed=0, **inputs):
    xl = "XL" in pipeline
    parts = components(pipeline, unet or ("xl" if xl else "unet"), controlnet or ("see_xl" if xl else "see"), scheduler)
    return {
        "name": f"control_{name}",
        "cls": getattr(diffusers, pipeline),
        "components": parts,
        "call": {**call, **inputs},
        "seed": seed,
    }


def cases():
    yield case("t2i", T2I, PROMPT, image=SEEN)
    yield case("guess", T2I, {**PROMPT, "guess_mode": True, "controlnet_conditioning_scale": 0.8}, "euler", image=SEEN)
    window = {"control_guidance_start": 0.2, "control_guidance_end": 0.8}
    yield case("window", T2I, {**PROMPT, **window, "guidance_scale": 1.0}, "dpm", image=SEEN)
    yield case(
        "pooled", T2I, {**PROMPT, "height": 24, "width": 16}, controlnet="see_pooled", image={"picture": [33, 30]}
    )
    several = {"controlnet_conditioning_scale": [0.5, 1.2], "control_guidance_end": [1.0, 0.5]}
    pictures = {"list": [SEEN, {"picture": [24, 16]}]}
    yield case("several", T2I, {**PROMPT, **several, "height": 16, "width": 24}, controlnet=["see", "see_pooled"],
               image=pictures)  # fmt: skip
    yield case("two", T2I, {**TWO, "num_images_per_prompt": 2, "height": 16, "width": 16,
               "negative_prompt": ["dog", ""]}, "euler_a", seed=[3, 1, 4, 1], image=pictures)  # fmt: skip
    yield case("i2i", I2I, {**PROMPT, "strength": 0.6, "height": 16, "width": 24}, image={"picture": [20, 24]},
               control_image=SEEN)  # fmt: skip
    small = {**PROMPT, "height": 16, "width": 24}
    parts = {"image": {"picture": [16, 24]}, "mask_image": {"mask": [16, 24]}, "control_image": SEEN}
    yield case("inpaint", INPAINT, small, "euler", **parts)
    yield case("inpaint_9", INPAINT, {**small, "strength": 0.7, "guess_mode": True}, unet="unet9", **parts)
    large = {"image": {"picture": [40, 36]}, "mask_image": {"mask": [40, 36]}, "control_image": {"picture": [40, 36]}}
    yield case("inpaint_crop", INPAINT, {**PROMPT, "height": 16, "width": 16, "padding_mask_crop": 2}, **large)
    yield case("xl", XL, PROMPT, "euler", image=SEEN)
    yield case("xl_guess", XL, {**PROMPT, **window, "guess_mode": True, "negative_prompt": "dog"}, image=SEEN)
    yield case("xl_i2i", XLI2I, {**PROMPT, "height": 16, "width": 24, "controlnet_conditioning_scale": 0.5}, "euler",
               image=SEEN, control_image=SEEN)  # fmt: skip


def main():
    fixture = PipelineFixture("controlnet")
    all_configs = configs(write_tokenizer(FOLDER / "tokenizer", "<|endoftext|>"))
    for name in ("text", "unet", "unet9", "xl", "vae", "xl_vae"):
        config = all_configs[name]
        if name == "text":
            fixture.network("text", transformers.CLIPTextModel, config, key)
            fixture.network("text_2", transformers.CLIPTextModelWithProjection, config, key)
        else:
            cls = diffusers.AutoencoderKL if name.endswith("vae") else diffusers.UNet2DConditionModel
            fixture.network(name, cls, config)
    fixture.network("see", diffusers.ControlNetModel, beside(all_configs["unet"]))
    fixture.network("see_pooled", diffusers.ControlNetModel, beside(all_configs["unet"], global_pool_conditions=True))
    fixture.network("see_xl", diffusers.ControlNetModel, beside(all_configs["xl"]))
    for name in ("ddim", "euler", "dpm", "euler_a"):
        cls, config = SCHEDULERS[name]
        fixture.scheduler(name, getattr(diffusers, cls), config)
    for name in ("tokenizer", "tokenizer_2"):
        fixture.tokenizer(name, transformers.CLIPTokenizer)
    for name in (T2I, I2I, INPAINT, XL, XLI2I):
        unchecked = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        more = {"masked_image_latents": "ours: as StableDiffusionInpaintPipeline has it"} if name == INPAINT else {}
        moved = ("feature_extractor", "image_encoder") if "XL" in name else ()
        order = "behind the other components and before the fields, as StableDiffusionXLPipeline has it"
        fixture.pipeline(
            getattr(diffusers, name),
            {"__call__": CALL | RESCALE | more, "__init__": dict.fromkeys(moved, order)},
            {"add_watermarker": False} if "XL" in name else unchecked,
        )
    for c in cases():
        fixture.case(**c)
    fixture.write()


if __name__ == "__main__":
    main()
