"""Golden files of PixArtSigmaPipeline: what diffusers' makes with tiny networks.

    python tests/golden/make_golden_pipelines_pixart.py

The Python is one that has torch, diffusers and transformers, and neither bs4 nor ftfy.

Writes pipelines/pixart (.json.gz, .safetensors.gz; see pipeline_fixture.py), pipelines/pixart_tokenizer/, which has a
spiece.model and no tokenizer.json, as PixArt-Sigma's folder, and pixart_bins.json: the sizes that are computed for
those that are asked for.
"""

import json
import pathlib
import shutil

from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
)
from diffusers.image_processor import PixArtImageProcessor
from diffusers.pipelines.pixart_alpha import pipeline_pixart_sigma as sigma
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture
from transformers import T5EncoderModel, T5Tokenizer

HERE = pathlib.Path(__file__).parent
VOCABULARY = 235  # of tokenizers/t5_small.model, with 100 extra ids
TEXT = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
}
TRANSFORMER = {"num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 8, "num_layers": 2,
               "sample_size": 32, "cross_attention_dim": 24, "caption_channels": 24}  # fmt: skip
VAE = {"block_out_channels": [16, 16, 16], "in_channels": 3, "out_channels": 3,
       "down_block_types": ["DownEncoderBlock2D"] * 3, "scaling_factor": 0.13025,
       "up_block_types": ["UpDecoderBlock2D"] * 3, "latent_channels": 4, "norm_num_groups": 8, "layers_per_block": 1,
       "sample_size": 64}  # fmt: skip
