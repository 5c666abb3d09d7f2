"""Elementwise functions that are a few other ops: inverse and hyperbolic functions, angles, signs, integers.

Gradients are those of the ops they are made of. 16-bit floats are computed in float32 and rounded once; integers
become the default dtype. NAME_ writes over self.
"""

import functools
import math

from . import _core
from ._compositions import exporter, in_place
from ._core import Tensor
from ._overloads import _named, broadcast_tensors

__all__ = []
_export, _function = exporter(__all__)


def _with_alias(*aliases):
    """Also under other names, NAME_ for each."""

    def decorate(function):
        over_self = in_place(function)
        for name in (function.__name__, *aliases):
            for what, suffix in ((function, ""), (over_self, "_")):
                __all__.append(name + suffix)
                setattr(Tensor, name + suffix, what)
                globals()[name + suffix] = what
        return function

    return decorate


def _of_floats(function):
    """Takes integers as the default dtype and computes 16-bit floats in float32."""

    @functools.wraps(function)
    def compute(input, *args, **kwargs):
        dtype = input.dtype
        if not dtype.is_floating_point:
            return function(input.to(_core.get_default_dtype()), *args, **kwargs)
        if dtype in (_core.bfloat16, _core.float16):
            return function(input.float(), *args, **kwargs).to(dtype)
        return function(input, *args, **kwargs)

    return compute


# ---- inverse trigonometric functions, in radians


@_with_alias("arcsin")
@_of_floats
def asin(input):
    """The angle in [-pi/2, pi/2] whose sine is input; nan outside [-1, 1].

    >>> sf.asin(sf.tensor([0., 1.]))
    tensor([0.0000, 1.5708])
    """
    return _core.atan2(input, _core.sqrt((1 - input) * (1 + input)))


@_with_alias("arccos")
@_of_floats
def acos(input):
    """The angle in [0, pi] whose cosine is input; nan outside [-1, 1].

    >>> sf.acos(sf.tensor([1., 0.]))
    tensor([0.0000, 1.5708])
    """
    return _core.atan2(_core.sqrt((1 - input) * (1 + input)), input)


@_with_alias("arctan")
@_of_floats
def atan(input):
    """The angle in (-pi/2, pi/2) whose tangent is input.

    >>> sf.atan(sf.tensor([0., 1.]))
    tensor([0.0000, 0.7854])
    """
    return _core.atan2(input, _core.ones_like(input))


# ---- hyperbolic functions and their inverses


@_with_alias()
@_of_floats
def sinh(input):
    """(exp(input) - exp(-input)) / 2, as exact near 0 as elsewhere.

    >>> sf.sinh(sf.tensor([0., 1.]))
    tensor([0.0000, 1.1752])
    """
    return (_core.expm1(input) - _core.expm1(-input)) / 2


@_with_alias()
@_of_floats
def cosh(input):
    """(exp(input) + exp(-input)) / 2.

    >>> sf.cosh(sf.tensor([0., 1.]))
    tensor([1.0000, 1.5431])
    """
    return (_core.exp(input) + _core.exp(-input)) / 2


@_with_alias("arcsinh")
@_of_floats
def asinh(input):
    """log(input + sqrt(input^2 + 1)).

    >>> sf.asinh(sf.tensor([0., 1.]))
    tensor([0.0000, 0.8814])
    """
    below = input < 0
    a = _core.where(below, -input, input)  # not abs, whose gradient at 0 is 0
    y = _core.log1p(a + a * (a / (1 + _core.hypot(a, _core.ones_like(a)))))
    y = _core.where(_core.isinf(a), a, y)
    return _core.where(below, -y, y)


@_with_alias("arccosh")
@_of_floats
def acosh(input):
    """log(input + sqrt(input^2 - 1)); nan below 1.

    >>> sf.acosh(sf.tensor([1., 2.]))
    tensor([0.0000, 1.3170])
    """
    t = input - 1
    return _core.log1p(t + _core.sqrt(t) * _core.sqrt(t + 2))


@_with_alias("arctanh")
@_of_floats
def atanh(input):
    """log((1 + input) / (1 - input)) / 2; nan outside [-1, 1].

    >>> sf.atanh(sf.tensor([0., 0.5]))
    tensor([0.0000, 0.5493])
    """
    return (_core.log1p(input) - _core.log1p(-input)) / 2


# ---- angles, logarithms, powers


@_with_alias()
@_of_floats
def deg2rad(input):
    """Degrees, input, as radians.

    >>> sf.deg2rad(sf.tensor([0., 180.]))
    tensor([0.0000, 3.1416])
    """
    return input * (math.pi / 180)


