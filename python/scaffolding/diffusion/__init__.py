"""Diffusion models: schedulers, guidance and their helpers, under diffusers' names."""

from .._documents import describe as _describe
from .._missing import help_modules
from . import schedulers
from .configuration import ConfigMixin, FrozenDict, register_to_config
from .guidance import classifier_free_guidance, get_beta_schedule, randn_tensor, rescale_noise_cfg, slerp
from .schedulers import *  # noqa: F403
from .training import TrainingBatch, compute_snr, diffusion_loss, training_batch
from .video_training import cogvideox_loss
from . import optimization, training_utils
from .optimization import *  # noqa: F403
from .training_utils import EMAModel
from ..models import *  # noqa: F403
from . import pipelines
from .pipelines import *  # noqa: F403

_describe(globals())
_describe(vars(training_utils))
help_modules()  # this one is imported after the others
