"""Golden files of DDPMPipeline and DDIMPipeline: what diffusers' make with tiny networks.

    python tests/golden/make_golden_pipelines_unconditional.py   # a Python that has torch, diffusers and transformers

Writes pipelines/unconditional (.json.gz and .safetensors.gz, see pipeline_fixture.py).
Schedulers are as google/ddpm-cifar10-32
and its kin have them, and as the training tutorial makes them.
"""

from diffusers import DDIMPipeline, DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel
from pipeline_fixture import PipelineFixture

UNET = {"sample_size": 16, "block_out_channels": [8, 16], "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"], "layers_per_block": 1, "norm_num_groups": 4}  # fmt: skip

fixture = PipelineFixture("unconditional")
fixture.network("unet", UNet2DModel, UNET)
fixture.network("wide", UNet2DModel, {**UNET, "sample_size": [8, 12], "in_channels": 1, "out_channels": 1})
LITTLE = {"beta_start": 1e-5, "beta_end": 1e-3}  # noise: what a network of any weights makes stays a picture
fixture.scheduler("ddpm", DDPMScheduler, {"clip_sample": False, **LITTLE})
fixture.scheduler("ddpm_clip", DDPMScheduler, {"variance_type": "fixed_large", **LITTLE})
fixture.scheduler("ddim", DDIMScheduler, {"clip_sample": False, **LITTLE})
ours = "as the other pipelines have it"
more = dict.fromkeys(("latents", "callback_on_step_end", "callback_on_step_end_tensor_inputs"), ours)
clipped = {"use_clipped_model_output": "None is False"}
fixture.pipeline(DDPMPipeline, differences={"__call__": more})
fixture.pipeline(DDIMPipeline, differences={"__call__": {**more, **clipped}})


def case(name, cls, call, scheduler, unet="unet", seed=0):
    fixture.case(name, cls, {"unet": unet, "scheduler": scheduler}, {"num_inference_steps": 4, **call}, seed=seed)


case("ddpm", DDPMPipeline, {"batch_size": 2}, "ddpm")
case("ddpm_clip", DDPMPipeline, {}, "ddpm_clip", seed=3)
case("ddpm_generators", DDPMPipeline, {"batch_size": 2}, "ddpm", seed=[5, 6])
case("ddpm_wide", DDPMPipeline, {}, "ddpm", "wide")
case("ddpm_by_ddim", DDPMPipeline, {"output_type": "pt"}, "ddim")
case("ddim", DDIMPipeline, {"batch_size": 2}, "ddim")
case("ddim_eta", DDIMPipeline, {"eta": 0.7}, "ddim")
case("ddim_clipped", DDIMPipeline, {"use_clipped_model_output": True, "eta": 0.3}, "ddpm_clip")
fixture.write()
