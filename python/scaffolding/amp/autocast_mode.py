"""autocast: a context manager and decorator under which matrix products run in 16 bits and sensitive ops in float32."""

import functools
import warnings

from .. import _core
from ..autograd.grad_mode import _Switch
from ..backends import cpu as _cpu


class autocast(_Switch):
    """Ops of the table (docs/autocast.md) run in `dtype` or float32, whatever their inputs are; gradients come back in
    the inputs' types.

    device_type: "cpu" or "cuda". dtype: bfloat16 or float16; by default bfloat16 on cpu and float16 on cuda.
    enabled=False switches autocast off within an enclosing block. cache_enabled: cast a parameter once in a block,
    not at every use.
    Call backward() outside of the block or inside: it runs without autocast.
    Warns and does nothing on "cuda" without CUDA.

    >>> layer = nn.Linear(4, 2)
    >>> with sf.autocast("cpu", dtype=sf.bfloat16):
    ...     y = layer(sf.ones(1, 4))
    >>> y.dtype, layer.weight.dtype
    (scaffolding.bfloat16, scaffolding.float32)
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        super().__init__()
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'; there are 'cpu' and 'cuda'"
            )
        self.device = device_type
        self.fast_dtype = _core.get_autocast_dtype(device_type) if dtype is None else dtype
        self._enabled = bool(enabled)
        self._cache_enabled = _core.is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)
        if self._enabled and self.fast_dtype not in (_core.bfloat16, _core.float16):
            raise ValueError(
                f"autocast: dtype must be bfloat16 or float16, got {self.fast_dtype}; enabled=False runs everything in "
                "float32"
            )
        if self._enabled and device_type == "cuda" and not _core._backend_available("cuda")[0]:
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
            self._enabled = False
        if self._enabled and device_type == "cpu" and self.fast_dtype is _core.bfloat16:
            _cpu._warn_if_bf16_is_emulated()

    def __enter__(self):
        self._before.append(
            _core._autocast_enter(
                self.device, self.fast_dtype if self._enabled else None, self._enabled, self._cache_enabled
            )
        )
        return self

    def __exit__(self, *_):
        _core._autocast_leave(self._before.pop())

    def _again(self):
        again = object.__new__(type(self))
        again.__dict__.update(self.__dict__, _before=[])
        return again


def is_autocast_available(device_type):
    """Whether autocast knows device_type.

    >>> sf.amp.is_autocast_available("cpu"), sf.amp.is_autocast_available("mps")
    (True, False)
    """
    return device_type in ("cpu", "cuda")


def autocast_table():
    """{op: (policy on cpu, policy on cuda)}: "lower" (autocast's dtype), "float32", "widest" (of the inputs)
    or "own".

    >>> table = sf.amp.autocast_table()
    >>> table["matmul"], table["softmax"]
    (('lower', 'lower'), ('own', 'float32'))
    """
    return _core._autocast_table()


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorates fwd, the forward of an autograd.Function, on device_type "cpu" or "cuda". cast_inputs: floating tensors
    are converted to that dtype and forward runs without autocast; without it, forward runs as the caller does, and
    backward as forward did.

    >>> class Square(sf.autograd.Function):
    ...     @staticmethod
    ...     @sf.amp.custom_fwd(device_type="cpu", cast_inputs=sf.float32)
    ...     def forward(ctx, x): return x * x
    >>> Square.apply(sf.ones(2)).dtype
    scaffolding.float32
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    def cast(value):
        if isinstance(value, _core.Tensor):
            eligible = (
                value.is_floating_point() and value.device.type == device_type and value.dtype is not _core.float64
            )
            return value.to(cast_inputs) if eligible else value
        if isinstance(value, dict):
            return {cast(k): cast(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(cast, value))
        return value

    @functools.wraps(fwd)
    def decorated(*args, **kwargs):
        args[0]._dtype = _core.get_autocast_dtype(device_type)
        enabled = _core.is_autocast_enabled(device_type)
        if cast_inputs is None:
            args[0]._fwd_used_autocast = enabled
            return fwd(*args, **kwargs)
        args[0]._fwd_used_autocast = False
        if not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*cast(args), **cast(kwargs))

    return decorated


def custom_bwd(bwd=None, *, device_type):
    """Decorates bwd, the backward of an autograd.Function: it runs with the autocast that forward ran with.
    device_type: "cpu" or "cuda"."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx, *args, **kwargs):
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return decorated
