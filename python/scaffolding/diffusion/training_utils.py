"""diffusers' path of what training scripts import from it."""

from ..optim.ema import EMAModel
from .training import compute_snr

__all__ = ["EMAModel", "compute_snr"]
