"""fuse: a function of pointwise ops as one pass over memory."""

import functools

from . import _core
from ._core import Tensor

__all__ = ["fuse"]


def fuse(function):
    """A function that computes what `function` computes, in one pass over memory: one loop over blocks that stay in the
    first cache on the CPU, one generated kernel on CUDA. Also a decorator.

    `function` takes tensors (and numbers, strings, None) and returns one tensor. It may apply pointwise ops and casts;
    inputs broadcast. A view, a reduction, a write in place or a tensor that is no argument is a ValueError that names
    the op. The function is run once for each set of shapes, dtypes, layouts and other arguments, on tensors without
    values: what it computes from Python values is then fixed.

    On the CPU the result equals the unfused function's bit for bit, 16-bit intermediate results included. Gradients of
    any order are those of the unfused function, whose ops backward runs again: only the arguments are kept until then.

    >>> gate = sf.fuse(lambda x, a, b: sf.nn.functional.silu(x * a + b))
    """
    return _FusedFunction(function)


class _FusedFunction:
    def __init__(self, function):
        if not callable(function):
            raise TypeError(f"fuse: takes a function, got {type(function).__name__}")
        self.__wrapped__ = function
        self._by_constants = {}  # what is no tensor, by place and name -> _core._Fused
        functools.update_wrapper(self, function)

    def _fused(self, args, kwargs):
        """The traced function for what is no tensor among the arguments, and the tensors."""
        names = tuple(sorted(kwargs))
        values = (*args, *(kwargs[name] for name in names))
        is_tensor = tuple(isinstance(v, Tensor) for v in values)
        # repr: 0.0 == -0.0, and nan is not nan
        constants = tuple(
            (type(v), repr(v) if isinstance(v, float) else v) for v, tensor in zip(values, is_tensor) if not tensor
        )
        key = (names, is_tensor, constants)
        try:
            fused = self._by_constants.get(key)
        except TypeError:
            strange = next(
                type(v).__name__ for v, tensor in zip(values, is_tensor) if not tensor and type(v).__hash__ is None
            )
            raise TypeError(f"fuse: arguments must be tensors or constants such as numbers, got {strange}") from None
        if fused is None:
            count, function = len(args), self.__wrapped__

            def call(tensors):
                rest = iter(tensors)
                all_values = [next(rest) if tensor else v for v, tensor in zip(values_without_tensors, is_tensor)]
                return function(*all_values[:count], **dict(zip(names, all_values[count:])))

            values_without_tensors = tuple(None if tensor else v for v, tensor in zip(values, is_tensor))
            fused = self._by_constants[key] = _core._Fused(call)
        return fused, [v for v, tensor in zip(values, is_tensor) if tensor]

    def __call__(self, *args, **kwargs):
        fused, tensors = self._fused(args, kwargs)
        return fused(tensors)

    def cuda_source(self, *args, **kwargs):
        """The source of the kernel that these arguments would run on a GPU. No GPU is needed."""
        fused, tensors = self._fused(args, kwargs)
        return fused.cuda_source(tensors)

    def traces(self):
        """How often the function was run on tensors without values so far."""
        return sum(fused.traces() for fused in self._by_constants.values())
