"""Transforms of images [C, H, W], with torchvision's names. Each is a Transform that runs in C++, in the loader's
workers.

Called by itself, `t(image)` draws its random numbers from a seed of the default generator, `t(image, seed)` from that
seed; in a DataLoader they depend on epoch and sample alone. It also takes Pillow's pictures, and NumPy's arrays [H, W]
and [H, W, C] as torchvision's ToTensor does, and gives a tensor [C, H, W].
"""

from .._core import Tensor, _data
from .._documents import add_to as _add_document
from .pillow import image_of, to_pil_image

Transform = _data.Transform
_apply = Transform.__call__
_add_document(Transform, "data")


def _call(self, image, seed=None):
    """The transformed image, a tensor [C, H, W]. image: such a tensor, a picture of Pillow's, or an array [H, W] or
    [H, W, C]; seed: of the random numbers, drawn from the default generator where it is None. TypeError for others.
    """
    return _apply(self, image if isinstance(image, Tensor) else image_of(image), seed)


Transform.__call__ = _call


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
    """One transform after the other. Native as long as every part is; any callable may be a part.

    >>> T = sf.data.transforms
    >>> t = T.Compose([T.Resize(8), T.CenterCrop(8), T.ToTensor(), T.Normalize(0.5, 0.5)])
    >>> t(sf.zeros(3, 16, 20, dtype=sf.uint8)).shape
    scaffolding.Size([3, 8, 8])
    """
    parts = list(transforms)
    return _data.compose(parts) if all(isinstance(t, Transform) for t in parts) else _PythonCompose(parts)


def Resize(size, interpolation="bilinear"):
    """size n: the shorter side becomes n; (height, width): exactly. With antialias; for uint8 equal to Pillow.

    interpolation: nearest, box, bilinear, hamming, bicubic, lanczos; float images take bilinear and bicubic.

    >>> sf.data.transforms.Resize(8)(sf.zeros(3, 16, 32, dtype=sf.uint8)).shape
    scaffolding.Size([3, 8, 16])
    """
    return _data.resize(_size(size), interpolation)


def CenterCrop(size):
    """The middle of size n by n or (height, width); ValueError when the image is smaller.

    >>> sf.data.transforms.CenterCrop(2)(sf.arange(16.).reshape(1, 4, 4))
    tensor([[[ 5.,  6.],
             [ 9., 10.]]])
    """
    return _data.center_crop(_size(size))


def RandomCrop(size, padding=0, fill=0):
    """A part of size n by n or (height, width), after a border of `padding` pixels of value `fill`.

    >>> sf.data.transforms.RandomCrop(2)(sf.ones(3, 4, 4)).shape
    scaffolding.Size([3, 2, 2])
    """
    return _data.random_crop(_size(size), padding, fill)


def RandomResizedCrop(size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation="bilinear"):
    """A part of random area (a share of the image in scale) and aspect ratio, resized to size.

    >>> sf.data.transforms.RandomResizedCrop(8)(sf.ones(3, 16, 20)).shape
    scaffolding.Size([3, 8, 8])
    """
    return _data.random_resized_crop(_size(size), scale, ratio, interpolation)


def RandomHorizontalFlip(p=0.5):
    """Mirrored left to right with probability p.

    >>> sf.data.transforms.RandomHorizontalFlip(p=1.0)(sf.tensor([[[1., 2.]]]))
    tensor([[[2., 1.]]])
    """
    return _data.random_horizontal_flip(p)


def RandomVerticalFlip(p=0.5):
    """Mirrored top to bottom with probability p.

    >>> sf.data.transforms.RandomVerticalFlip(p=1.0)(sf.tensor([[[1.], [2.]]]))
    tensor([[[2.],
             [1.]]])
    """
    return _data.random_vertical_flip(p)


def Pad(padding, fill=0):
    """A border of fill: padding n all around, (left and right, top and bottom), or (left, top, right, bottom).

    >>> sf.data.transforms.Pad(1)(sf.ones(1, 1, 1))
    tensor([[[0., 0., 0.],
             [0., 1., 0.],
             [0., 0., 0.]]])
    """
    return _data.pad(_size(padding), fill)


def ToFloat():
    """uint8 0..255 to float32 0..1.

    >>> from PIL import Image
    >>> sf.data.transforms.ToTensor()(Image.new("RGB", (6, 4))).shape
    scaffolding.Size([3, 4, 6])
    """
    return _data.to_float()


ToTensor = ToFloat  # torchvision's name


