"""Golden files for pictures and data loading, from Pillow and torch: tests/golden/data/.

TORCH_PYTHON tests/golden/make_golden_data.py [folder of shared data]
resize.safetensors.xz: checksums of what PIL.Image.resize makes of random pictures; orders.json:
torch.utils.data.DataLoader, random_split and samplers;
pngsuite.json.xz: what Pillow decodes PngSuite's files to; photo.*: small pictures that Pillow wrote, and their pixels.
"""

import hashlib
import json
import os
import pathlib
import sys

import numpy as np
import PIL
import torch
from packed import write_json, write_packed
from PIL import Image
from safetensors.numpy import save
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "data"
SHARED = pathlib.Path(
    sys.argv[1]
    if len(sys.argv) > 1
    else os.environ.get("SF_SHARED_DATA", HERE.parent.parent.parent / "shared" / "data")
)
MADE_BY = f"torch {torch.__version__}, Pillow {PIL.__version__}"
FILTERS = {"nearest": 0, "box": 4, "bilinear": 2, "hamming": 5, "bicubic": 3, "lanczos": 1}
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def checksum(data):
    """FNV-1a of 64 bits: of pictures that must be equal to the last bit."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def resize():
    rng = np.random.default_rng(1)
    tensors = {}
    for channels, mode in MODES.items():
        pixels = rng.integers(0, 256, (23, 37, channels), dtype=np.uint8)
        if channels in (2, 4):
            pixels[3:9, 5:20, -1] = 0
            pixels[12:20, 5:20, -1] = 255
        tensors[f"{mode}.input"] = pixels
        image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)
        for name, code in FILTERS.items():
            # in the last two, more than twice as many lines go as columns
            for height, width in ((12, 18), (40, 9), (23, 60), (7, 37), (12, 34), (9, 45)):
                out = np.asarray(image.resize((width, height), code))
                digest = np.array([checksum(out.tobytes())], np.uint64)
                tensors[f"{mode}.{name}.{height}x{width}"] = digest.view(np.int64)
    write_packed(OUT / "resize.safetensors.xz", save(tensors, {"made_by": MADE_BY}))


def batches(loader):
    return [b.tolist() for b in loader]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def orders():
    data = list(range(23))
    out = {"made_by": MADE_BY}
    for seed in (0, 42):
        g = generator(seed)
        loader = DataLoader(data, batch_size=4, shuffle=True, generator=g)
        out[f"shuffle generator {seed}"] = [batches(loader) for _ in range(3)]
        torch.manual_seed(seed)
        loader = DataLoader(data, batch_size=5, shuffle=True, drop_last=True)
        out[f"shuffle default {seed}"] = [batches(loader) for _ in range(3)]
        out[f"next draw {seed}"] = torch.randint(0, 1 << 30, (2,)).tolist()
        torch.manual_seed(seed)
        loader = DataLoader(data, batch_size=7)
        out[f"sequential {seed}"] = batches(loader)
        out[f"next draw after sequential {seed}"] = torch.randint(0, 1 << 30, (2,)).tolist()
        out[f"replacement {seed}"] = list(
            RandomSampler(data, replacement=True, num_samples=75, generator=generator(seed))
        )
        out[f"several rounds {seed}"] = list(RandomSampler(data, num_samples=50, generator=generator(seed)))
        out[f"subset {seed}"] = list(SubsetRandomSampler([5, 3, 9, 1, 7], generator=generator(seed)))
        weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
        out[f"weighted {seed}"] = list(WeightedRandomSampler(weights, 9, generator=generator(seed)))
        out[f"split {seed}"] = [s.indices for s in random_split(data, [3, 12, 8], generator=generator(seed))]
        out[f"split fractions {seed}"] = [
            s.indices for s in random_split(data, [0.3, 0.3, 0.4], generator=generator(seed))
        ]
    for shuffle, drop_last, epoch in (
        (True, False, 0),
        (True, False, 3),
        (True, True, 1),
        (False, False, 0),
        (False, True, 0),
    ):
        parts = []
        for rank in range(4):
            sampler = DistributedSampler(data, 4, rank, shuffle, seed=7, drop_last=drop_last)
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
        out[f"distributed {shuffle} {drop_last} {epoch}"] = parts
    out["distributed of few"] = [list(DistributedSampler(data[:3], 8, rank, False)) for rank in range(8)]
    (OUT / "orders.json").write_text(json.dumps(out) + "\n")


def pngsuite():
    out = {"made_by": MADE_BY}
    for path in sorted((SHARED / "pngsuite" / "png").glob("*.png")):
        if path.name.startswith("x"):
            continue
        image = Image.open(path)
        if image.mode.startswith("I"):  # 16 bits of grey
            digest = hashlib.sha256(np.asarray(image).astype("<u2").tobytes()).hexdigest()
            out[path.name] = {"size": image.size, "grey16": digest}
        else:
            out[path.name] = {"size": image.size, "rgba": hashlib.sha256(image.convert("RGBA").tobytes()).hexdigest()}
    write_json(OUT / "pngsuite.json.xz", json.dumps(out) + "\n")


def photo():
    y, x = np.mgrid[0:24, 0:40].astype(np.float64)
    rgb = (
        np.stack([127 + 120 * np.sin(x / 7), 127 + 120 * np.cos(y / 5), 4 * x + 3 * y], -1)
        .clip(0, 255)
        .astype(np.uint8)
    )
    alpha = (x * 6).clip(0, 255).astype(np.uint8)
    rgba = np.dstack([rgb, alpha])
    tensors = {}

    def keep(name, image, **options):
        path = OUT / name
        image.save(path, **options)
        again = Image.open(path)
        again = again.convert("RGB") if again.mode == "CMYK" else again
        pixels = np.asarray(again)
        tensors[name] = np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1))

    keep("photo.jpg", Image.fromarray(rgb), quality=90)
    keep("photo_grey.jpg", Image.fromarray(rgb).convert("L"), quality=90)
    keep("photo_cmyk.jpg", Image.fromarray(rgb).convert("CMYK"), quality=90)
    keep("photo_progressive.jpg", Image.fromarray(rgb), quality=80, progressive=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    keep("photo_turned.jpg", Image.fromarray(rgb), quality=90, exif=exif)
    keep("photo.webp", Image.fromarray(rgb), quality=80)
    keep("photo_alpha.webp", Image.fromarray(rgba), lossless=True, exact=True)
    keep("photo.png", Image.fromarray(rgba))
    tensors["grey_of_photo"] = np.asarray(Image.fromarray(rgb).convert("L"))
    tensors["rgb_of_photo"] = rgb
    write_packed(OUT / "photo.safetensors.xz", save(tensors, {"made_by": MADE_BY}))


def main():
    OUT.mkdir(exist_ok=True)
    resize()
    orders()
    photo()
    if (SHARED / "pngsuite").exists():
        pngsuite()


if __name__ == "__main__":
    main()