@_with_alias()
@_of_floats
def rad2deg(input):
    """Radians, input, as degrees.

    >>> sf.rad2deg(sf.tensor([0., sf.pi]))
    tensor([  0., 180.])
    """
    return input * (180 / math.pi)


@_with_alias()
@_of_floats
def sinc(input):
    """sin(pi input) / (pi input), 1 at 0.

    >>> sf.sinc(sf.tensor([0., 0.5]))
    tensor([1.0000, 0.6366])
    """
    angle = input * math.pi
    # Near 0 the gradient of the quotient would be a difference of equal numbers: the series, exact below 0.1.
    near = _core.abs(angle) < 0.1
    t = _core.where(near, angle, 0.0) ** 2
    series = 1 + t * (-1 / 6 + t * (1 / 120 + t * (-1 / 5040 + t / 362880)))
    angle = _core.where(near, 1.0, angle)
    return _core.where(near, series, _core.sin(angle) / angle)


@_with_alias()
@_of_floats
def log10(input):
    """The logarithm of input to base 10, exact for powers of ten: float32 is computed in float64.

    >>> sf.log10(sf.tensor([1., 1000.]))
    tensor([0., 3.])
    """
    return (_core.log(input.double()) / math.log(10)).to(input.dtype)


@_with_alias()
@_of_floats
def logit(input, eps=None):
    """log(input / (1 - input)); with eps, input is first clamped to [eps, 1 - eps], otherwise nan outside [0, 1].

    >>> sf.logit(sf.tensor([0.5, 0.9]))
    tensor([0.0000, 2.1972])
    """
    if eps is not None:
        input = _core.clamp(input, eps, 1 - eps)
    return _core.log(input / (1 - input))


def _of_one_type(input, other):
    dtype = _core.result_type(input, other)
    return [x.to(dtype) for x in broadcast_tensors(input, other)]


def _floating_type(input, other):
    dtype = _core.result_type(input, other)
    return dtype if dtype.is_floating_point else _core.get_default_dtype()


@_export
def logaddexp2(input, other):
    """log2(2^input + 2^other).

    >>> sf.logaddexp2(sf.tensor([100.]), sf.tensor([100.]))
    tensor([101.])
    """
    dtype = _floating_type(input, other)
    return _core.logaddexp(input.to(dtype) * math.log(2), other.to(dtype) * math.log(2)) / math.log(2)


@_with_alias()
def float_power(input, exponent):
    """input to the power of exponent in float64; either may be a number.

    >>> sf.float_power(sf.tensor([2, 3]), 2)
    tensor([4., 9.], dtype=scaffolding.float64)
    """
    if not isinstance(input, Tensor):
        input = _core.full((), float(input), dtype=_core.float64, device=exponent.device)
    return _core.pow(input.double(), exponent.double() if isinstance(exponent, Tensor) else float(exponent))


@_with_alias()
def ldexp(input, other):
    """input * 2^other.

    >>> sf.ldexp(sf.tensor([1., 3.]), sf.tensor([4, -1]))
    tensor([16.0000,  1.5000])
    """
    dtype = _floating_type(input, other)
    wide = _core.promote_types(dtype, _core.float32)  # a power of two may be out of 16 bits where the result is not
    return (input.to(wide) * _core.exp2(other.to(wide))).to(dtype)


