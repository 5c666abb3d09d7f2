"""Paths the API promises."""

from . import checkpoint, data, tensorboard
from .export import export_to_gif, export_to_video
from .grids import make_grid, save_image
from .pictures import load_image, make_image_grid
