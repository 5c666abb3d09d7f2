"""Transforms of images [C, H, W], with torchvision's names. Each is a Transform that runs in C++, in the loader's
workers.

Called by itself, `t(image)` draws its random numbers from a seed of the default generator, `t(image, seed)` from that
seed; in a DataLoader they depend on epoch and sample alone.
"""

from .._core import _data

Transform = _data.Transform


def _size(size):
    return (size,) if isinstance(size, int) else tuple(size)


class _PythonCompose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for t in self.transforms:
            image = t(image)
        return image

    def __repr__(self):
        return f"Compose({self.transforms!r})"


def Compose(transforms):
    """One transform after the other. Native as long as every part is; any callable may be a part."""
    parts = list(transforms)
    return _data.compose(parts) if all(isinstance(t, Transform) for t in parts) else _PythonCompose(parts)


def Resize(size, interpolation="bilinear"):
    """size n: the shorter side becomes n; (height, width): exactly. With antialias; for uint8 equal to Pillow.

    interpolation: nearest, box, bilinear, hamming, bicubic, lanczos; float images take bilinear and bicubic.
    """
    return _data.resize(_size(size), interpolation)


def CenterCrop(size):
    """The middle of size n by n or (height, width); ValueError when the image is smaller."""
    return _data.center_crop(_size(size))


def RandomCrop(size, padding=0, fill=0):
    """A part of size n by n or (height, width), after a border of `padding` pixels of value `fill`."""
    return _data.random_crop(_size(size), padding, fill)


def RandomResizedCrop(size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation="bilinear"):
    """A part of random area (a share of the image in scale) and aspect ratio, resized to size."""
    return _data.random_resized_crop(_size(size), scale, ratio, interpolation)


def RandomHorizontalFlip(p=0.5):
    """Mirrored left to right with probability p."""
    return _data.random_horizontal_flip(p)


def RandomVerticalFlip(p=0.5):
    """Mirrored top to bottom with probability p."""
    return _data.random_vertical_flip(p)


def Pad(padding, fill=0):
    """A border of fill: padding n all around, (left and right, top and bottom), or (left, top, right, bottom)."""
    return _data.pad(_size(padding), fill)


def ToFloat():
    """uint8 0..255 to float32 0..1."""
    return _data.to_float()


ToTensor = ToFloat  # torchvision's name; images are tensors here from the start


def Normalize(mean, std):
    """(image - mean) / std by channel; one number serves all."""
    numbers = [[v] if isinstance(v, (int, float)) else list(v) for v in (mean, std)]
    return _data.normalize(*numbers)


def Composite(color=(255, 255, 255)):
    """An image with alpha (LA or RGBA, uint8) over a colour: out = rgb * a + color * (1 - a). color: three numbers of
    0..255, or "random" for another one each time. ValueError for an image without alpha.
    """
    if color == "random":
        return _data.composite(None)
    return _data.composite(tuple(color))


def ToBucket(buckets, random_crop=False, interpolation="bicubic"):
    """Resized to cover the size of `buckets` (AspectBuckets) with the closest aspect ratio, and cropped to it."""
    return _data.to_bucket(buckets, random_crop, interpolation)
