"""The UNets of Stable Diffusion 2.1 and XL at full size against diffusers: one pass at 32x32 latents in float32, with
seeded random weights.

    PYTHONPATH=build/dev/python python tests/conformance/full_size_unet.py --torch-python PYTHON [--model
    sd21|sdxl|sd15]

PYTHON is one that has torch and diffusers; without --model it does sd21 and sdxl one after the other. Prints the
largest difference relative to the largest value, and fails above 1e-4. Memory and space for a temporary folder: 4 GB
for sd21, 11 GB for sdxl; each side runs in a process of its own.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
TEXT = {"sd15": 768, "sd21": 1024, "sdxl": 2048}


def write_theirs(name, folder):
    sys.path.insert(0, str(GOLDEN))
    import torch
    from diffusers import UNet2DConditionModel
    from make_golden_models_unet import PUBLISHED
    from safetensors.torch import save_file

    torch.manual_seed(1)
    with torch.device("meta"):
        model = UNet2DConditionModel(**PUBLISHED[f"{name}_unet"]).eval()
    model.to_empty(device="cpu")
    with torch.no_grad():
        for key, p in model.named_parameters():  # torch's initial values fade through the layers: keep the variance
            if p.ndim > 1:
                p.normal_(std=p[0].numel() ** -0.5)
            else:
                p.normal_(std=0.1).add_(1.0 if key.endswith("weight") else 0.0)
        inputs = {
            "sample": torch.randn(1, 4, 32, 32),
            "timestep": torch.tensor(481.0),
            "encoder_hidden_states": torch.randn(1, 77, TEXT[name]),
        }
        added = {}
        if name == "sdxl":
            added = {"text_embeds": torch.randn(1, 1280), "time_ids": torch.tensor([[256.0, 256, 0, 0, 256, 256]])}
        output = model(**inputs, added_cond_kwargs=added).sample
    model.save_pretrained(folder, max_shard_size="20GB")
    save_file(
        {k: t.contiguous() for k, t in {**inputs, **added, "output": output}.items()}, folder / "expected.safetensors"
    )


def compare(name, torch_python):
    import scaffolding as sf
    from scaffolding.models import UNet2DConditionModel

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([torch_python, __file__, "--model", name, "--write", folder], check=True)
        given = sf.safetensors.load_file(pathlib.Path(folder) / "expected.safetensors")
        want = given.pop("output")
        added = {k: given.pop(k) for k in ("text_embeds", "time_ids") if k in given}
        model = UNet2DConditionModel.from_pretrained(folder)
        with sf.no_grad():
            got = model(**given, added_cond_kwargs=added).sample
    difference = ((got - want).abs().max() / want.abs().max()).item()
    print(f"{name} {list(got.shape)}: {difference:.1e} of the largest value, {want.abs().max().item():.3g}", flush=True)
    return difference


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    parser.add_argument("--model", choices=sorted(TEXT))
    parser.add_argument("--write", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        return write_theirs(options.model, options.write)
    if not options.torch_python:
        parser.error("--torch-python or TORCH_PYTHON must name a Python that has torch and diffusers")
    return int(
        max(compare(name, options.torch_python) for name in ([options.model] if options.model else ["sd21", "sdxl"]))
        > 1e-4
    )


if __name__ == "__main__":
    sys.exit(main())
