"""The samplers of diffusion models, with diffusers' classes, config fields, arguments and numbers.

A scheduler holds the state of one run: `set_timesteps(n)`; for each t of `timesteps`: `scale_model_input(sample, t)`,
the model, `step(model_output, t, sample).prev_sample`. A run starts from unit noise times `init_noise_sigma`. Training
uses `add_noise(original_samples, noise, timesteps)` and `get_velocity(sample, noise, timesteps)`.
"""

from ..._core import _diffusion
from .scheduler import SchedulerMixin, SchedulerOutput, native_class

for _name in _diffusion.scheduler_names():
    globals()[_name], _output = native_class(_name)
    globals()[_output.__name__] = _output
__all__ = ["SchedulerMixin", "SchedulerOutput", *_diffusion.scheduler_names()]