def _special(name, of, doc):
    """A function of scaffolding.special, which is imported when it is first called."""

    def call(input, *args):
        from . import special

        return getattr(special, of)(input, *args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return _with_alias()(call)


_special(
    "erfc",
    "erfc",
    """1 - erf(input), exact where that is small.

>>> sf.erfc(sf.tensor([0., 1.]))
tensor([1.0000, 0.1573])""",
)
_special(
    "erfinv",
    "erfinv",
    """The number whose erf is input; nan outside [-1, 1].

>>> sf.erfinv(sf.tensor([0., 0.5]))
tensor([0.0000, 0.4769])""",
)
_special(
    "lgamma",
    "gammaln",
    """The logarithm of the absolute value of the gamma function at input.

>>> sf.lgamma(sf.tensor([1., 5.]))
tensor([0.0000, 3.1781])""",
)
_special(
    "digamma",
    "digamma",
    """The derivative of lgamma at input; nan at negative whole numbers.

>>> sf.digamma(sf.tensor([1., 2.]))
tensor([-0.5772,  0.4228])""",
)
_special(
    "mvlgamma",
    "multigammaln",
    """The logarithm of the multivariate gamma function of dimension p at input.

>>> sf.mvlgamma(sf.tensor([2., 3.]), 2)
tensor([0.4516, 1.5502])""",
)
_special(
    "i0",
    "i0",
    """The modified Bessel function of the first kind, of order 0, at input.

>>> sf.i0(sf.tensor([0., 1.]))
tensor([1.0000, 1.2661])""",
)


@_function
def polygamma(n, input):
    """The derivative of order n of digamma(input); n: a whole number from 0 on.

    >>> sf.polygamma(1, sf.tensor([1., 2.]))
    tensor([1.6449, 0.6449])
    """
    from . import special

    return special.polygamma(n, input)


Tensor.polygamma = lambda self, n: polygamma(n, self)
Tensor.polygamma_ = lambda self, n: self.copy_(polygamma(n, self.clone() if self.requires_grad else self))


# ---- the parts of a floating number: {dtype: (the integers of its size, bits of the fraction, bias of the exponent)}

_LAYOUT = {_core.float32: (_core.int32, 23, 127), _core.float64: (_core.int64, 52, 1023)}


def _layout(name, dtype):
    if dtype not in _LAYOUT:
        raise TypeError(f"{name}: needs float32 or float64, got {dtype}; convert the tensor first")
    return _LAYOUT[dtype]


@_export
def frexp(input):
    """(mantissa, exponent as int32): input = mantissa * 2^exponent, mantissa in [0.5, 1) but for its sign; 0, inf and
    nan have exponent 0.

    >>> sf.frexp(sf.tensor([8., 3.]))
    scaffolding.return_types.frexp(
    mantissa=tensor([0.5000, 0.7500]),
    exponent=tensor([4, 2], dtype=scaffolding.int32))
    """
    if input.dtype in (_core.bfloat16, _core.float16):
        mantissa, exponent = frexp(input.float())
        return _named("frexp", (mantissa.to(input.dtype), exponent))
    integers, fraction, bias = _layout("frexp", input.dtype)

    def power(exponent):  # 2^exponent, not beyond what is normal
        return (exponent + bias).to(integers).bitwise_left_shift(fraction).view(input.dtype)

    x = input.detach()
    tiny = _core.abs(x) < _core.finfo(input.dtype).tiny
    bits = _core.where(tiny, x * 2.0 ** (fraction + 1), x).contiguous().view(integers)
    exponent = bits.bitwise_right_shift(fraction).bitwise_and(2 * bias + 1) - (bias - 1)
    exponent = _core.where(tiny, exponent - (fraction + 1), exponent)
    exponent = _core.where((x == 0) | ~_core.isfinite(x), _core.zeros_like(exponent), exponent)
    half = exponent.bitwise_right_shift(1)
    return _named("frexp", (input * power(-half) * power(half - exponent), exponent.to(_core.int32)))


@_with_alias()
def nextafter(input, other):
    """The number next to input towards other. No gradient.

    >>> sf.nextafter(sf.tensor([1.]), sf.tensor([2.])) > 1
    tensor([True])
    """
    if _core.is_grad_enabled() and (input.requires_grad or other.requires_grad):
        raise RuntimeError("nextafter: has no gradient; call it on x.detach()")
    input, other = _of_one_type(input, other)
    integers, _, _ = _layout("nextafter", input.dtype)
    bits = input.contiguous().view(integers)
    away = (input < other) == (input > 0)
    moved = _core.where(away, bits + 1, bits - 1).view(input.dtype)
    least = _core.copysign(_core.ones_like(bits).view(input.dtype), other)
    moved = _core.where(input == 0, least, moved)
    moved = _core.where(input == other, other, moved)
    return _core.where(_core.isnan(input) | _core.isnan(other), _core.full_like(input, math.nan), moved)


# ---- signs


@_with_alias()
def sgn(input):
    """-1, 0 or 1 as input is below, at or above 0: sign, for numbers that are not complex.

    >>> sf.sgn(sf.tensor([-3., 0., 2.]))
    tensor([-1.,  0.,  1.])
    """
    return _core.sign(input)


@_export
def angle(input):
    """The angle of input in the complex plane, in radians: pi below 0, otherwise 0; nan of nan. No gradient flows.

    >>> sf.angle(sf.tensor([2., -1.]))
    tensor([0.0000, 3.1416])
    """
    x = input.detach() if input.dtype.is_floating_point else input.to(_core.get_default_dtype())
    y = _core.where(x < 0, _core.full_like(x, math.pi), _core.zeros_like(x))
    return _core.where(_core.isnan(x), x, y)


@_function
def real(input):
    """input itself: its numbers are real."""
    return input


@_export
def conj(input):
    """input itself: its numbers are real."""
    return input


@_export
def resolve_conj(input):
    """input itself: its numbers are real."""
    return input


@_export
def is_conj(input):
    """False whatever input is: no dtype here is complex."""
    return False


@_function
def typename(obj):
    """The name of obj's type with its module; of a tensor that of its dtype: "scaffolding.FloatTensor".

    >>> sf.typename(sf.zeros(1))
    'scaffolding.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    return f"{named.__module__}.{named.__qualname__}".removeprefix("builtins.")


@_export
def signbit(input):
    """Whether input's sign is minus, which -0.0 has too.

    >>> sf.signbit(sf.tensor([-1., 0., 2.]))
    tensor([ True, False, False])
    """
    if not input.dtype.is_floating_point:
        return input < 0
    return _core.copysign(_core.ones_like(input), input) < 0


@_export
def positive(input):
    """input itself; a TypeError for bool."""
    if input.dtype is _core.bool:
        raise TypeError("positive: booleans have no sign; cast them first")
    return input


@_export
def isneginf(input):
    """Where input is minus infinity.

    >>> sf.isneginf(sf.tensor([-sf.inf, sf.inf, 0.]))
    tensor([ True, False, False])
    """
    return input == -math.inf if input.dtype.is_floating_point else _core.zeros_like(input, dtype=_core.bool)


@_export
def isposinf(input):
    """Where input is plus infinity.

    >>> sf.isposinf(sf.tensor([-sf.inf, sf.inf, 0.]))
    tensor([False,  True, False])
    """
    return input == math.inf if input.dtype.is_floating_point else _core.zeros_like(input, dtype=_core.bool)


@_export
def isreal(input):
    """True for all of input: no dtype here is complex."""
    return _core.ones_like(input, dtype=_core.bool)


@_export
def is_nonzero(input):
    """Whether input's one element is not 0.

    >>> sf.is_nonzero(sf.tensor([2.5]))
    True
    """
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: needs one element, got shape {list(input.shape)}")
    return bool(input.item() != 0)


@_function
def is_complex(input):
    """False whatever input is: no dtype here is complex."""
    return False


@_function
def is_signed(input):
    """Whether input's dtype has negative numbers.

    >>> sf.is_signed(sf.zeros(1, dtype=sf.uint8))
    False
    """
    return input.dtype not in (_core.bool, _core.uint8)


# ---- integers


def _integers(name, input, other):
    for tensor in (input, other):
        if tensor.dtype.is_floating_point or tensor.dtype is _core.bool:
            raise TypeError(f"{name}: needs integers, got {tensor.dtype}")
    return [_core.abs(x) for x in _of_one_type(input, other)]


def _divisor(a, b):
    while bool(_core.any(b != 0)):
        rest = _core.remainder(a, _core.where(b == 0, _core.ones_like(b), b))
        a, b = _core.where(b == 0, a, b), _core.where(b == 0, b, rest)
    return a


@_with_alias()
def gcd(input, other):
    """The greatest common divisor of input and other, integers, not negative; gcd(0, 0) is 0.

    >>> sf.gcd(sf.tensor([12, 7]), sf.tensor([18, 21]))
    tensor([6, 7])
    """
    return _divisor(*_integers("gcd", input, other))


@_with_alias()
def lcm(input, other):
    """The least common multiple of input and other, integers, not negative; 0 where one of them is 0.

    >>> sf.lcm(sf.tensor([4, 5]), sf.tensor([6, 10]))
    tensor([12, 10])
    """
    a, b = _integers("lcm", input, other)
    divisor = _divisor(a, b)
    return _core.floor_divide(a, _core.where(divisor == 0, _core.ones_like(divisor), divisor)) * b


# ---- a Python function of every element


def _write(name, self, values):
    if self.requires_grad:
        raise RuntimeError(f"{name}: has no gradient; call it on x.detach()")
    return self.copy_(_core.tensor(values, dtype=self.dtype, device=self.device).reshape(self.shape))


def apply_(self, callable):
    """self with callable(element) for each element, in place: slow, one call of Python for each."""
    return _write("apply_", self, [callable(value) for value in self.flatten().tolist()])


def map_(self, tensor, callable):
    """self with callable(element, element of tensor) for each element, in place; tensor broadcasts to self's shape."""
    others = tensor.expand(self.shape).flatten().tolist()
    return _write("map_", self, [callable(a, b) for a, b in zip(self.flatten().tolist(), others)])


Tensor.apply_ = apply_
Tensor.map_ = map_
