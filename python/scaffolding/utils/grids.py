"""Sheets of images in tensors, with torchvision.utils' names and arguments."""

import math
import os

from .._core import Tensor, cat, full, stack
from ..data.image import encode_image, write_image


def _batch(tensor):
    """[B, C, H, W] with C of 3 or 4, of one image, a batch, or a list of images."""
    if isinstance(tensor, (list, tuple)):
        if not tensor or not all(isinstance(t, Tensor) for t in tensor):
            raise TypeError("make_grid: tensor must be a tensor or a list of tensors that is not empty")
        tensor = stack(list(tensor), 0)
    elif not isinstance(tensor, Tensor):
        raise TypeError(f"make_grid: tensor must be a tensor or a list of tensors, got {type(tensor).__name__}")
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        if tensor.size(0) == 1:
            tensor = cat((tensor, tensor, tensor), 0)
        tensor = tensor.unsqueeze(0)
    if tensor.dim() != 4 or tensor.size(0) == 0:
        raise ValueError(f"make_grid: images must be [C, H, W] or [B, C, H, W], got {list(tensor.shape)}")
    return cat((tensor, tensor, tensor), 1) if tensor.size(1) == 1 else tensor


def _stretched(image, low, high):
    return image.clamp(low, high).sub(low).div(max(high - low, 1e-5))


def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, scale_each=False, pad_value=0.0):
    """One image [C, H, W] of many: tensor is [B, C, H, W], or a list of [C, H, W] of one size; grey becomes RGB.

    nrow: images side by side. padding: pixels of pad_value between them and around. normalize: values of value_range
    (low, high), or else from the least to the greatest, become 0 to 1; scale_each: of each image by itself.

    >>> sf.utils.make_grid(sf.rand(6, 3, 32, 32), nrow=3, padding=2).shape
    scaffolding.Size([3, 70, 104])
    """
    tensor = _batch(tensor)
    if value_range is not None and (not isinstance(value_range, tuple) or len(value_range) != 2):
        raise TypeError(f"make_grid: value_range must be a tuple (low, high), got {value_range!r}")
    if normalize:
        parts = list(tensor) if scale_each else [tensor]
        ranges = [value_range or (float(p.min()), float(p.max())) for p in parts]
        parts = [_stretched(p, *r) for p, r in zip(parts, ranges)]
        tensor = stack(parts, 0) if scale_each else parts[0]
    count, channels = tensor.size(0), tensor.size(1)
    if count == 1:
        return tensor.squeeze(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = tensor.size(2) + padding, tensor.size(3) + padding
    grid = full((channels, height * rows + padding, width * columns + padding), pad_value, dtype=tensor.dtype)
    grid = grid.to(tensor.device)
    for i in range(count):
        top, left = i // columns * height + padding, i % columns * width + padding
        grid[:, top : top + tensor.size(2), left : left + tensor.size(3)] = tensor[i]
    return grid


def save_image(tensor, fp, format=None, **kwargs):
    """Writes tensor, an image of floats in 0..1, or a grid of several (make_grid with kwargs), to the path or binary
    file fp.

    format: "png", "jpeg" or "webp", by the path's suffix where it is None. A file at a path appears whole or not at
    all.

    >>> sf.utils.save_image(sf.rand(4, 3, 32, 32), "grid.png", nrow=2, padding=0)
    >>> sf.io.read_image("grid.png").shape
    scaffolding.Size([3, 64, 64])
    """
    grid = make_grid(tensor, **kwargs)
    pixels = (grid.float() * 255 + 0.5).clamp(0, 255).byte().cpu()
    if isinstance(fp, (str, os.PathLike)) and format is None:
        return write_image(fp, pixels)
    if format is None:
        raise ValueError("save_image: format must be given where fp is no path: 'png', 'jpeg' or 'webp'")
    raw = encode_image(pixels, format.lower().replace("jpg", "jpeg"))
    if hasattr(fp, "write"):
        fp.write(raw)
        return None
    beside = f"{os.fspath(fp)}.{os.getpid()}.part"
    with open(beside, "wb") as file:
        file.write(raw)
    os.replace(beside, fp)
    return None
