"""Golden file for changes of colour and grids, from torchvision: tests/golden/data/transforms.safetensors.xz.

    TORCH_PYTHON tests/golden/make_golden_transforms.py      needs torchvision

colour.DTYPE: an image [3, 7, 9]; colour.DTYPE.CHANGE.FACTOR: torchvision.transforms.functional's adjust_CHANGE of it;
grid: [5, 3, 6, 4]; grid.N and grid.N.grey: make_grid of it, and of its first channel, by GRIDS.
"""

import pathlib

import torch
import torchvision
from packed import write_packed
from safetensors.torch import save
from torchvision.transforms import functional as F
from torchvision.utils import make_grid

FACTORS = {"brightness": (0.3, 1.7), "contrast": (0.2, 1.6), "saturation": (0.0, 2.5), "hue": (-0.4, 0.1, 0.5)}
GRIDS = [
    {},
    {"nrow": 2, "padding": 1, "pad_value": 0.5},
    {"nrow": 3, "normalize": True},
    {"nrow": 3, "normalize": True, "scale_each": True, "padding": 0},
    {"nrow": 9, "normalize": True, "value_range": (-1, 1)},
]


def main():
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (3, 7, 9), dtype=torch.uint8)
    pixels[:, 0] = pixels[:1, 0]  # greys, which have no hue
    pixels[:, 1, :3] = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255]], dtype=torch.uint8)
    tensors = {"colour.uint8": pixels, "colour.float32": pixels.float() / 255}
    for name in list(tensors):
        for change, factors in FACTORS.items():
            for factor in factors:
                tensors[f"{name}.{change}.{factor}"] = getattr(F, f"adjust_{change}")(tensors[name], factor)
        tensors[f"{name}.grey"] = F.rgb_to_grayscale(tensors[name])
    tensors["grid"] = torch.randn(5, 3, 6, 4)
    for number, options in enumerate(GRIDS):
        tensors[f"grid.{number}"] = make_grid(tensors["grid"], **options)
        tensors[f"grid.{number}.grey"] = make_grid(tensors["grid"][:, :1], **options)
    made_by = {"made_by": f"torch {torch.__version__}, torchvision {torchvision.__version__}"}
    path = pathlib.Path(__file__).parent / "data" / "transforms.safetensors.xz"
    write_packed(path, save({k: v.contiguous() for k, v in tensors.items()}, made_by))


if __name__ == "__main__":
    main()
