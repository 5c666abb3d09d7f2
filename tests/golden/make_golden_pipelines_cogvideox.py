"""Golden files of CogVideoXPipeline and CogVideoXImageToVideoPipeline: what diffusers' make with tiny networks.

    python tests/golden/make_golden_pipelines_cogvideox.py     # a Python that has torch, diffusers and transformers

Writes pipelines/cogvideox (.json.gz, .safetensors.gz; see pipeline_fixture.py). The tokenizer is PixArt's,
pipelines/pixart_tokenizer/.
"""

from diffusers import (
    AutoencoderKLCogVideoX,
    CogVideoXDDIMScheduler,
    CogVideoXDPMScheduler,
    CogVideoXImageToVideoPipeline,
    CogVideoXPipeline,
    CogVideoXTransformer3DModel,
)
from pipeline_fixture import PipelineFixture
from transformers import T5EncoderModel, T5Tokenizer

TEXT = {"vocab_size": 235, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
        "feed_forward_proj": "gated-gelu"}  # fmt: skip
TRANSFORMER = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4,
               "time_embed_dim": 8, "text_embed_dim": 24, "num_layers": 2, "sample_width": 8, "sample_height": 4,
               "sample_frames": 5, "max_text_seq_length": 16}  # fmt: skip
ROTARY = {**TRANSFORMER, "use_rotary_positional_embeddings": True}
ONE_HALF = {**ROTARY, "patch_size_t": 2, "patch_bias": False}
IMAGE = {**ROTARY, "in_channels": 8, "use_learned_positional_embeddings": True, "max_text_seq_length": 226}
IMAGE_ONE_HALF = {**ONE_HALF, "in_channels": 8, "ofs_embed_dim": 8}
VAE = {"down_block_types": ["CogVideoXDownBlock3D"] * 3, "up_block_types": ["CogVideoXUpBlock3D"] * 3,
       "block_out_channels": [8, 8, 16], "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 4,
       "sample_height": 96, "sample_width": 160, "scaling_factor": 0.7}  # fmt: skip
# as CogVideoX-2b and 5b have them
PUBLISHED = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False,
             "prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "set_alpha_to_one": True,
             "timestep_spacing": "trailing"}  # fmt: skip
TWO = {"prompt": ["a cat and two dogs", "stars at night"]}
CALL = {
    "prompt": "a cat and two dogs",
    "num_inference_steps": 3,
    "height": 16,
    "width": 24,
    "num_frames": 5,
    "max_sequence_length": 16,
}


def without(call, *names):
    return {k: v for k, v in call.items() if k not in names}


fixture = PipelineFixture("cogvideox")
fixture.network("text", T5EncoderModel, TEXT)
for name, config in {
    "sines": TRANSFORMER,
    "rotary": ROTARY,
    "one_half": ONE_HALF,
    "image": IMAGE,
    "image_one_half": IMAGE_ONE_HALF,
}.items():
    fixture.network(name, CogVideoXTransformer3DModel, config)
fixture.network("vae", AutoencoderKLCogVideoX, VAE)
fixture.network("vae_inverted", AutoencoderKLCogVideoX, {**VAE, "invert_scale_latents": True})
fixture.tokenizer("pixart_tokenizer", T5Tokenizer)
fixture.scheduler("ddim", CogVideoXDDIMScheduler, {**PUBLISHED, "snr_shift_scale": 3.0})
fixture.scheduler("ddim_5b", CogVideoXDDIMScheduler, {**PUBLISHED, "snr_shift_scale": 1.0})
fixture.scheduler("dpm", CogVideoXDPMScheduler, {**PUBLISHED, "snr_shift_scale": 1.0})
ours = "as the other pipelines have it"
seeds = "of a pipeline without an autoencoder, for clips that it was not told the length of"
differences = {
    "__init__": dict.fromkeys(("num_frames", "latent_channels"), seeds),
    "__call__": {"guidance_mode": ours},
}
fixture.pipeline(CogVideoXPipeline, differences=differences)
begins = {
    "image": "the call asks for it by name where it is absent",
    "num_frames": "None is what the transformer was trained on, as in CogVideoXPipeline",
}
fixture.pipeline(
    CogVideoXImageToVideoPipeline,
    differences={**differences, "__call__": {**differences["__call__"], **begins}},
)


def case(name, call, scheduler="ddim", transformer="sines", vae="vae", seed=0):
    cls = CogVideoXImageToVideoPipeline if "image" in call else CogVideoXPipeline
    parts = {
        "tokenizer": "pixart_tokenizer",
        "text_encoder": "text",
        "vae": vae,
        "transformer": transformer,
        "scheduler": scheduler,
    }
    fixture.case(f"cogvideox_{name}", cls, parts, call, seed=seed)


case("ddim", CALL)
case("rotary", CALL, "ddim_5b", "rotary")
case("dpm", {**CALL, "num_inference_steps": 4}, "dpm", "rotary")
case("dynamic", {**CALL, "use_dynamic_cfg": True}, "dpm", "rotary")
case("dynamic_ddim", {**CALL, "use_dynamic_cfg": True, "num_inference_steps": 5})
case("one_half", {**CALL, "num_frames": 9}, "dpm", "one_half")
case("one_half_latents", {**CALL, "num_frames": 9, "output_type": "latent"}, "dpm", "one_half")
case("default_size", without(CALL, "height", "width", "num_frames"), "ddim_5b", "rotary")
case("one_frame", {**CALL, "num_frames": 1})
case("no_guidance", {**CALL, "guidance_scale": 1.0})
case("negative", {**CALL, "negative_prompt": "dogs, lazy"}, "dpm")
case("two", {**CALL, **TWO, "negative_prompt": ["", "dog"]}, "dpm", "rotary", seed=[3, 4])
case("eta", {**CALL, "eta": 0.6})
case("latents", {**CALL, "latents": {"floats": [1, 2, 4, 4, 6]}}, "dpm")
case("latent_output", {**CALL, "output_type": "latent"})
case("embeds", {**without(CALL, "prompt"), "prompt_embeds": {"floats": [2, 16, 24]},
                "negative_prompt_embeds": {"floats": [2, 16, 24]}, "negative_prompt": None})  # fmt: skip
case("cut_off", {**CALL, "prompt": "the quick brown fox jumps over a lazy dog " * 3})
picture = {"image": {"picture": [16, 32]}}
WIDE = {**without(CALL, "max_sequence_length"), "width": 32}  # learned positions are of one size
case("image", {**picture, **WIDE}, "ddim_5b", "image", seed=5)
case("image_dynamic", {**picture, **WIDE, "use_dynamic_cfg": True}, "dpm", "image")
case("image_other_size", {"image": {"picture": [30, 40]}, **WIDE}, "dpm", "image")
case("image_one_half", {**picture, **WIDE, "num_frames": 9}, "dpm", "image_one_half", "vae_inverted")
case("image_no_guidance", {**picture, **WIDE, "guidance_scale": 0.0}, "ddim", "image")
fixture.write()
