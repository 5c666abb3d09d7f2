"""Paths the API promises."""

from . import checkpoint, data
from .._later import later

_LATER = {
    "encode_video": "export",
    "export_to_gif": "export",
    "export_to_video": "export",
    "export_to_wav": "export",
    "load_image": "pictures",
    "load_wav": "export",
    "make_grid": "grids",
    "make_image_grid": "pictures",
    "save_image": "grids",
    "tensorboard": None,
}
__getattr__, __dir__ = later(__name__, _LATER)
