"""A whole picture with Stable Diffusion 1.5's networks and random weights: time of its parts, and the most memory that
it takes above the weights.

    PYTHONPATH=build/python python benchmarks/picture.py [--steps 20] [--size 512] [--dtype f32|bf16] [--guidance
    sequential|batched] [--tiling]

The prompt's embeds are random: tokenizing and CLIP, which runs once, are left out. "peak" is the largest resident
memory of the call above that before it, which holds the weights in use.
"""

import argparse
import gc
import os
import pathlib
import time

os.environ.setdefault("GOMP_SPINCOUNT", "2000")

import scaffolding as sf  # noqa: E402  (libgomp reads its settings while it is loaded)
from scaffolding.diffusion import (  # noqa: E402
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)

UNET = {"sample_size": 64, "cross_attention_dim": 768}
VAE = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "sample_size": 512,
}


def status(name):
    """Bytes of a row of /proc/self/status."""
    rows = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return int(rows[name].split()[0]) << 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--guidance", choices=("sequential", "batched"), default="batched")
    parser.add_argument("--tiling", action="store_true")
    o = parser.parse_args()
    dtype = {"f32": sf.float32, "bf16": sf.bfloat16}[o.dtype]
    sf.manual_seed(0)
    unet, vae = UNet2DConditionModel(**UNET).eval().to(dtype), AutoencoderKL(**VAE).eval().to(dtype)
    weights = sum(p.numel() * p.element_size() for model in (unet, vae) for p in model.parameters())
    pipe = StableDiffusionPipeline(
        unet=unet, scheduler=DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False), vae=vae
    )
    pipe.set_progress_bar_config(disable=True)
    if o.tiling:
        vae.enable_tiling()
        vae.tile_sample_min_size, vae.tile_latent_min_size = 256, 32
    embeds = sf.randn(1, 77, 768).to(dtype)
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
    before, began, ends = status("VmRSS"), time.perf_counter(), []
    pipe(
        prompt_embeds=embeds,
        negative_prompt_embeds=embeds,
        num_inference_steps=o.steps,
        height=o.size,
        width=o.size,
        guidance_mode=o.guidance,
        output_type="sf_tensor",
        callback_on_step_end=lambda pipe, i, t, tensors: ends.append(time.perf_counter()) or {},
    )
    done = time.perf_counter()
    each = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else ends[0] - began
    print(
        f"{o.size}x{o.size}, {o.steps} steps, {o.dtype}, {o.guidance} guidance: {done - began:.1f} s ({each:.2f} s a "
        f"step, decoding {done - ends[-1]:.1f} s)"
    )
    print(
        f"weights {weights / 1e6:.0f} MB, resident before {before / 1e6:.0f} MB, peak above that "
        f"{(status('VmHWM') - before) / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
