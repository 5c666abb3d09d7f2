"""A whole picture with Stable Diffusion 1.5's networks and random weights: time of its parts, and the most memory that
it takes above the weights.

    PYTHONPATH=build/python python benchmarks/picture.py [--steps 20] [--size 512] [--dtype f32|bf16] [--guidance
    sequential|batched] [--tiling] [--from-files]

The prompt's embeds are random: tokenizing and CLIP, which runs once, are left out. "peak" is the largest resident
memory of the call above that before it, which holds the weights in use. --from-files: the whole of it, as a program
has it: a folder of all networks, CLIP among them, is written first by a process of its own (below the system's
temporary folder, and taken away), and what is printed is the largest resident memory of the process (VmHWM).
"""

import argparse
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
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


TEXT = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
TOKENIZER = pathlib.Path(__file__).parent.parent / "models" / "emoji-128" / "tokenizer"


def networks(dtype):
    return UNet2DConditionModel(**UNET).eval().to(dtype), AutoencoderKL(**VAE).eval().to(dtype)


def pipeline(unet, vae, **others):
    pipe = StableDiffusionPipeline(
        unet=unet, scheduler=DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False), vae=vae, **others
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def write(folder, dtype):
    from scaffolding.models import CLIPTextModel
    from scaffolding.tokenizers import CLIPTokenizer

    unet, vae = networks(dtype)
    encoder = CLIPTextModel(vocab_size=49408, **TEXT).eval().to(dtype)
    tokenizer = CLIPTokenizer.from_pretrained(str(TOKENIZER))
    pipeline(unet, vae, text_encoder=encoder, tokenizer=tokenizer).save_pretrained(folder)


def from_files(o, dtype):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--dtype", o.dtype, "--write", folder]
        subprocess.run(command, check=True)
        pipe = StableDiffusionPipeline.from_pretrained(folder, torch_dtype=dtype)
        pipe.set_progress_bar_config(disable=True)
        before, began = status("VmRSS"), time.perf_counter()
        peaks = []
        picture = pipe(
            "a red fox",
            num_inference_steps=o.steps,
            height=o.size,
            width=o.size,
            guidance_mode=o.guidance,
            generator=sf.Generator().manual_seed(0),
            output_type="sf_tensor",
            callback_on_step_end=lambda pipe, i, t, tensors: peaks.append(status("VmHWM")) or {},
        ).images
        print(
            f"{o.size}x{o.size}, {o.steps} steps, {o.dtype}, {o.guidance} guidance, from files: "
            f"{time.perf_counter() - began:.1f} s, VmHWM {status('VmHWM') / 1e6:.0f} MB (loaded {before / 1e6:.0f}, "
            f"first step {peaks[0] / 1e6:.0f}, last {peaks[-1] / 1e6:.0f}); sum {picture.float().sum().item():.4f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--guidance", choices=("sequential", "batched"), default="batched")
    parser.add_argument("--tiling", action="store_true")
    parser.add_argument("--from-files", action="store_true")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    o = parser.parse_args()
    dtype = {"f32": sf.float32, "bf16": sf.bfloat16}[o.dtype]
    sf.manual_seed(0)
    if o.write:
        return write(o.write, dtype)
    if o.from_files:
        return from_files(o, dtype)
    unet, vae = networks(dtype)
    weights = sum(p.numel() * p.element_size() for model in (unet, vae) for p in model.parameters())
    pipe = pipeline(unet, vae)
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
