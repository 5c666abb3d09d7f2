"""torch.FloatTensor and its kin, of older programs: they make tensors of one dtype, and isinstance tells them apart."""

from . import _core
from ._core import Tensor
from ._tensor import _TYPE_NAMES


class _TypedTensor(type):
    def __call__(cls, *data, device=None):
        if not data or all(isinstance(size, int) for size in data):  # sizes, whose values are not set
            return _core.empty(data or (0,), dtype=cls.dtype, device=device)
        if len(data) > 1:
            raise TypeError(f"{cls.__name__}: takes sizes, or one list, array or tensor, got {len(data)} arguments")
        return _core.tensor(data[0], dtype=cls.dtype, device=device)

    def __instancecheck__(cls, found):
        return isinstance(found, Tensor) and found.dtype is cls.dtype and found.device.type == "cpu"


__all__ = list(_TYPE_NAMES.values())
for _dtype, _name in _TYPE_NAMES.items():
    globals()[_name] = _TypedTensor(
        _name, (), {"dtype": _dtype, "__module__": "scaffolding", "__doc__": f"Tensors of {_dtype}; device: the CPU."}
    )
