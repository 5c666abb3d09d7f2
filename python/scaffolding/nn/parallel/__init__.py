"""Modules that train on several devices or in several processes."""

from .data_parallel import DataParallel
from .distributed import DistributedDataParallel
