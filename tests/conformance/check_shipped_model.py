"""The shipped model in diffusers, unchanged: loads models/emoji-128 there and compares a picture with ours.

scaffolding txt2img "red apple, fluent 3d" --seed 7 --steps 20 --guidance 5 --output apple.png
python tests/conformance/check_shipped_model.py models/emoji-128 apple.png    # with torch and diffusers, not ours
"""

import sys

import diffusers
import numpy
import torch
from PIL import Image

folder, ours = sys.argv[1:]
pipe = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32, local_files_only=True)
pipe.set_progress_bar_config(disable=True)
print(type(pipe).__name__, {name: type(part).__name__ for name, part in pipe.components.items() if part is not None})
picture = pipe(
    "red apple, fluent 3d",
    num_inference_steps=20,
    guidance_scale=5.0,
    generator=torch.Generator("cpu").manual_seed(7),
    output_type="np",
).images[0]
theirs = (picture * 255).round().astype(int)
difference = abs(theirs - numpy.asarray(Image.open(ours).convert("RGB")).astype(int))
print(
    f"diffusers {diffusers.__version__}: differs by {difference.mean():.3f} on average and {difference.max()} at most, "
    "of 255"
)
assert difference.max() <= 3, "the pictures differ"
