"""Diffusion models: schedulers, guidance and their helpers, under diffusers' names."""

from . import schedulers
from .configuration import FrozenDict
from .guidance import classifier_free_guidance, get_beta_schedule, randn_tensor, rescale_noise_cfg
from .schedulers import *  # noqa: F403
