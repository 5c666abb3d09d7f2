"""Writes tests/golden/pipelines: pictures that diffusers makes with tiny networks whose weights are hashed_weights.py's.

    python tests/golden/make_golden_pipelines.py      # a Python that has torch, diffusers and transformers

cases.json holds configs and calls, pictures.safetensors what came out (uint8 [B, H, W, 3], latents float32), tokenizer/ a small CLIP vocabulary.
tests/python/diffusion/test_pipelines.py makes the same pipelines and repeats the calls.
"""

import copy
import inspect
import json
import pathlib
import sys
import warnings

import diffusers
import numpy as np
import PIL.Image
import torch
import transformers
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hashed_weights import hashed_weight  # noqa: E402
from pipeline_inputs import CALLBACKS, embeds, mask, picture  # noqa: E402

warnings.simplefilter("ignore")
diffusers.logging.set_verbosity_error()
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
FOLDER = pathlib.Path(__file__).parent / "pipelines"
if not hasattr(transformers.CLIPTextModel, "text_model"):  # transformers 5 made it the model itself, which diffusers' clip_skip does not know yet
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
    vocab = [*letters, *(c + "</w>" for c in letters), *(m.replace(" ", "") for m in MERGES), "<|startoftext|>", "<|endoftext|>"]
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
    text = {"vocab_size": vocab, "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 77,
            "projection_dim": 32, "hidden_act": "gelu", "bos_token_id": vocab - 2, "eos_token_id": vocab - 1, "pad_token_id": 1}  # fmt: skip
    unet = {"sample_size": 16, "in_channels": 4, "out_channels": 4, "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"], "norm_num_groups": 8,
            "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "block_out_channels": [16, 32], "layers_per_block": 1, "cross_attention_dim": 32,
            "attention_head_dim": 4}  # fmt: skip
    xl = {**unet, "attention_head_dim": [2, 4], "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
          "transformer_layers_per_block": [1, 2], "projection_class_embeddings_input_dim": 80, "cross_attention_dim": 64}  # fmt: skip
    vae = {"block_out_channels": [16, 32], "in_channels": 3, "out_channels": 3, "down_block_types": ["DownEncoderBlock2D"] * 2,
           "up_block_types": ["UpDecoderBlock2D"] * 2, "latent_channels": 4, "norm_num_groups": 8, "layers_per_block": 1, "sample_size": 32}  # fmt: skip
    return {
        "text": text,
        "unet": unet,
        "unet9": {**unet, "in_channels": 9},
        "unet_cond": {**unet, "time_cond_proj_dim": 8},
        "xl": xl,
        "refiner": {**xl, "projection_class_embeddings_input_dim": 72, "cross_attention_dim": 32},
        "vae": vae,
        "xl_vae": {**vae, "scaling_factor": 0.13025, "latents_mean": [0.1, -0.2, 0.3, 0.0], "latents_std": [1.1, 0.9, 1.2, 1.0]},
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
    "v": ("DDIMScheduler", {**SD, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "clip_sample": False}),
}

# ---- the calls

T2I, I2I, INPAINT = "StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline", "StableDiffusionInpaintPipeline"
XL, XLI2I = "StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline"
PROMPT = {"prompt": "a photo of the cat", "num_inference_steps": 5, "guidance_scale": 7.5}
TWO = {**PROMPT, "prompt": ["a photo of the cat", "the red dog and the cat running"]}


