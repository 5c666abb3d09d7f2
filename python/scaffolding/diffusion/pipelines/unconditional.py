"""Pipelines without text, under diffusers' names and arguments."""

from ..schedulers import DDIMScheduler
from .pipeline import DiffusionPipeline
from .registration import registered


class _DDIM(DiffusionPipeline):
    """Whatever sampler it is made with becomes a DDIMScheduler of the same training."""

    def _look_at(self, given):
        scheduler = given["scheduler"]
        if hasattr(scheduler, "config") and not isinstance(scheduler, DDIMScheduler):
            given["scheduler"] = DDIMScheduler.from_config(scheduler.config)


DDIMPipeline = registered("DDIMPipeline", _DDIM)
