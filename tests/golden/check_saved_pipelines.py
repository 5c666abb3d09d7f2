"""Reads pipelines that Scaffolding saved with diffusers and compares the pictures: the other way of
make_golden_pipelines_stable_diffusion.py.

python tests/golden/check_saved_pipelines.py folder      # a Python that has torch and diffusers; the folder holds what
#   for name in ("StableDiffusionPipeline", "StableDiffusionXLPipeline"):
#   test_pipelines.make(name).save_pretrained(folder / name) wrote
"""

import pathlib
import sys

import diffusers
import make_golden_pipelines_stable_diffusion as golden
import torch
from packed import unpacked
from pipeline_cases import sums_off
from safetensors.numpy import load

folder = pathlib.Path(sys.argv[1])
pictures = load(unpacked(golden.FOLDER / "stable_diffusion.safetensors.xz"))
for name, case in (("StableDiffusionPipeline", "t2i_ddim"), ("StableDiffusionXLPipeline", "xl_ddim")):
    pipe = diffusers.DiffusionPipeline.from_pretrained(
        folder / name, **({"add_watermarker": False} if "XL" in name else {})
    )
    assert type(pipe).__name__ == name
    pipe.set_progress_bar_config(disable=True)
    call = next(c for c in golden.cases() if c["name"] == case)["call"]
    made = pipe(generator=torch.Generator("cpu").manual_seed(0), output_type="np", **call).images
    difference = sums_off(made, pictures[case])
    print(name, "read by diffusers", diffusers.__version__, "differs by at most", difference, "of 255")
    assert difference <= 1
