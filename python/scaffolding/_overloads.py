"""Functions for which PyTorch has several forms under one name, and torch's second names.

Each form is an op of its own in C++ (max_dim, amax, maximum); here they meet. All of them are methods of Tensor too.
"""

import math
from operator import itemgetter

from . import _core
from ._compositions import in_place
from ._core import Tensor

__all__ = []


def _export(function):
    """Makes a function of the package and a method of Tensor."""
    __all__.append(function.__name__)
    setattr(Tensor, function.__name__, function)
    return function


def _function(function):
    __all__.append(function.__name__)
    return function


def _op(name):
    return getattr(_core, name, None)


# ---- named results


class _NamedResult(tuple):
    __slots__ = ()

    def __repr__(self):
        fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"scaffolding.return_types.{type(self).__name__}(\n{fields})"

    def __reduce__(self):
        return _named, (type(self).__name__, tuple(self))


def _result_type(name, *fields):
    members = {field: property(itemgetter(i)) for i, field in enumerate(fields)}
    return type(name, (_NamedResult,), {"__slots__": (), "_fields": fields, "__module__": __name__, **members})


_RESULTS = {
    name: _result_type(name, "values", "indices")
    for name in ("max", "min", "sort", "topk", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin")
}
_RESULTS["aminmax"] = _result_type("aminmax", "min", "max")
_RESULTS["histogram"] = _result_type("histogram", "hist", "bin_edges")
_RESULTS["frexp"] = _result_type("frexp", "mantissa", "exponent")


_EXAMPLES = {  # of the functions that are made below
    "sort": """

>>> sf.sort(sf.tensor([3, 1, 2]))
scaffolding.return_types.sort(
values=tensor([1, 2, 3]),
indices=tensor([1, 2, 0]))""",
    "topk": """

>>> sf.topk(sf.tensor([1., 9., 5.]), 2)
scaffolding.return_types.topk(
values=tensor([9., 5.]),
indices=tensor([1, 2]))""",
    "kthvalue": """

>>> sf.kthvalue(sf.tensor([30, 10, 20]), 2)
scaffolding.return_types.kthvalue(
values=tensor(20),
indices=tensor(2))""",
    "cummax": """

>>> sf.cummax(sf.tensor([1, 3, 2]), 0)
scaffolding.return_types.cummax(
values=tensor([1, 3, 3]),
indices=tensor([0, 1, 1]))""",
    "cummin": """

>>> sf.cummin(sf.tensor([3, 1, 2]), 0)
scaffolding.return_types.cummin(
values=tensor([3, 1, 1]),
indices=tensor([0, 1, 1]))""",
    "mode": """

>>> sf.mode(sf.tensor([1, 2, 2, 3]))
scaffolding.return_types.mode(
values=tensor(2),
indices=tensor(2))""",
    "max": """

>>> sf.max(sf.tensor([[1., 5.], [7., 2.]]))
tensor(7.)
>>> sf.max(sf.tensor([[1., 5.], [7., 2.]]), dim=1)
scaffolding.return_types.max(
values=tensor([5., 7.]),
indices=tensor([1, 0]))""",
    "min": """

>>> sf.min(sf.tensor([[1., 5.], [7., 2.]]), dim=1)
scaffolding.return_types.min(
values=tensor([1., 2.]),
indices=tensor([0, 1]))""",
    "median": """

>>> sf.median(sf.tensor([1., 9., 5.]))
tensor(5.)""",
    "nanmedian": """

>>> sf.nanmedian(sf.tensor([1., sf.nan, 5., 9.]))
tensor(5.)""",
    "var": """

>>> sf.var(sf.tensor([1., 2., 3.]))
tensor(1.)""",
    "std": """

>>> sf.std(sf.tensor([1., 2., 3.]))
tensor(1.)""",
    "var_mean": """

>>> sf.var_mean(sf.tensor([1., 2., 3.]))
(tensor(1.), tensor(2.))""",
    "std_mean": """

>>> sf.std_mean(sf.tensor([1., 2., 3.]))
(tensor(1.), tensor(2.))""",
}


def _named(name, values):
    return _RESULTS[name](values)


def _name_results(name, op):
    def call(input, *args, **kwargs):
        return _named(name, op(input, *args, **kwargs))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = op._text + "\n\nArgs:\n    input: the tensor that is worked on" + _EXAMPLES[name]
    globals()[name] = _export(call)


for _name in ("sort", "topk", "kthvalue", "cummax", "cummin", "mode"):
    if _op(_name):
        _name_results(_name, _op(_name))


# ---- max, min and other reductions


def _extremum(name, reduce_all, along, elementwise):
    def extremum(input, dim=None, keepdim=False, *, other=None):
        if isinstance(dim, Tensor):
            dim, other = None, dim
        if other is not None:
            return getattr(_core, elementwise)(input, other)
        if dim is None:
            return getattr(_core, reduce_all)(input)
        return _named(name, getattr(_core, along)(input, dim, keepdim))

    extremum.__name__ = extremum.__qualname__ = name
    extremum.__doc__ = (
        f"{name}(input): the {name}imum of all elements. {name}(input, dim, keepdim=False): values and indices along "
        "dim.\n"
        f"{name}(input, other): elementwise, as {elementwise}."
        "\n\nArgs:\n    input, other: tensors that broadcast with each other\n    dim: the dimension along which"
        "\n    keepdim: whether dim stays, with one entry" + _EXAMPLES[name]
    )
    return _export(extremum)


max = _extremum("max", "amax", "max_dim", "maximum")
min = _extremum("min", "amin", "min_dim", "minimum")


def _middle(name):
    def middle(input, dim=None, keepdim=False):
        if dim is None:
            return getattr(_core, name)(input)
        return _named(name, getattr(_core, name + "_dim")(input, dim, keepdim))

    middle.__name__ = middle.__qualname__ = name
    middle.__doc__ = (
        f"{name}(input): {getattr(_core, name)._text.split(chr(10))[-1]}\n"
        f"{name}(input, dim, keepdim=False): values and indices along dim."
        "\n\nArgs:\n    input: the tensor that is worked on\n    dim: the dimension along which"
        "\n    keepdim: whether dim stays, with one entry" + _EXAMPLES[name]
    )
    return _export(middle)


median = _middle("median")
nanmedian = _middle("nanmedian")


@_export
def aminmax(input, *, dim=None, keepdim=False):
    """The smallest and the largest element of input along dim (of all without it), as min and max. keepdim: whether dim
    stays, with one entry.

    >>> sf.aminmax(sf.tensor([3., 1., 2.]))
    scaffolding.return_types.aminmax(
    min=tensor(1.),
    max=tensor(3.))
    """
    return _named("aminmax", _core.aminmax(input, dim, keepdim))


def _variance(name):
    def variance(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        elif unbiased is not None:
            raise TypeError(f"{name}: give unbiased or correction, not both")
        return op(input, dim=dim, correction=correction, keepdim=keepdim)

    op = _op(name)
    if op is None:
        return None
    variance.__name__ = variance.__qualname__ = name
    variance.__doc__ = (
        op._text + "\n\nArgs:\n    input: the tensor that is worked on\n    dim: one or several dimensions"
        "\n    keepdim: whether they stay, with one entry each\n    correction: subtracted from the count"
        "\n    unbiased: True is correction=1, False correction=0" + _EXAMPLES[name]
    )
    return _export(variance)


var = _variance("var")
std = _variance("std")
var_mean = _variance("var_mean")
std_mean = _variance("std_mean")


if _op("norm"):

    @_export
    def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
        """The p-norm of input over dim (all without it), computed in dtype; "fro" is the 2-norm. keepdim: whether
        dimensions stay, with one entry each.

        >>> sf.norm(sf.tensor([3., 4.]))
        tensor(5.)
        """
        if p is None or p == "fro":
            p = 2.0
        return _core.norm(input, float(p), dim, keepdim, dtype)


# ---- other joins; _second_form gives an op a Python function for calls that do not fit its own parameters


def _second_form(name):
    def register(function):
        op = _op(name)
        if op is not None:
            _core._set_second_form(op, function)
        return function

    return register


def _positions(input):
    return _core.nonzero(input.reshape(1) if input.dim() == 0 else input).unbind(1)


@_second_form("where")
def _where(condition, input=None, other=None):
    if input is None and other is None:
        return _positions(condition)
    raise TypeError("where: takes (condition, input, other) or (condition)")


@_second_form("round")
def _round(input, decimals=0):
    if decimals < 0:
        return _core.round(input / 10.0**-decimals) * 10.0**-decimals
    return _core.round(input * 10.0**decimals) / 10.0**decimals


@_second_form("view")
def _view(input, dtype):
    return _core._view_dtype(input, dtype)


@_second_form("clamp")
def _clamp(input, min=None, max=None):
    result = input if min is None else _core.maximum(input, min)
    return result if max is None else _core.minimum(result, max)


@_second_form("masked_fill")
def _masked_fill(input, mask, value):
    if not isinstance(value, Tensor) or value.dim() > 0:
        return _core.masked_fill(input, mask, value)  # which says what is wrong
    return _core.where(mask, value.to(input.dtype), input)


_second_form("clamp_")(in_place(_clamp))
_second_form("masked_fill_")(in_place(_masked_fill))


_SCATTERED = {"add": "sum", "multiply": "prod"}


@_second_form("scatter")
def _scatter(input, dim, index, src=None, value=None, reduce=None):
    src = value if src is None else src
    if reduce is None:
        return _core.scatter(input, dim, index, src)
    if reduce not in _SCATTERED:
        raise ValueError(f"scatter: reduce must be 'add' or 'multiply', got {reduce!r}")
    if not isinstance(src, Tensor):
        src = _core.full_like(input, src).take_along_dim(_core.zeros_like(index), dim)
    return _core.scatter_reduce(input, dim, index, src, _SCATTERED[reduce])


@_second_form("nonzero")
def _nonzero(input, as_tuple=False):
    return _positions(input) if as_tuple else _core.nonzero(input)


@_second_form("pow")
def _pow(input, exponent):
    return _core.pow(input, exponent)


@_second_form("squeeze")
def _squeeze(input, *dim):
    return _core.squeeze(input, dim)


if _op("unfold_dim"):
    Tensor.unfold = _core.unfold_dim  # torch's method is another function than its nn.functional.unfold


# ---- unique, which returns as many tensors as are asked for


def _one_or_more(tensors):
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


@_export
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different elements (with dim: slices) in order; on demand also where each element of input is among them
    (input's shape, or [n] with dim), and how often each is there. Always sorted.

    Args:
        sorted: changes nothing
        return_inverse, return_counts: whether those are returned too
        dim: of the slices; None: elements

    >>> sf.unique(sf.tensor([2, 1, 2]), return_counts=True)
    (tensor([1, 2]), tensor([1, 2]))
    """
    return _one_or_more(_core.unique(input, sorted, return_inverse, return_counts, dim))


@_export
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Of each run of input's equal elements (with dim: slices) one; return_inverse and return_counts as in unique.

    >>> sf.unique_consecutive(sf.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    return _one_or_more(_core.unique_consecutive(input, return_inverse, return_counts, dim))


def where(self, condition, other):
    """self where condition holds, else other."""
    return _core.where(condition, self, other)


Tensor.where = where
del where


@_function
def meshgrid(*tensors, indexing="ij"):
    """Coordinates of a grid: one tensor per input, each with as many dimensions as there are inputs.
    indexing: "ij", the first input runs along dimension 0, or "xy", along dimension 1.

    >>> rows, columns = sf.meshgrid(sf.arange(2), sf.arange(3), indexing="ij")
    >>> rows
    tensor([[0, 0, 0],
            [1, 1, 1]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return _core.meshgrid(list(tensors), indexing)


@_function
def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes broadcast to.

    >>> sf.broadcast_shapes((2, 1), (1, 3))
    scaffolding.Size([2, 3])
    """
    return _core._broadcast_shapes([(s,) if isinstance(s, int) else tuple(s) for s in shapes])


@_function
def broadcast_tensors(*tensors):
    """The tensors expanded to their common shape, without a copy.

    >>> a, b = sf.broadcast_tensors(sf.zeros(2, 1), sf.zeros(3))
    >>> a.shape, b.shape
    (scaffolding.Size([2, 3]), scaffolding.Size([2, 3]))
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


@_export
def broadcast_to(input, size):
    """input expanded to size, without a copy.

    >>> sf.broadcast_to(sf.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return input.expand(size)


@_export
def t(input):
    """The matrix input transposed; vectors and scalars as they are.

    >>> sf.t(sf.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    if input.dim() > 2:
        raise ValueError(f"t: needs at most two dimensions, got shape {list(input.shape)}")
    return input if input.dim() < 2 else _core.transpose(input, 0, 1)


@_export
def numel(input):
    """The number of input's elements.

    >>> sf.numel(sf.zeros(2, 3))
    6
    """
    return input.nelement()


del Tensor.numel  # the C++ method, set again below
Tensor.numel = Tensor.nelement


@_function
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """obj (a number, nested sequences, an array, a tensor, also of another library) as a tensor. copy: True for memory
    of its own, False for obj's memory or a ValueError, None for obj's where that is possible.

    Args:
        dtype: of the tensor; None: obj's
        device: where it lies; None: obj's, or the default one
        requires_grad: whether gradients are recorded for it

    >>> sf.asarray([1, 2], dtype=sf.float32)
    tensor([1., 2.])
    """
    tensor = _core.as_tensor(obj, dtype=dtype, device=device)
    if copy:
        tensor = _core.tensor(tensor)  # of its own, off the tape
    elif copy is False:
        shared = _core.as_tensor(obj)
        if shared.data_ptr() != tensor.data_ptr() or _core.as_tensor(obj).data_ptr() != shared.data_ptr():
            raise ValueError("asarray: copy=False, but obj's memory cannot be used with this dtype and device")
    if requires_grad and not tensor.requires_grad:
        tensor = tensor.detach().requires_grad_()
    return tensor


# ---- comparing


@_export
def equal(input, other):
    """Whether input and other have the same shape and elements.

    >>> sf.equal(sf.tensor([1, 2]), sf.tensor([1, 2]))
    True
    """
    return input.shape == other.shape and bool(_core.eq(input, other).long().sum().item() == input.nelement())


@_export
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """|input - other| <= atol + rtol * |other|, elementwise; equal infinities are close, with equal_nan NaNs too.

    >>> sf.isclose(sf.tensor([1., 2.]), sf.tensor([1., 2.1]))
    tensor([ True, False])
    """
    with _NoGrad():
        close = _core.eq(input, other)
        if input.is_floating_point():
            difference, allowed = (input - other).abs(), atol + rtol * other.abs()
            finite = other.abs() < math.inf
            close = close | ((difference <= allowed) & finite)
            if equal_nan:
                close = close | ((input != input) & (other != other))
        elif rtol or atol:
            a, b = input.double(), other.double()
            close = (a - b).abs() <= atol + rtol * b.abs()
        return close


@_export
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements of input and other are close by rtol, atol and equal_nan: see isclose.

    >>> sf.allclose(sf.tensor([1.0]), sf.tensor([1.0 + 1e-6]))
    True
    """
    close = isclose(input, other, rtol, atol, equal_nan)
    return bool(close.long().sum().item() == close.nelement())


class _NoGrad:
    def __enter__(self):
        self._before = _core._set_grad_enabled(False)

    def __exit__(self, *_):
        _core._set_grad_enabled(self._before)


# ---- torch's second names

_ALIASES = {
    "absolute": "abs",
    "arctan2": "atan2",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "moveaxis": "movedim",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "trapz": "trapezoid",
    "true_divide": "div",
}
for _alias, _name in _ALIASES.items():
    for _suffix in ("", "_"):
        _op_found = _op(_name + _suffix)
        if _op_found is None or _op(_alias + _suffix) is not None:
            continue
        globals()[_alias + _suffix] = _op_found
        __all__.append(_alias + _suffix)
        if hasattr(Tensor, _name + _suffix):
            setattr(Tensor, _alias + _suffix, _op_found)
