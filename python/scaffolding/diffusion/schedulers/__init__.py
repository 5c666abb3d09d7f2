"""The samplers of diffusion models, with diffusers' classes, config fields, arguments and numbers.

A scheduler holds the state of one run: `set_timesteps(n)`; for each t of `timesteps`: `scale_model_input(sample, t)`,
the model, `step(model_output, t, sample).prev_sample`. A run starts from unit noise times `init_noise_sigma`. Training
uses `add_noise(original_samples, noise, timesteps)` and `get_velocity(sample, noise, timesteps)`.
"""

import os
import warnings

from ..._core import _diffusion
from ..configuration import FrozenDict

SchedulerMixin, SchedulerOutput = _diffusion.SchedulerMixin, _diffusion.SchedulerOutput
for _name in _diffusion.scheduler_names():
    globals()[_name] = getattr(_diffusion, _name)
__all__ = ["SchedulerMixin", "SchedulerOutput", *_diffusion.scheduler_names()]


def from_config(cls, config=None, return_unused_kwargs=False, **kwargs):
    """A scheduler of this class with the fields of a config: a dict, or another scheduler's `.config`; keywords
    override.

    Entries that are no fields are kept in `.config`; a warning names those that no scheduler has.
    TypeError for a field of another type, ValueError for an impossible value.
    """
    if isinstance(config, SchedulerMixin):
        config = config.config
    if not isinstance(config, dict):
        raise TypeError(f"{cls.__name__}.from_config: config must be a dict, got {type(config).__name__}")
    fields = cls._field_names()
    unused = {k: v for k, v in kwargs.items() if k not in fields}
    given = {k: v for k, v in kwargs.items() if k in fields}
    defaults = [k for k in config.get("_use_default_values", []) if k not in given]
    merged = {**config, **given, "_use_default_values": defaults}
    known = {field for name in _diffusion.scheduler_names() for field in getattr(_diffusion, name)._field_names()}
    if "_class_name" in merged:
        merged["_class_name"] = cls.__name__
    scheduler = cls(_config=merged)
    strange = sorted(k for k in scheduler._unknown() if not k.startswith("_") and k not in known)
    strange += [] if return_unused_kwargs else sorted(unused)
    if strange:
        warnings.warn(
            f"{cls.__name__}.from_config: no such fields: {', '.join(strange)}; they are kept and have no effect",
            stacklevel=2,
        )
    return (scheduler, unused) if return_unused_kwargs else scheduler


def load_config(cls, pretrained_model_name_or_path, subfolder=None):
    """The entries of scheduler_config.json in a folder, or of the file itself."""
    path = os.path.join(os.fspath(pretrained_model_name_or_path), subfolder or "")
    if not os.path.isfile(path):
        path = os.path.join(path, cls.config_name)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{cls.__name__}: no file {path}")
    return _diffusion.read_config_file(path)


def from_pretrained(cls, pretrained_model_name_or_path, subfolder=None, return_unused_kwargs=False, **kwargs):
    """A scheduler from a folder with scheduler_config.json; keywords override its fields."""
    return cls.from_config(cls.load_config(pretrained_model_name_or_path, subfolder), return_unused_kwargs, **kwargs)


def _rebuild(cls, config):
    return cls(_config=config)


SchedulerMixin.from_config = classmethod(from_config)
SchedulerMixin.load_config = classmethod(load_config)
SchedulerMixin.from_pretrained = classmethod(from_pretrained)
SchedulerMixin.save_pretrained = SchedulerMixin.save_config
SchedulerMixin.config = property(
    lambda self: FrozenDict(self._config()), doc="The fields, as a dict whose entries are attributes too."
)
SchedulerMixin.__repr__ = lambda self: f"{type(self).__name__} {self.to_json_string()}"
SchedulerMixin.__reduce__ = lambda self: (_rebuild, (type(self), self._config()))
