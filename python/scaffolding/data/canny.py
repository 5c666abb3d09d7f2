"""Edges of pictures: what ControlNets named "canny" see."""

from .._core import Tensor, _data
from .pillow import image_of, to_pil_image


def canny(picture, low_threshold=100, high_threshold=200):
    """The edges of a picture, white on black, as OpenCV's cv2.Canny(picture, low_threshold, high_threshold) finds them:
    a picture of the same kind (a tensor uint8 [3, H, W], an array [H, W, 3] or Pillow's) with three equal channels.

    An edge begins where the slope is above high_threshold and goes on where it is above low_threshold. ValueError for
    what is no picture of bytes.

    >>> picture = sf.zeros(3, 8, 8, dtype=sf.uint8)
    >>> picture[:, :, 4:] = 255
    >>> sf.data.canny(picture)[0, 3]
    tensor([  0,   0,   0, 255,   0,   0,   0,   0], dtype=scaffolding.uint8)
    """
    image = picture if isinstance(picture, Tensor) else image_of(picture)
    edges = _data.canny(image[:3] if image.dim() == 3 else image, float(low_threshold), float(high_threshold))
    edges = edges.expand(3, -1, -1).contiguous()
    if isinstance(picture, Tensor):
        return edges
    if type(picture).__module__.startswith("PIL."):
        return to_pil_image(edges)
    return edges.permute(1, 2, 0).contiguous().numpy()
