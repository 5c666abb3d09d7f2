"""Golden files of DiTPipeline: what diffusers' makes with tiny networks.

    python tests/golden/make_golden_pipelines_dit.py      # a Python that has torch, diffusers and transformers

Writes pipelines/dit (.json.gz and .safetensors.gz, see pipeline_fixture.py).
Schedulers are as facebook/DiT-XL-2-256 has them;
those whose step scales its sample are left out, since diffusers' pipeline scales the latents for good there.
"""

from diffusers import AutoencoderKL, DDIMScheduler, DiTPipeline, DiTTransformer2DModel, DPMSolverMultistepScheduler
from pipeline_fixture import PipelineFixture

TRANSFORMER = {
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 4,
    "out_channels": 8,
    "num_layers": 2,
    "sample_size": 16,
}
VAE = {"block_out_channels": [16, 32], "in_channels": 3, "out_channels": 3,
       "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2, "latent_channels": 4,
       "norm_num_groups": 8, "layers_per_block": 1, "sample_size": 32}  # fmt: skip
PUBLISHED = {"beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "linear"}
TWO = {"class_labels": [207, 3], "num_inference_steps": 5}

fixture = PipelineFixture("dit")
fixture.network("transformer", DiTTransformer2DModel, TRANSFORMER)
fixture.network("without_sigma", DiTTransformer2DModel, {**TRANSFORMER, "out_channels": 4, "sample_size": 12})
fixture.network("vae", AutoencoderKL, VAE)
fixture.scheduler("ddim", DDIMScheduler, {**PUBLISHED, "clip_sample": False})
fixture.scheduler("ddim_clip", DDIMScheduler, {**PUBLISHED, "clip_sample": True, "timestep_spacing": "trailing"})
fixture.scheduler("dpm", DPMSolverMultistepScheduler, PUBLISHED)
ours = "as the other pipelines have it"
more = ("latents", "guidance_mode", "callback_on_step_end", "callback_on_step_end_tensor_inputs")
fixture.pipeline(DiTPipeline, differences={"__call__": dict.fromkeys(more, ours)})


def case(name, call, scheduler="ddim", transformer="transformer", seed=0):
    fixture.case(
        f"dit_{name}", DiTPipeline, {"transformer": transformer, "vae": "vae", "scheduler": scheduler}, call, seed=seed
    )


case("ddim", TWO)
case("dpm", TWO, "dpm")
case("ddim_clip", TWO, "ddim_clip")
case("one", {**TWO, "class_labels": [0]}, "dpm")
case("no_guidance", {**TWO, "guidance_scale": 1.0})
case("little_guidance", {**TWO, "guidance_scale": 1.01, "num_inference_steps": 3})
case("no_class", {**TWO, "class_labels": [1000, 999], "guidance_scale": 1.0})
case("generators", TWO, "dpm", seed=[5, 6])
case("without_sigma", TWO, transformer="without_sigma")
case("without_sigma_dpm", {**TWO, "guidance_scale": 2.5}, "dpm", "without_sigma")
case("values", {**TWO, "output_type": "pt"})
fixture.write()
