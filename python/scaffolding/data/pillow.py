"""Pillow's pictures and NumPy's arrays as images [C, H, W], and back. Pillow is loaded where a picture is made."""

from .._core import Tensor, from_numpy

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def image_of(picture):
    """The tensor [C, H, W] of a picture of Pillow's, uint8 (int32 of one in more bits, float32 of mode F), or of an
    array [H, W] or [H, W, C] of any dtype. TypeError for anything else.
    """
    import numpy

    if type(picture).__module__.startswith("PIL."):
        modes = {"1": "L", "P": "RGBA" if "transparency" in picture.info else "RGB", "CMYK": "RGB", "YCbCr": "RGB"}
        if picture.mode in modes:
            picture = picture.convert(modes[picture.mode])
        array = numpy.asarray(picture)
        if array.dtype == numpy.uint16:
            array = array.astype(numpy.int32)
    elif isinstance(picture, numpy.ndarray):
        array = picture
    else:
        raise TypeError(
            f"transform: image must be a tensor [C, H, W], a picture of Pillow's or an array [H, W, C], got "
            f"{type(picture).__name__}"
        )
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3:
        raise ValueError(f"transform: an array must be [H, W] or [H, W, C], got {list(array.shape)}")
    return from_numpy(numpy.ascontiguousarray(array) if array.flags.writeable else array.copy()).permute(2, 0, 1)


def to_pil_image(image, mode=None):
    """The picture of image, a tensor [C, H, W] or [H, W], or of an array [H, W] or [H, W, C]; floats are of 0..1. mode:
    Pillow's, which it is converted to; None: as it is."""
    import numpy
    from PIL import Image

    if isinstance(image, Tensor):
        planes = image.detach().cpu()
        planes = planes.float() if planes.is_floating_point() else planes
        array = planes.numpy() if planes.dim() == 2 else numpy.moveaxis(planes.numpy(), 0, -1)
    else:
        array = numpy.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in _MODES:
        raise ValueError(f"ToPILImage: image must have 1 to 4 channels, got an image of shape {list(array.shape)}")
    if numpy.issubdtype(array.dtype, numpy.floating):
        array = (array * 255).clip(0, 255)  # cut off, as torchvision does
    elif array.dtype != numpy.uint8:
        raise TypeError(f"ToPILImage: image must be uint8 or floating, got {array.dtype}")
    array = numpy.ascontiguousarray(array.astype(numpy.uint8))
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array, _MODES[array.shape[2]])
    return picture if mode is None else picture.convert(mode)