PUBLISHED = {"beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "linear"}  # as PixArt-Sigma-XL-2-1024-MS has them
SCHEDULERS = {
    "dpm": (DPMSolverMultistepScheduler, PUBLISHED),
    "ddim": (DDIMScheduler, {**PUBLISHED, "clip_sample": False}),
    "ddpm": (DDPMScheduler, {**PUBLISHED, "clip_sample": False}),
    "euler": (EulerDiscreteScheduler, PUBLISHED),
    "euler_a": (EulerAncestralDiscreteScheduler, PUBLISHED),
    "heun": (HeunDiscreteScheduler, PUBLISHED),
}
EXACT = {
    "prompt": "A photo of a cat and two dogs",
    "num_inference_steps": 4,
    "height": 48,
    "width": 32,
    "use_resolution_binning": False,
}
TWO = {**EXACT, "prompt": ["A photo of a cat and two dogs", "stars at night"]}
BINNED = {**EXACT, "use_resolution_binning": True, "num_inference_steps": 2}


def without(call, *names):
    return {k: v for k, v in call.items() if k not in names}


def write_tokenizer():
    folder = FOLDER / "pixart_tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "tokenizers/t5_small.model", folder / "spiece.model")
    config = {"tokenizer_class": "T5Tokenizer", "model_max_length": 512, "extra_ids": 100, "eos_token": "</s>",
              "unk_token": "<unk>", "pad_token": "<pad>", "legacy": True, "sp_model_kwargs": {},
              "additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)]}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def write_bins():
    """For each sample_size [height, width, height and width that are computed], and diffusers' table [ratio, height,
    width].
    """
    tables = {
        32: sigma.ASPECT_RATIO_256_BIN,
        64: sigma.ASPECT_RATIO_512_BIN,
        128: sigma.ASPECT_RATIO_1024_BIN,
        256: sigma.ASPECT_RATIO_2048_BIN,
    }
    sizes = [
        (1024, 1024),
        (1024, 512),
        (720, 1280),
        (100, 101),
        (8, 8000),
        (8000, 8),
        (833, 1000),
        (1000, 833),
        (1200, 1000),
    ]
    classify = PixArtImageProcessor.classify_height_width_bin
    bins = {n: [[h, w, *classify(h, w, ratios=table)] for h, w in sizes] for n, table in tables.items()}
    bins |= {
        f"table_{n}": [[float(ratio), int(h), int(w)] for ratio, (h, w) in table.items()] for n, table in tables.items()
    }
    (HERE / "pixart_bins.json").write_text(json.dumps(bins) + "\n")


write_tokenizer()
write_bins()
fixture = PipelineFixture("pixart")
fixture.network("text", T5EncoderModel, TEXT)
fixture.network("transformer", PixArtTransformer2DModel, TRANSFORMER)
fixture.network("without_sigma", PixArtTransformer2DModel, {**TRANSFORMER, "out_channels": 4, "sample_size": 64})
fixture.network("vae", AutoencoderKL, VAE)
fixture.tokenizer("pixart_tokenizer", T5Tokenizer)
for name, (cls, config) in SCHEDULERS.items():
    fixture.scheduler(name, cls, config)
old, ours = "the old callback, which is callback_on_step_end in the other pipelines", "as the other pipelines have it"
cleaned = (
    "captions of the web are cleaned by bs4 and ftfy, which are not here: prompts are made lower case, as "
    "diffusers does without these"
)
more = dict.fromkeys(("guidance_mode", "callback_on_step_end", "callback_on_step_end_tensor_inputs"), ours)
fixture.pipeline(
    PixArtSigmaPipeline,
    differences={"__call__": {"callback": old, "callback_steps": old, "clean_caption": cleaned, **more}},
)


def case(name, call, scheduler="dpm", transformer="transformer", seed=0):
    parts = {
        "tokenizer": "pixart_tokenizer",
        "text_encoder": "text",
        "vae": "vae",
        "transformer": transformer,
        "scheduler": scheduler,
    }
    fixture.case(f"pixart_{name}", PixArtSigmaPipeline, parts, call, seed=seed)


for name in SCHEDULERS:
    case(name, EXACT, name)
case("binned", BINNED)
case("binned_wide", {**BINNED, "height": 40, "width": 72}, "euler")
case("binned_same_shape", {**BINNED, "height": 100, "width": 60})
case("binned_default_size", without(BINNED, "height", "width"))
case("binned_512", {**BINNED, "height": 32, "width": 32, "num_inference_steps": 1}, "ddim", "without_sigma")
case("without_sigma", EXACT, "dpm", "without_sigma")
case("negative", {**EXACT, "negative_prompt": "Dogs, lazy"})
case("two", {**TWO, "negative_prompt": ["", "dog"], "guidance_scale": 7.0}, "euler")
case("images_per_prompt", {**TWO, "num_images_per_prompt": 2, "negative_prompt": "dog"}, "euler_a", seed=[3, 1, 4, 1])
case("generators", {**EXACT, "num_images_per_prompt": 2, "eta": 0.5}, "ddim", seed=[5, 6])
case("eta", {**EXACT, "eta": 0.7}, "ddim")
case("no_guidance", {**EXACT, "guidance_scale": 1.0})
case("no_guidance_two", {**TWO, "guidance_scale": 0.0, "num_images_per_prompt": 2})
case("cut_off", {**EXACT, "prompt": "the quick brown fox jumps over a lazy dog " * 5, "max_sequence_length": 24})
case(
    "short",
    {**EXACT, "max_sequence_length": 12, "negative_prompt": "the quick brown fox jumps over a lazy dog, the lazy dog"},
)
case("spaces_and_capitals", {**EXACT, "prompt": "  A Photo\tOF  the CAT \n"})
case("unicode", {**EXACT, "prompt": "caf\u00e9 \u732b \u00c9 <extra_id_3> </s> \U0001f408", "max_sequence_length": 40})
case("empty", {**EXACT, "prompt": ""})
case("timesteps", {**without(EXACT, "num_inference_steps"), "timesteps": [900, 700, 300, 20]}, "ddpm")
case("sigmas", {**without(EXACT, "num_inference_steps"), "sigmas": [14.0, 5.0, 1.5, 0.3]}, "euler")
case("latents", {**EXACT, "latents": {"floats": [1, 4, 12, 8]}}, "euler")
case("latent_output", {**EXACT, "output_type": "latent"})
given = {"prompt_embeds": {"floats": [2, 9, 24]}, "prompt_attention_mask": {"numbers": [[1] * 5 + [0] * 4, [1] * 9]}}
case("embeds_alone", {**without(EXACT, "prompt"), **given})
given |= {
    "negative_prompt_embeds": {"floats": [2, 9, 24]},
    "negative_prompt_attention_mask": {"numbers": [[1] + [0] * 8] * 2},
    "negative_prompt": None,
}
case("embeds", {**without(EXACT, "prompt"), **given})
fixture.write()
