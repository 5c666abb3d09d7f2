"""Pictures as tensors: PNG, JPEG and WebP, told apart by their content."""

import os

from .._core import _data


def read_image(path, mode="keep", *, bits=8, apply_exif_orientation=True, max_pixels=None):
    """The picture in a file, uint8 [C, H, W].

    mode: "L" (C = 1), "LA" (2), "RGB" (3), "RGBA" (4, straight alpha), or "keep": what the file has. bits=16 gives
    int32 of 0..65535. max_pixels: larger pictures are refused before memory is taken (SF_IMAGE_MAX_PIXELS). Raises
    RuntimeError where the file cannot be opened, ValueError naming it where it is damaged, cut short or no picture.
    """
    return _data.read_image(os.fspath(path), mode, bits, apply_exif_orientation, max_pixels)


def decode_image(input, mode="keep", *, bits=8, apply_exif_orientation=True, max_pixels=None):
    """The picture in bytes, as read_image."""
    return _data.decode_image(bytes(input), mode, bits, apply_exif_orientation, max_pixels)


def image_info(source):
    """What the header of a file (a path, or bytes) says, as a dict: format, width, height, mode, bits (of a sample),
    palette, orientation (EXIF, 1 to 8) and text (PNG's text chunks before the pixels, keyword to string).
    """
    return _data.image_info_of(source) if isinstance(source, bytes) else _data.image_info(os.fspath(source))


def write_image(path, image, *, quality=75, lossless=False, compression=6, text=None):
    """Writes uint8 [C, H, W] or [H, W] as the path's suffix says (.png, .jpg, .webp); the file appears whole or not at
    all.

    quality: of JPEG, and of WebP unless lossless, 1 to 100. compression: of PNG, 0 to 9. text: PNG text chunks, a dict.
    """
    _data.write_image(os.fspath(path), image, quality, lossless, compression, text or {})


def encode_image(image, format, *, quality=75, lossless=False, compression=6, text=None):
    """The bytes that write_image would write. format: "png", "jpeg" or "webp"."""
    return _data.encode_image(image, format, quality, lossless, compression, text or {})


def save_animation(path, frames, *, fps=10, loop=0, durations=None, quality=80, lossless=False, dither=True):
    """Writes frames (uint8 [C, H, W] of one size, C = 1 or 3; or one tensor [N, C, H, W]) as an animated .gif or .webp;
    the file appears whole or not at all.

    fps: frames per second, to 100 with GIF; durations: milliseconds of each frame instead. loop: how often it plays, 0
    for ever. quality, lossless: of WebP. dither: GIF's 256 colours for each frame with their error spread.
    NotImplementedError where the build has no giflib or libwebpmux.
    """
    _data.save_animation(os.fspath(path), list(frames), fps, loop, list(durations or []), quality, lossless, dither)


def can_write_animation(path):
    """Whether this build writes animations of the path's suffix, .gif or .webp."""
    return _data.can_write_animation(os.fspath(path))


def convert_image(image, mode):
    """uint8 [C, H, W] in another mode: grey is 0.299 R + 0.587 G + 0.114 B, alpha is dropped, or added as opaque."""
    return _data.convert_image(image, mode)
