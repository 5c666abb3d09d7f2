"""Pictures for calls of pipelines, and sheets of what they return, with diffusers' names and arguments."""

import os

_URL_SECONDS = 30


def _open(source):
    from PIL import Image

    if not source.startswith(("http://", "https://")):
        if not os.path.isfile(source):
            raise ValueError(f"load_image: image must be a path or an http(s) address, there is no file {source!r}")
        return Image.open(source)
    import io
    import urllib.request

    with urllib.request.urlopen(source, timeout=_URL_SECONDS) as answer:
        return Image.open(io.BytesIO(answer.read()))


def load_image(image, convert_method=None):
    """A PIL picture in RGB, turned as its camera says: image is a path, an http(s) address, or a PIL picture.

    convert_method: called with the picture instead of turning it into RGB. ValueError for a path without a file,
    TypeError for other things; needs Pillow.

    >>> sf.utils.save_image(sf.rand(1, 32, 48), "grey.png")
    >>> picture = sf.utils.load_image("grey.png")
    >>> picture.mode, picture.size
    ('RGB', (48, 32))
    """
    from PIL import Image, ImageOps

    if isinstance(image, (str, os.PathLike)):
        image = _open(os.fspath(image))
    elif not isinstance(image, Image.Image):
        raise TypeError(f"load_image: image must be a path, an address or a PIL picture, got {type(image).__name__}")
    image = ImageOps.exif_transpose(image)
    return image.convert("RGB") if convert_method is None else convert_method(image)


def make_image_grid(images, rows, cols, resize=None):
    """A PIL picture of images, rows * cols PIL pictures, row by row, each of the first one's size; resize: of their
    sides.

    >>> from PIL import Image
    >>> sf.utils.make_image_grid([Image.new("RGB", (32, 24))] * 6, rows=2, cols=3).size
    (96, 48)
    """
    from PIL import Image

    if len(images) != rows * cols or not images:
        raise ValueError(f"make_image_grid: needs rows * cols = {rows * cols} pictures, got {len(images)}")
    if resize is not None:
        images = [image.resize((resize, resize)) for image in images]
    width, height = images[0].size
    grid = Image.new("RGB", (cols * width, rows * height))
    for i, image in enumerate(images):
        grid.paste(image, (i % cols * width, i // cols * height))
    return grid