def case(name, pipeline, call, scheduler="ddim", unet=None, seed=0, **more):
    unet = unet or ("xl" if "XL" in pipeline else "unet")
    return {"name": name, "pipeline": pipeline, "call": call, "scheduler": scheduler, "unet": unet, "seed": seed, **more}


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
    yield case("t2i_latents", T2I, PROMPT, latents=[1, 4, 16, 16])
    yield case("t2i_latent_output", T2I, {**PROMPT, "output_type": "latent"}, "dpm")
    yield case(
        "t2i_embeds", T2I, {k: v for k, v in PROMPT.items() if k != "prompt"}, embeds={"prompt_embeds": [1, 77, 32], "negative_prompt_embeds": [1, 77, 32]}
    )
    yield case("t2i_distilled", T2I, PROMPT, "lcm", unet="unet_cond")
    for c in CALLBACKS:
        yield case(f"t2i_callback_{c}", T2I, PROMPT, callback=c)
    for s in ("ddim", "euler", "dpm", "heun", "euler_a", "pndm"):
        yield case(f"i2i_{s}", I2I, {**PROMPT, "strength": 0.6}, s, image=[40, 32])
    yield case("i2i_two", I2I, {**TWO, "num_images_per_prompt": 2, "num_inference_steps": 8, "strength": 0.75}, "euler", image=[32, 32])
    yield case("i2i_generators", I2I, {**TWO, "strength": 0.8}, "euler", seed=[8, 9], image=[32, 32])
    yield case("i2i_odd_size", I2I, {**PROMPT, "strength": 1.0}, image=[33, 47])
    for u in ("unet", "unet9"):
        yield case(f"inpaint_{u}", INPAINT, {**PROMPT, "height": 32, "width": 32}, "euler", u, image=[50, 44], mask=[50, 44])
        yield case(f"inpaint_{u}_strength", INPAINT, {**PROMPT, "height": 32, "width": 48, "strength": 0.7}, "ddim", u, image=[32, 48], mask=[32, 48])
        yield case(f"inpaint_{u}_two", INPAINT, {**TWO, "height": 32, "width": 32, "strength": 0.9}, "dpm", u, image=[32, 32], mask=[32, 32])
        yield case(f"inpaint_{u}_crop", INPAINT, {**PROMPT, "height": 32, "width": 32, "padding_mask_crop": 4}, "ddim", u, image=[72, 60], mask=[72, 60])
    yield from (case(f"xl_{s}", XL, {**PROMPT, "guidance_scale": 5.0}, s) for s in ("euler", "ddim", "dpm"))
    yield case("xl_negative", XL, {**PROMPT, "negative_prompt": "dog", "prompt_2": "red cat", "negative_prompt_2": "the"}, "euler")
    yield case("xl_negative_2_alone", XL, {**PROMPT, "negative_prompt_2": "dog"}, "euler")
    yield case("xl_empty_2", XL, {**PROMPT, "prompt_2": "", "negative_prompt": "dog", "negative_prompt_2": ""}, "euler")
    sizes = {"original_size": [64, 48], "crops_coords_top_left": [4, 8], "target_size": [40, 40], "negative_original_size": [16, 16]}
    sizes |= {"negative_target_size": [24, 32], "negative_crops_coords_top_left": [1, 2], "height": 40, "width": 24}
    yield case("xl_sizes", XL, {**PROMPT, **sizes}, "euler")
    yield case("xl_two", XL, {**TWO, "negative_prompt": ["dog", "cat"], "num_images_per_prompt": 2, "guidance_rescale": 0.5}, "euler")
    yield case("xl_clip_skip", XL, {**PROMPT, "clip_skip": 1}, "euler")
    yield case("xl_no_guidance", XL, {**PROMPT, "guidance_scale": 0.0}, "euler")
    yield case("xl_shift", XL, PROMPT, "euler", callback="shift")
    yield case("xl_i2i", XLI2I, {**PROMPT, "strength": 0.6}, "euler", image=[32, 40])
    yield case("xl_i2i_two", XLI2I, {**TWO, "strength": 0.8, "negative_original_size": [16, 16]}, "ddim", image=[32, 32], seed=[1, 2])
    yield case("xl_refiner", XLI2I, {**PROMPT, "strength": 0.5, "aesthetic_score": 7.0, "negative_aesthetic_score": 2.0}, "euler", "refiner", image=[32, 32])
    seconds = {"prompt_2": "red dog", "negative_prompt": "dog", "negative_prompt_2": "the"}
    yield case("xl_refiner_2", XLI2I, {**PROMPT, **seconds, "strength": 0.5}, "euler", "refiner", image=[32, 32])
    # An end before the first step leaves the noise, a start behind the last one the picture.
    yield case("xl_no_step_to_the_end", XL, {**PROMPT, "denoising_end": 0.001}, "euler")
    yield case("xl_i2i_no_step_from_the_start", XLI2I, {**PROMPT, "denoising_start": 0.999}, "euler", image=[32, 32])
    for s in ("euler", "heun", "dpm"):
        yield case(f"xl_hand_over_{s}", XL, {**PROMPT, "num_inference_steps": 8, "denoising_end": 0.6, "output_type": "latent"}, s,
                   then={"pipeline": XLI2I, "unet": "xl", "call": {**PROMPT, "num_inference_steps": 8, "denoising_start": 0.6}})  # fmt: skip


# ---- diffusers' side


def filled(model):
    state = {}
    for name, t in model.state_dict().items():
        key = name
        if isinstance(model, transformers.PreTrainedModel) and not name.startswith(("text_model.", "text_projection.")):
            key = "text_model." + name
        state[name] = torch.from_numpy(hashed_weight(key, tuple(t.shape))) if t.is_floating_point() else t
    model.load_state_dict(state)
    return model.eval()


