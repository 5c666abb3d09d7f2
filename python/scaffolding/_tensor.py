"""Methods of Tensor that read better in Python."""

from . import _core
from ._core import Tensor


def _method(function):
    setattr(Tensor, function.__name__, function)
    return function


_TYPE_NAMES = {
    _core.float32: "FloatTensor",
    _core.float64: "DoubleTensor",
    _core.float16: "HalfTensor",
    _core.bfloat16: "BFloat16Tensor",
    _core.uint8: "ByteTensor",
    _core.int8: "CharTensor",
    _core.int16: "ShortTensor",
    _core.int32: "IntTensor",
    _core.int64: "LongTensor",
    _core.bool: "BoolTensor",
}

# ---- new tensors of the same dtype and device


def _new(factory):
    def new(self, *args, dtype=None, device=None, requires_grad=False, **kwargs):
        return factory(
            *args, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad, **kwargs
        )

    return new


for _name in ("zeros", "ones", "empty", "full"):
    _function = _new(getattr(_core, _name))
    _function.__name__ = _function.__qualname__ = "new_" + _name
    _function.__doc__ = f"scaffolding.{_name} with this tensor's dtype and device; requires_grad too."
    setattr(Tensor, "new_" + _name, _function)


@_method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A copy of data with this tensor's dtype and device, which records gradients with requires_grad."""
    return _core.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


# ---- layout and type


@_method
def view_as(self, other):
    """view with other's shape."""
    return self.view(other.shape)


@_method
def reshape_as(self, other):
    """reshape with other's shape."""
    return self.reshape(other.shape)


@_method
def type_as(self, other):
    """The tensor with other's dtype."""
    return self.to(other.dtype)


@_method
def type(self, dtype=None):
    """The tensor in another dtype, which may be a name of PyTorch's ("FloatTensor", "torch.cuda.HalfTensor"); without
    one, the name of its type: "scaffolding.FloatTensor"."""
    if dtype is None:
        place = f"{self.device.type}." if self.device.type != "cpu" else ""
        return f"scaffolding.{place}{_TYPE_NAMES.get(self.dtype, repr(self.dtype).split('.')[-1])}"
    if isinstance(dtype, str):
        *place, name = dtype.removeprefix("torch.").removeprefix("scaffolding.").split(".")
        known = [t for t, shown in _TYPE_NAMES.items() if shown == name]
        if not known:
            raise ValueError(f"type: {dtype!r} is no type; they are {', '.join(_TYPE_NAMES.values())}")
        return self.to(place[0] if place else "cpu", known[0])
    return self.to(getattr(dtype, "dtype", dtype))  # FloatTensor and its kin have one


class UntypedStorage:
    """The bytes behind a tensor, which views of it share: size, address and place."""

    def __init__(self, tensor):
        self._tensor = tensor

    device = property(lambda self: self._tensor.device)

    def nbytes(self):
        """How many bytes there are."""
        return self._tensor._storage_nbytes()

    size = __len__ = nbytes

    def data_ptr(self):
        """The address of the first byte."""
        return self._tensor.data_ptr() - self._tensor.storage_offset() * self._tensor.element_size()

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self._tensor._storage_address() == other._tensor._storage_address()

    __hash__ = None


@_method
def untyped_storage(self):
    """The tensor's memory."""
    return UntypedStorage(self)


@_method
def histogram(self, bins, *, range=None, weight=None, density=False):
    """scaffolding.histogram of this tensor."""
    from ._histogram import histogram

    return histogram(self, bins, range=range, weight=weight, density=density)


Tensor.layout = property(lambda self: "strided", doc="How the elements lie: always strided, which is dense.")
Tensor.real = property(lambda self: self, doc="The tensor itself: its numbers are real.")


@_method
def is_same_size(self, other):
    """Whether other has the same shape."""
    return self.shape == other.shape


@_method
def as_subclass(self, cls):
    """The same memory as an instance of cls, a subclass of Tensor."""
    return _core._make_subclass(cls, self, self.requires_grad and self.is_leaf, False)


Tensor._make_subclass = staticmethod(
    lambda cls, data, require_grad=False: _core._make_subclass(cls, data, require_grad, False)
)


@_method
def record_stream(self, stream):
    """Says that work given to a stream uses this tensor: once freed, its memory is reused only after that work.
    For tensors made on another stream.
    """
    _core._cuda_record_stream(self, stream._handle)


@_method
def share_memory_(self):
    """The tensor itself: threads share memory already."""
    return self


# ---- copying and pickling


def _state(tensor):
    """What a Python object adds to a tensor: attributes, and the class where it is a subclass."""
    return dict(tensor.__dict__) or None


def _rebuild(cls, data, dtype, size, stride, device, requires_grad):
    tensor = _core._from_dense_bytes(data, dtype, size, stride)
    if str(device) != "cpu":
        tensor = tensor.to(device)
    if cls is not Tensor:
        return _core._make_subclass(cls, tensor, requires_grad, hasattr(cls, "_is_parameter_class"))
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


@_method
def __reduce_ex__(self, protocol):
    data, stride = _core._to_dense_bytes(self.detach())
    args = (self.__class__, data, self.dtype, tuple(self.shape), stride, str(self.device), self.requires_grad)
    state = _state(self)
    return (_rebuild, args) if state is None else (_rebuild, args, state)


@_method
def __deepcopy__(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("deepcopy: only leaves can be copied; detach() the tensor first")
    copy = self.detach().clone()
    if self.__class__ is not Tensor:
        copy = _core._make_subclass(
            self.__class__, copy, self.requires_grad, hasattr(self.__class__, "_is_parameter_class")
        )
    elif self.requires_grad:
        copy.requires_grad_()
    memo[id(self)] = copy
    if self.grad is not None:
        copy.grad = self.grad.detach().clone()
    state = _state(self)
    if state:
        from copy import deepcopy

        copy.__dict__.update(deepcopy(state, memo))
    return copy


@_method
def __copy__(self):
    copy = self.detach()
    if self.__class__ is not Tensor:
        copy = _core._make_subclass(
            self.__class__, copy, self.requires_grad, hasattr(self.__class__, "_is_parameter_class")
        )
    elif self.requires_grad:
        copy.requires_grad_()
    copy.__dict__.update(self.__dict__)
    return copy


# ---- conversation with others


@_method
def __array_wrap__(self, array, context=None, return_scalar=False):
    return _core.as_tensor(array.copy() if array.dtype.byteorder == ">" else array)


@_method
def __dir__(self):
    return sorted(set(object.__dir__(self)) | set(self.__dict__))


@_method
def __reversed__(self):
    """The entries of the first dimension in reverse order, as torch has it: flipped."""
    return self if self.dim() == 0 else self.flip(0)