class PILToTensor:
    """A picture of Pillow's as uint8 [C, H, W], its values as they are.

    >>> from PIL import Image
    >>> sf.data.transforms.PILToTensor()(Image.new("RGB", (6, 4))).shape
    scaffolding.Size([3, 4, 6])
    """

    def __call__(self, picture):
        return picture if isinstance(picture, Tensor) else image_of(picture)

    def __repr__(self):
        return "PILToTensor()"


class ToPILImage:
    """A tensor [C, H, W] or [H, W], or an array [H, W] or [H, W, C], as a picture of Pillow's: uint8 as it is, floats
    of 0..1 times 255. mode: Pillow's, or None for "L", "LA", "RGB" or "RGBA" by the channels. Needs Pillow.

    >>> sf.data.transforms.ToPILImage()(sf.zeros(3, 4, 6)).size
    (6, 4)
    """

    def __init__(self, mode=None):
        self.mode = mode

    def __call__(self, image):
        return to_pil_image(image, self.mode)

    def __repr__(self):
        return f"ToPILImage({'' if self.mode is None else repr(self.mode)})"


class Lambda:
    """Any function of an image as a transform.

    >>> sf.data.transforms.Lambda(lambda image: image * 2)(sf.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    def __init__(self, lambd):
        if not callable(lambd):
            raise TypeError(f"Lambda: lambd must be a function, got {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, image):
        return self.lambd(image)

    def __repr__(self):
        return f"Lambda({getattr(self.lambd, '__name__', self.lambd)!s})"


def Normalize(mean, std):
    """(image - mean) / std by channel; one number serves all.

    >>> sf.data.transforms.Normalize(0.5, 0.5)(sf.tensor([[[0., 1.]]]))
    tensor([[[-1.,  1.]]])
    """
    numbers = [[v] if isinstance(v, (int, float)) else list(v) for v in (mean, std)]
    return _data.normalize(*numbers)


def _factors(name, value, center=1.0):
    """(low, high): of a number center - value to center + value, not below 0; of two numbers these."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"ColorJitter: {name} must not be negative, got {value}")
        return (max(center - value, 0.0) if center else -value, center + value)
    low, high = value
    return (low, high)


def ColorJitter(brightness=0, contrast=0, saturation=0, hue=0):
    """Colours changed at random, in random order: by factors within 1 - b to 1 + b, or within (low, high); the hue by a
    share of the circle within -hue to hue (at most 0.5), or within (low, high). uint8 0..255 or floats 0..1; alpha
    stays.

    >>> sf.data.transforms.ColorJitter(brightness=0.5)(sf.ones(3, 4, 4), seed=1).shape
    scaffolding.Size([3, 4, 4])
    """
    names = ("brightness", "contrast", "saturation")
    ranges = [_factors(name, value) for name, value in zip(names, (brightness, contrast, saturation))]
    return _data.color_jitter(*ranges, _factors("hue", hue, center=0.0))


def Grayscale(num_output_channels=1):
    """Grey with one channel or three equal ones.

    >>> sf.data.transforms.Grayscale()(sf.ones(3, 4, 4)).shape
    scaffolding.Size([1, 4, 4])
    """
    return _data.grayscale(num_output_channels, 1.0)


def RandomGrayscale(p=0.1):
    """Grey in three equal channels with probability p; the image as it is otherwise.

    >>> sf.data.transforms.RandomGrayscale(p=1.0)(sf.ones(3, 4, 4)).shape
    scaffolding.Size([3, 4, 4])
    """
    return _data.grayscale(3, p)


def Composite(color=(255, 255, 255)):
    """An image with alpha (LA or RGBA, uint8) over a colour: out = rgb * a + color * (1 - a). color: three numbers of
    0..255, or "random" for another one each time. ValueError for an image without alpha.

    >>> rgba = sf.zeros(4, 1, 1, dtype=sf.uint8)
    >>> sf.data.transforms.Composite((255, 255, 255))(rgba).flatten()
    tensor([255, 255, 255], dtype=scaffolding.uint8)
    """
    if color == "random":
        return _data.composite(None)
    return _data.composite(tuple(color))


def ToBucket(buckets, random_crop=False, interpolation="bicubic"):
    """Resized to cover the size of `buckets` (AspectBuckets) with the closest aspect ratio, and cropped to it.

    >>> buckets = sf.data.AspectBuckets(area=64 * 64, multiple_of=16)
    >>> sf.data.transforms.ToBucket(buckets)(sf.zeros(3, 100, 100, dtype=sf.uint8)).shape
    scaffolding.Size([3, 64, 64])
    """
    return _data.to_bucket(buckets, random_crop, interpolation)
