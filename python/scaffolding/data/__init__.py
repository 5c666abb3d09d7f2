"""Pictures: reading and writing them, data sets of them, transforms. The DataLoader is scaffolding.utils.data.DataLoader."""

from .._core._data import AspectBuckets, BrokenSample, Transform
from ..utils.data import DataLoader
from .image import convert_image, decode_image, encode_image, image_info, read_image, write_image
from . import transforms
from .datasets import BucketBatchSampler, ImageFiles, ImageFolder, WebDataset