class Parts:
    def __init__(self, all_configs):
        self.configs, self.made = all_configs, {}

    def get(self, cls, config):
        if config not in self.made or not isinstance(self.made[config], cls):
            c = self.configs[config]
            self.made[config] = filled(cls(transformers.CLIPTextConfig(**c)) if config == "text" else cls(**copy.deepcopy(c)))
        return self.made[config]

    def pipeline(self, name, unet, scheduler):
        cls, (scheduler_class, config) = getattr(diffusers, name), SCHEDULERS[scheduler]
        xl = "XL" in name
        parts = {
            "unet": self.get(diffusers.UNet2DConditionModel, unet),
            "vae": self.get(diffusers.AutoencoderKL, "xl_vae" if xl else "vae"),
            "scheduler": getattr(diffusers, scheduler_class)(**config),
            "tokenizer": transformers.CLIPTokenizer.from_pretrained(FOLDER / "tokenizer"),
        }
        if xl:
            parts["text_encoder"] = None if unet == "refiner" else filled(transformers.CLIPTextModel(transformers.CLIPTextConfig(**self.configs["text"])))
            if unet == "refiner":
                parts["tokenizer"] = None
            parts["text_encoder_2"] = filled(transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(**self.configs["text"])))
            parts["tokenizer_2"] = transformers.CLIPTokenizer.from_pretrained(FOLDER / "tokenizer_2")
            parts["add_watermarker"] = False
            if name == XLI2I:
                parts["requires_aesthetics_score"] = unet == "refiner"
        else:
            parts["text_encoder"] = filled(transformers.CLIPTextModel(transformers.CLIPTextConfig(**self.configs["text"])))
            parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        pipe = cls(**parts)
        pipe.set_progress_bar_config(disable=True)
        return pipe


def generators(seed):
    make = [torch.Generator("cpu").manual_seed(s) for s in (seed if isinstance(seed, list) else [seed])]
    return make if isinstance(seed, list) else make[0]


def run(parts, c):
    pipe = parts.pipeline(c["pipeline"], c["unet"], c["scheduler"])
    call = {k: tuple(v) if isinstance(v, list) and ("size" in k or "crops" in k) else v for k, v in c["call"].items()}
    call.setdefault("output_type", "np")
    if "image" in c:
        call["image"] = PIL.Image.fromarray(picture(*c["image"]))
    if "mask" in c:
        call["mask_image"] = PIL.Image.fromarray(mask(*c["mask"]))
    if "padding_mask_crop" in call:
        call["output_type"] = "pil"
    if "latents" in c:
        call["latents"] = torch.from_numpy(embeds("latents", c["latents"]))
    for name, shape in c.get("embeds", {}).items():
        call[name] = torch.from_numpy(embeds(name, shape))
    if "callback" in c:
        call["callback_on_step_end"] = CALLBACKS[c["callback"]]
        call["callback_on_step_end_tensor_inputs"] = ["latents", "prompt_embeds"]
    out = pipe(generator=generators(c["seed"]), **call).images
    if "then" in c:
        second = c["then"]
        pipe = parts.pipeline(second["pipeline"], second["unet"], c["scheduler"])
        out = pipe(image=out, generator=generators(c["seed"]), output_type="np", **second["call"]).images
    if isinstance(out, list):
        return np.stack([np.array(i) for i in out])
    return out.numpy() if isinstance(out, torch.Tensor) else (out * 255).round().astype("uint8")


def signatures():
    """{pipeline: {argument of __call__: default}}"""
    return {
        name: {p.name: p.default for p in inspect.signature(getattr(diffusers, name).__call__).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD}
        | {"self": None}
        for name in (T2I, I2I, INPAINT, XL, XLI2I)
    }


def main():
    vocab = write_tokenizer(FOLDER / "tokenizer", "<|endoftext|>")
    write_tokenizer(FOLDER / "tokenizer_2", "!")
    all_configs = configs(vocab)
    parts, pictures, listed = Parts(all_configs), {}, []
    for c in cases():
        pictures[c["name"]] = np.ascontiguousarray(run(parts, c))
        listed.append(c)
        p = pictures[c["name"]]
        print(c["name"], p.shape, p.dtype, "mean", round(float(p.mean()), 1), "clipped", round(float(((p == 0) | (p == 255)).mean()), 2))
    versions = {"torch": torch.__version__, "diffusers": diffusers.__version__, "transformers": transformers.__version__}
    document = {"versions": versions, "configs": all_configs, "schedulers": SCHEDULERS, "signatures": signatures(), "cases": listed}
    (FOLDER / "cases.json").write_text(json.dumps(document, indent=1) + "\n")
    save_file(pictures, FOLDER / "pictures.safetensors")


if __name__ == "__main__":
    main()
