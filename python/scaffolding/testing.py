"""Comparisons for tests, as torch.testing has them."""

import collections.abc
import math

from . import _core
from ._core import Tensor
from ._missing import help_modules
from ._overloads import isclose

__all__ = ["assert_close"]

# (rtol, atol) of a dtype, torch.testing's; others must be equal.
_TOLERANCES = {
    _core.float16: (1e-3, 1e-5),
    _core.bfloat16: (1.6e-2, 1e-5),
    _core.float32: (1.3e-6, 1e-5),
    _core.float64: (1e-7, 1e-7),
}


class _Mismatch(Exception):
    pass


def _at(path):
    return f"\n\nThe failure occurred for item {''.join(f'[{p!r}]' for p in path)}" if path else ""


def _default_tolerances(*dtypes):
    known = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(r for r, _ in known), max(a for _, a in known)


def _number(value):
    return isinstance(value, (bool, int, float))


def _place(flat, shape):
    index = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        index.append(rest)
    return tuple(reversed(index))


def _compare_tensors(actual, expected, how):
    rtol, atol, equal_nan, check_device, check_dtype, check_stride = how
    for name, asked, a, e in (
        ("shape", True, actual.shape, expected.shape),
        ("device", check_device, actual.device, expected.device),
        ("dtype", check_dtype, actual.dtype, expected.dtype),
        ("stride()", check_stride, actual.stride(), expected.stride()),
    ):
        if asked and a != e:
            raise _Mismatch(f"The values for attribute '{name}' do not match: {a!r} != {e!r}.")
    if rtol is None:
        rtol, atol = _default_tolerances(actual.dtype, expected.dtype)
    dtype = _core.promote_types(actual.dtype, expected.dtype)
    if not dtype.is_floating_point or dtype.itemsize == 1:  # no arithmetic in bool and float8
        dtype = _core.float32 if dtype.is_floating_point else _core.int64
    a, e = (x.detach().cpu().to(dtype) for x in (actual, expected))
    close = isclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan)
    wrong = int((~close).sum().item())
    if wrong == 0:
        return
    if not a.shape:
        raise _scalars_differ(actual.item(), expected.item(), rtol, atol)
    absolute = (a - e).abs()
    lines = []
    for name, difference, allowed in (("absolute", absolute, atol), ("relative", absolute / e.abs(), rtol)):
        flat = _core.where(close, _core.zeros_like(difference), difference).reshape(-1)
        place = int(flat.argmax().item())  # a NaN is the greatest
        up_to = f" (up to {allowed} allowed)" if rtol or atol else ""
        lines.append(f"Greatest {name} difference: {flat[place].item()} at index {_place(place, a.shape)}{up_to}")
    raise _Mismatch(
        f"Tensor-likes are not {'close' if rtol or atol else 'equal'}!\n\n"
        f"Mismatched elements: {wrong} / {a.numel()} ({wrong / a.numel():.1%})\n" + "\n".join(lines)
    )


def _scalars_differ(actual, expected, rtol, atol):
    difference = abs(actual - expected)
    relative = difference / abs(expected) if expected else math.inf
    up_to = [f" (up to {allowed} allowed)" if rtol or atol else "" for allowed in (atol, rtol)]
    return _Mismatch(
        f"Scalars are not {'close' if rtol or atol else 'equal'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{up_to[0]}\nRelative difference: {relative}{up_to[1]}"
    )


def _compare_numbers(actual, expected, how):
    rtol, atol, equal_nan, _, check_dtype, _ = how
    if isinstance(actual, bool) and isinstance(expected, bool):
        if actual is not expected:
            raise _Mismatch(f"Booleans mismatch: {actual} is not {expected}")
        return
    if check_dtype and type(actual) is not type(expected):
        raise _Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    if rtol is None:
        floating = isinstance(actual, float) or isinstance(expected, float)
        rtol, atol = _TOLERANCES[_core.float64] if floating else (0.0, 0.0)
    if actual == expected or (equal_nan and actual != actual and expected != expected):
        return
    difference = abs(actual - expected)
    if not (math.isfinite(difference) and difference <= atol + rtol * abs(expected)):
        raise _scalars_differ(actual, expected, rtol, atol)


