"""Layers that take the size of their input from the first one that they see."""

from .. import _core
from .._documents import add_to as _add_document
from ..autograd.grad_mode import no_grad
from .parameter import Buffer, Parameter


class _Uninitialized:
    """A tensor without a shape: what a lazy layer has before its first input."""

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def materialize(self, shape, device=None, dtype=None):
        """Makes it a tensor of that shape, without values, of dtype on device; None: its own."""
        device = self.device if device is None else device
        dtype = self.dtype if dtype is None else dtype
        self.data = _core.empty(shape, device=device, dtype=dtype)
        self.__class__ = self._made

    def __repr__(self):
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A Parameter whose shape is not known yet: materialize(shape) makes it one.

    >>> weight = nn.UninitializedParameter()
    >>> weight.materialize((2, 3))
    >>> weight.shape
    scaffolding.Size([2, 3])
    """

    _made = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return super().__new__(cls, _core.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo):
        return type(self)(self.requires_grad, self.device, self.dtype)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A Buffer whose shape is not known yet: materialize(shape) makes it one.

    >>> buffer = nn.UninitializedBuffer()
    >>> buffer.materialize((2, 3))
    >>> buffer.shape
    scaffolding.Size([2, 3])
    """

    _made = Buffer

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        return super().__new__(cls, _core.empty(0, device=device, dtype=dtype), persistent=persistent)


def is_lazy(tensor):
    """Whether a tensor is an uninitialized parameter or buffer."""
    return isinstance(tensor, _Uninitialized)


def _uninitialized_names(module):
    return [n for table in (module._parameters, module._buffers) for n, t in table.items() if is_lazy(t)]


class LazyModule:
    """What lazy layers share. The first call finds the input's size, makes the parameters (which optimizers may hold
    already) and turns the layer into one of cls_to_become."""

    _unbatched = None  # the number of dimensions of an input without a batch, where there may be one
    _size_name = _settings = None

    def _begin(self, settings, device, dtype):
        """Puts uninitialized tensors in the place of the layer's own."""
        self._settings = settings
        setattr(self, self._size_name, 0)
        for table, cls in ((self._parameters, UninitializedParameter), (self._buffers, UninitializedBuffer)):
            for name, tensor in list(table.items()):
                if tensor is None:
                    continue
                if tensor.dtype.is_floating_point:
                    setattr(self, name, cls(device=device, dtype=dtype))
                else:
                    setattr(self, name, _core.zeros(tensor.shape, dtype=tensor.dtype, device=device))
        self._lazy_hooks = [
            self.register_forward_pre_hook(_initialize_and_become, with_kwargs=True),
            self.register_load_state_dict_pre_hook(_materialize_for),
        ]

    def has_uninitialized_params(self):
        """Whether the layer has seen neither an input nor a state dict yet."""
        return bool(_uninitialized_names(self))

    def _size_of(self, input):
        return input.shape[0 if input.dim() == self._unbatched else 1]

    def _size_from(self, weight):
        return weight.shape[0]

    def initialize_parameters(self, input, *args, **kwargs):
        """Draws the parameters for inputs like input."""
        names = _uninitialized_names(self)
        if not names:
            return
        size, like = self._size_of(input), getattr(self, names[0])
        made = self.cls_to_become(**{self._size_name: size}, **self._settings, device=like.device, dtype=like.dtype)
        setattr(self, self._size_name, size)
        with no_grad():
            for name in names:
                tensor, values = getattr(self, name), getattr(made, name)
                tensor.materialize(values.shape)
                tensor.copy_(values)

    def _become(self):
        for handle in self._lazy_hooks:
            handle.remove()
        del self._lazy_hooks, self._settings
        self.__class__ = self.cls_to_become


def _initialize_and_become(module, args, kwargs):
    module.initialize_parameters(*args, **kwargs)
    module._become()


def _materialize_for(module, state_dict, prefix, *_):
    """Gives uninitialized tensors the shapes of those that are about to be loaded."""
    for name in _uninitialized_names(module):
        value = state_dict.get(prefix + name)
        if value is not None:
            getattr(module, name).materialize(value.shape)
            if name in ("weight", "running_mean"):
                setattr(module, module._size_name, module._size_from(value))


class LazyLinear(LazyModule, _core._layer_Linear):
    """Linear whose in_features is the last size of its first input.

    >>> layer = nn.LazyLinear(3)
    >>> y = layer(sf.ones(2, 7))
    >>> layer.in_features
    7
    """

    cls_to_become, _size_name = _core._layer_Linear, "in_features"

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(1, out_features, bias, "meta", dtype)
        self._begin({"out_features": out_features, "bias": bias}, device, dtype)

    def _size_of(self, input):
        return input.shape[-1]

    def _size_from(self, weight):
        return weight.shape[1]


class _LazyConv(LazyModule):
    _size_name = "in_channels"

    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        settings = {
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "bias": bias,
            "padding_mode": padding_mode,
        }
        super().__init__(in_channels=groups, **settings, device="meta", dtype=dtype)
        self._begin(settings, device, dtype)

    def _size_from(self, weight):
        return weight.shape[1] * self.groups


class _LazyConvTranspose(LazyModule):
    _size_name = "in_channels"

    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        settings = {
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "stride": stride,
            "padding": padding,
            "output_padding": output_padding,
            "groups": groups,
            "bias": bias,
            "dilation": dilation,
            "padding_mode": padding_mode,
        }
        super().__init__(in_channels=groups, **settings, device="meta", dtype=dtype)
        self._begin(settings, device, dtype)


class _LazyNorm(LazyModule):
    _size_name = "num_features"

    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        settings = {
            "eps": eps,
            "momentum": momentum,
            "affine": affine,
            "track_running_stats": track_running_stats,
            "bias": bias,
        }
        super().__init__(num_features=1, **settings, device="meta", dtype=dtype)
        self._begin(settings, device, dtype)


def _lazy(base, name, unbatched, what):
    plain = getattr(_core, f"_layer_{name}")
    made = type(
        "Lazy" + name,
        (base, plain),
        {"cls_to_become": plain, "_unbatched": unbatched, "__module__": "scaffolding.nn"},
    )
    made.__doc__ = f"{name} whose {base._size_name} is {what} its first input."
    _add_document(made, "nn")
    return made


_CHANNELS = "the number of channels of"
LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(_LazyConv, f"Conv{d}d", d + 1, _CHANNELS) for d in (1, 2, 3))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(_LazyConvTranspose, f"ConvTranspose{d}d", d + 1, _CHANNELS) for d in (1, 2, 3)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(_LazyNorm, f"BatchNorm{d}d", None, _CHANNELS) for d in (1, 2, 3)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(_LazyNorm, f"InstanceNorm{d}d", d + 1, _CHANNELS) for d in (1, 2, 3)
)
LazyLinear.__module__ = "scaffolding.nn"
for _cls in (UninitializedParameter, UninitializedBuffer):
    _cls.__module__ = "scaffolding.nn.parameter"
    _add_document(_cls, "nn")
_add_document(LazyLinear, "nn")
