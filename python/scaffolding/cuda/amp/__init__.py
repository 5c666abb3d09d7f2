"""scaffolding.amp for CUDA, under torch.cuda.amp's names."""

from ... import _core
from ...amp import GradScaler as _GradScaler
from ...amp import autocast as _autocast
from ...amp import custom_bwd as _custom_bwd
from ...amp import custom_fwd as _custom_fwd


class autocast(_autocast):
    """scaffolding.autocast("cuda", ...), with its enabled, dtype and cache_enabled."""

    def __init__(self, enabled=True, dtype=_core.float16, cache_enabled=True):
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """scaffolding.amp.GradScaler("cuda", ...), with its init_scale, growth_factor, backoff_factor, growth_interval and
    enabled."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd=None, *, cast_inputs=None):
    """scaffolding.amp.custom_fwd(fwd, cast_inputs=cast_inputs) for "cuda"."""
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd=None):
    """scaffolding.amp.custom_bwd(bwd) for "cuda"."""
    return _custom_bwd(bwd, device_type="cuda")
