"""Pictures: reading and writing them, data sets of them, transforms.
The DataLoader is scaffolding.utils.data.DataLoader.
"""

from .._missing import help_modules
from .._core import _data
from .._documents import add_to as _add_document
from .._documents import describe as _describe
from ..utils.data import DataLoader
from .image import (
    can_write_animation,
    convert_image,
    decode_image,
    encode_image,
    image_info,
    read_image,
    save_animation,
    write_image,
)
from . import transforms
from .canny import canny
from .cached_rows import CachedRows, RowWriter, cache_rows
from .datasets import BucketBatchSampler, ImageFiles, ImageFolder, MovingIcons, VideoFolder, WebDataset
from .video import VideoReader, VideoWriter, can_write_video, read_video, save_video

for _class in (BucketBatchSampler, ImageFiles, ImageFolder, VideoFolder, WebDataset):
    _add_document(_class, "classes")
AspectBuckets = _data.AspectBuckets
_add_document(AspectBuckets, "data")
BrokenSample = _data.BrokenSample
Transform = _data.Transform

_describe(globals())
_describe(vars(transforms))
help_modules()  # this one is imported after the others
