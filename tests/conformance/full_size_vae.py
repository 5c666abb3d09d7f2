"""The autoencoder of Stable Diffusion at full size against diffusers: a decode of 64x64 latents and an encoding, with
seeded random weights.

    PYTHONPATH=build/dev/python python tests/conformance/full_size_vae.py --torch-python PYTHON

PYTHON is one that has torch and diffusers.

Prints the largest differences relative to the largest value, and fails above 1e-4. It takes about a minute and 4 GB.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

CONFIG = dict(
    block_out_channels=(128, 256, 512, 512),
    down_block_types=("DownEncoderBlock2D",) * 4,
    up_block_types=("UpDecoderBlock2D",) * 4,
    layers_per_block=2,
    sample_size=512,
)


def write_theirs(folder):
    import torch
    from diffusers import AutoencoderKL
    from safetensors.torch import save_file

    torch.manual_seed(1)
    model = AutoencoderKL(**CONFIG).eval()
    with torch.no_grad():
        for p in model.parameters():  # torch's initial values fade through 30 layers: keep the variance
            if p.ndim > 1:
                p.normal_(std=p[0].numel() ** -0.5)
        latents, picture = torch.randn(1, 4, 64, 64), torch.rand(1, 3, 256, 256) * 2 - 1
        out = {
            "latents": latents,
            "picture": picture,
            "decoded": model.decode(latents).sample,
            "moments": model.encode(picture).latent_dist.parameters,
        }
    model.save_pretrained(folder)
    save_file({k: t.contiguous() for k, t in out.items()}, folder / "expected.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    parser.add_argument("--write", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        return write_theirs(options.write)
    if not options.torch_python:
        parser.error("--torch-python or TORCH_PYTHON must name a Python that has torch and diffusers")

    import scaffolding as sf
    from scaffolding.models import AutoencoderKL

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.torch_python, __file__, "--write", folder], check=True)
        want = sf.safetensors.load_file(pathlib.Path(folder) / "expected.safetensors")
        model = AutoencoderKL.from_pretrained(folder)
        with sf.no_grad():
            got = {
                "decoded": model.decode(want["latents"]).sample,
                "moments": model.encode(want["picture"]).latent_dist.parameters,
            }
    worst = 0
    for name, t in got.items():
        difference = ((t - want[name]).abs().max() / want[name].abs().max()).item()
        worst = max(worst, difference)
        print(f"{name} {list(t.shape)}: {difference:.1e} of the largest value, {want[name].abs().max().item():.3g}")
    return int(worst > 1e-4)


if __name__ == "__main__":
    sys.exit(main())