def _compare(actual, expected, how, path):
    """Raises _Mismatch whose text says where."""
    try:
        if isinstance(actual, Tensor) and isinstance(expected, Tensor):
            return _compare_tensors(actual, expected, how)
        if actual is None or expected is None:
            if actual is not expected:
                raise _Mismatch(f"None mismatch: {actual} is not {expected}")
            return None
        if _number(actual) and _number(expected):
            return _compare_numbers(actual, expected, how)
    except _Mismatch as e:
        raise _Mismatch(f"{e}{_at(path)}") from None
    if isinstance(actual, collections.abc.Mapping) and isinstance(expected, collections.abc.Mapping):
        if actual.keys() != expected.keys():
            raise _Mismatch(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(expected.keys() - actual.keys(), key=str)}\n"
                f"Additional keys in the actual mapping: {sorted(actual.keys() - expected.keys(), key=str)}{_at(path)}"
            )
        for key in expected:
            _compare(actual[key], expected[key], how, (*path, key))
        return None
    sequence = collections.abc.Sequence
    if all(isinstance(x, sequence) and not isinstance(x, (str, bytes)) for x in (actual, expected)):
        if len(actual) != len(expected):
            raise _Mismatch(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{_at(path)}")
        for i, (a, e) in enumerate(zip(actual, expected)):
            _compare(a, e, how, (*path, i))
        return None
    raise TypeError(
        "assert_close: compares tensors with tensors, numbers with numbers, None, sequences and mappings of them, got "
        f"{type(actual).__name__} and {type(expected).__name__}; sf.tensor makes one of numbers and arrays{_at(path)}"
    )


def assert_close(
    actual,
    expected,
    *,
    allow_subclasses=True,
    rtol=None,
    atol=None,
    equal_nan=False,
    check_device=True,
    check_dtype=True,
    check_layout=True,
    check_stride=False,
    msg=None,
):
    """Raises AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere, as torch.testing does.

    Takes tensors of one shape, numbers, None, and sequences and mappings of them. rtol and atol are given both or not
    at all; absent they follow the dtype: 1.3e-6 and 1e-5 of float32, 1e-7 and 1e-7 of float64 and of Python's floats,
    1e-3 and 1e-5 of float16, 1.6e-2 and 1e-5 of bfloat16, 0 of all others; of two dtypes the greater. NaN equals NaN
    with equal_nan alone. check_device, check_dtype and check_stride compare those too; every layout here is strided:
    check_layout changes nothing. allow_subclasses=False: both are of one class.
    msg is the error's text, or a function of the text that it would have.

    >>> sf.testing.assert_close(sf.tensor([1.0, 2.0]), sf.tensor([1.0, 2.0 + 1e-6]))
    >>> sf.testing.assert_close({"a": [1, None]}, {"a": [1, None]})
    """
    del check_layout
    if (rtol is None) != (atol is None):
        raise ValueError(f"assert_close: rtol and atol are given both or not at all, got rtol={rtol} and atol={atol}")
    if rtol is not None and not (rtol >= 0 and atol >= 0):
        raise ValueError(f"assert_close: rtol and atol must not be negative, got {rtol} and {atol}")
    if not allow_subclasses and isinstance(actual, Tensor) and type(actual) is not type(expected):
        raise TypeError(f"assert_close: {type(actual).__name__} and {type(expected).__name__} are different types")
    try:
        _compare(actual, expected, (rtol, atol, equal_nan, check_device, check_dtype, check_stride), ())
    except _Mismatch as e:
        text = str(e)
    else:
        return
    raise AssertionError(text if msg is None else msg(text) if callable(msg) else msg)


help_modules()
