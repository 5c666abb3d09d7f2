"""Gradient checkpointing: recompute in backward instead of keeping activations.

>>> y = checkpoint(block, x)           # keeps x only; block runs again in backward
>>> y = checkpoint_offload(block, x)   # keeps everything, in host memory
"""

from .. import _core
from .._core import Tensor


class _Call:
    """A call as a function of its tensors: arguments of other kinds stay,
    the result is flattened to a list of tensors.
    """

    def __init__(self, function, args, kwargs):
        self._function, self._args, self._kwargs = function, args, kwargs
        self.tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        self._structure = None

    def run(self, tensors):
        given = iter(tensors)
        args = [next(given) if isinstance(a, Tensor) else a for a in self._args]
        kwargs = {name: next(given) if isinstance(a, Tensor) else a for name, a in self._kwargs.items()}
        found = []
        structure = _flatten(self._function(*args, **kwargs), found)
        if self._structure is None:
            self._structure = structure
        return found

    def result(self, tensors):
        return _unflatten(self._structure, iter(tensors))


_TENSOR = object()


def _flatten(value, found):
    if isinstance(value, Tensor):
        found.append(value)
        return _TENSOR
    if isinstance(value, (tuple, list)):
        items = [_flatten(v, found) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") and not isinstance(value, list) else type(value)(items)
    if isinstance(value, dict):
        return {name: _flatten(v, found) for name, v in value.items()}
    return value


def _unflatten(structure, tensors):
    if structure is _TENSOR:
        return next(tensors)
    if isinstance(structure, (tuple, list)):
        items = [_unflatten(s, tensors) for s in structure]
        return (
            type(structure)(*items)
            if hasattr(structure, "_fields") and not isinstance(structure, list)
            else type(structure)(items)
        )
    if isinstance(structure, dict):
        return {name: _unflatten(s, tensors) for name, s in structure.items()}
    return structure


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, **kwargs):
    """function(*args, **kwargs), whose saved tensors are recomputed in backward.

    function must do the same each time; with preserve_rng_state its second run draws the same random numbers.
    use_reentrant is accepted for PyTorch's sake: there is one implementation, which has neither variant's limits.

    >>> block, x = nn.Sequential(nn.Linear(4, 16), nn.GELU()), sf.ones(2, 4)
    >>> sf.utils.checkpoint.checkpoint(block, x).sum().backward()
    """
    call = _Call(function, args, kwargs)
    return call.result(_core._checkpoint(call.run, call.tensors, bool(preserve_rng_state)))


def checkpoint_offload(function, *args, device="cpu", dtype=None, min_bytes=1 << 12, **kwargs):
    """function(*args, **kwargs), whose saved tensors wait for backward on another device, or in a smaller dtype.

    Tensors of less than min_bytes stay where they are. A dtype (bfloat16, float8_e4m3fn)
    makes the gradients less exact.

    >>> layer, x = nn.Linear(4, 4), sf.ones(2, 4)
    >>> sf.utils.checkpoint.checkpoint_offload(layer, x, dtype=sf.bfloat16).sum().backward()
    """
    call = _Call(function, args, kwargs)
    return call.result(_core._checkpoint_offload(call.run, call.tensors, device, dtype, min_bytes))


def checkpoint_sequential(functions, segments, input, **kwargs):
    """Runs functions one after another, the first on input, in so many checkpointed segments; the last one is run as it
    is.

    >>> layers = [nn.Linear(4, 4) for _ in range(6)]
    >>> sf.utils.checkpoint.checkpoint_sequential(layers, 3, sf.ones(2, 4)).shape
    scaffolding.Size([2, 4])
    """
    functions = list(functions)
    size = len(functions) // segments
    if segments < 1 or size < 1:
        raise ValueError(f"checkpoint_sequential: {len(functions)} functions do not make {segments} segments")

    def run(part):
        def forward(x):
            for f in part:
                x = f(x)
            return x

        return forward

    for i in range(segments - 1):
        input = checkpoint(run(functions[i * size : (i + 1) * size]), input, **kwargs)
    return run(functions[(segments - 1) * size :])(input)
