"""Communication hooks of DistributedDataParallel."""

from . import default_hooks
