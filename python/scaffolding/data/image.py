"""Pictures as tensors: PNG, JPEG and WebP, told apart by their content."""

import os

from .._core import _data


def read_image(path, mode="keep", *, bits=8, apply_exif_orientation=True, max_pixels=None):
    """The picture in a file, uint8 [C, H, W].

    mode: "L" (C = 1), "LA" (2), "RGB" (3), "RGBA" (4, straight alpha), or "keep": what the file has. bits=16 gives
    int32 of 0..65535. max_pixels: larger pictures are refused before memory is taken (SF_IMAGE_MAX_PIXELS). Raises
    RuntimeError where the file cannot be opened, ValueError naming it where it is damaged, cut short or no picture.

    >>> sf.data.write_image("a.png", sf.zeros(1, 32, 48, dtype=sf.uint8))
    >>> sf.data.read_image("a.png").shape, sf.data.read_image("a.png", mode="RGB").shape
    (scaffolding.Size([1, 32, 48]), scaffolding.Size([3, 32, 48]))
    """
    return _data.read_image(os.fspath(path), mode, bits, apply_exif_orientation, max_pixels)


def decode_image(input, mode="keep", *, bits=8, apply_exif_orientation=True, max_pixels=None):
    """The picture in bytes, as read_image.

    >>> raw = sf.data.encode_image(sf.zeros(3, 32, 48, dtype=sf.uint8), "png")
    >>> sf.data.decode_image(raw).shape
    scaffolding.Size([3, 32, 48])
    """
    return _data.decode_image(bytes(input), mode, bits, apply_exif_orientation, max_pixels)


def image_info(source):
    """What the header of a file (a path, or bytes) says, as a dict: format, width, height, mode, bits (of a sample),
    palette, orientation (EXIF, 1 to 8) and text (PNG's text chunks before the pixels, keyword to string).

    >>> sf.data.write_image("a.png", sf.zeros(3, 32, 48, dtype=sf.uint8), text={"prompt": "a red apple"})
    >>> sf.data.image_info("a.png")["text"]
    {'prompt': 'a red apple'}
    """
    return _data.image_info_of(source) if isinstance(source, bytes) else _data.image_info(os.fspath(source))


def write_image(path, image, *, quality=75, lossless=False, compression=6, text=None):
    """Writes uint8 [C, H, W] or [H, W] as the path's suffix says (.png, .jpg, .webp); the file appears whole or not at
    all.

    quality: of JPEG, and of WebP unless lossless, 1 to 100. compression: of PNG, 0 to 9. text: PNG text chunks, a dict.

    >>> sf.data.write_image("a.png", sf.full((3, 2, 2), 200, dtype=sf.uint8))
    >>> sf.data.read_image("a.png")[0]
    tensor([[200, 200],
            [200, 200]], dtype=scaffolding.uint8)
    """
    _data.write_image(os.fspath(path), image, quality, lossless, compression, text or {})


def encode_image(image, format, *, quality=75, lossless=False, compression=6, text=None):
    """The bytes that write_image would write. format: "png", "jpeg" or "webp".

    >>> raw = sf.data.encode_image(sf.zeros(3, 32, 48, dtype=sf.uint8), "webp", quality=90)
    >>> raw[:4]
    b'RIFF'
    """
    return _data.encode_image(image, format, quality, lossless, compression, text or {})


def save_animation(path, frames, *, fps=10, loop=0, durations=None, quality=80, lossless=False, dither=True):
    """Writes frames (uint8 [C, H, W] of one size, C = 1 or 3; or one tensor [N, C, H, W]) as an animated .gif or .webp;
    the file appears whole or not at all.

    fps: frames per second, to 100 with GIF; durations: milliseconds of each frame instead. loop: how often it plays, 0
    for ever. quality, lossless: of WebP. dither: GIF's 256 colours for each frame with their error spread.
    NotImplementedError where the build has no giflib or libwebpmux.

    >>> sf.data.save_animation("a.webp", [sf.full((3, 8, 8), i, dtype=sf.uint8) for i in (0, 255)], fps=10)
    >>> len(sf.data.VideoReader("a.webp"))
    2
    """
    _data.save_animation(os.fspath(path), list(frames), fps, loop, list(durations or []), quality, lossless, dither)


def can_write_animation(path):
    """Whether this build writes animations of the path's suffix, .gif or .webp.

    >>> sf.data.can_write_animation("a.webp")
    True
    """
    return _data.can_write_animation(os.fspath(path))


def convert_image(image, mode):
    """uint8 [C, H, W] in another mode: grey is 0.299 R + 0.587 G + 0.114 B, alpha is dropped, or added as opaque.

    >>> sf.data.convert_image(sf.tensor([255, 0, 0], dtype=sf.uint8).reshape(3, 1, 1), "L").item()
    76
    """
    return _data.convert_image(image, mode)
