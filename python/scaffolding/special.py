"""torch.special: functions of statistics and physics. Those that sf has too are the same.

Made of other ops: float32 is computed in float64 and rounded once, 16-bit floats and integers as float32. Their
gradients are exact, and have gradients of their own.
"""

import functools
import math

from . import _core, _elementwise
from ._missing import help_modules
from .autograd.function import Function
from .nn import functional

__all__ = (
    "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln i0 i0e i1 i1e log1p log_ndtr log_softmax logit "
    "logsumexp multigammaln ndtr ndtri polygamma psi round sinc softmax xlog1py xlogy"
).split()
erf, exp2, expit, expm1, log1p = _core.erf, _core.exp2, _core.sigmoid, _core.expm1, _core.log1p
logsumexp, round, xlogy = _core.logsumexp, _core.round, _core.xlogy
logit, sinc = _elementwise.logit, _elementwise.sinc
log_softmax, softmax = functional.log_softmax, functional.softmax


def _in_double(function):
    """Computes in float64; the result has the input's dtype, of integers the default dtype."""

    @functools.wraps(function)
    def compute(input, *args, **kwargs):
        dtype = input.dtype if input.dtype.is_floating_point else _core.get_default_dtype()
        return function(input.double(), *args, **kwargs).to(dtype)

    return compute


def _with_slope(slope):
    """Gives a function of one float64 tensor the gradient dy * slope(x, y)."""

    def decorate(function):
        class Op(Function):
            @staticmethod
            def forward(ctx, x):
                y = function(x)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                return dy * slope(*ctx.saved_tensors)

        def apply(input):
            return Op.apply(input) if input.requires_grad and _core.is_grad_enabled() else function(input)

        apply.__name__ = apply.__qualname__ = function.__name__

        return apply

    return decorate


def _polynomial(x, coefficients):
    """The sum of coefficients[i] x^i."""
    y = _core.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        y = y * x + c
    return y


# ---- the error function

# Chebyshev's coefficients of log(erfc(z) / t) + z^2 in t = 2 / (2 + z), z >= 0 (Press et al., Numerical Recipes 6.2).
_ERFC = (
    -1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
    3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6,
    1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10,
    9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15,
    -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip


def _log_erfcx_of_positive(z):
    t = 2 / (2 + z)
    y, before, last = 4 * t - 2, _core.zeros_like(z), _core.zeros_like(z)
    for c in reversed(_ERFC[1:]):
        before, last = y * before - last + c, before
    return _core.log(t) + 0.5 * (_ERFC[0] + y * before) - last


@_with_slope(lambda x, y: -2 / math.sqrt(math.pi) * _core.exp(-x * x))
def _erfc(x):
    far = _core.exp(_log_erfcx_of_positive(_core.abs(x)) - x * x)
    return _core.where(x < 0, 2 - far, _core.where(_core.abs(x) < 0.5, 1 - _core.erf(x), far))


@_with_slope(lambda x, y: 2 * x * y - 2 / math.sqrt(math.pi))
def _erfcx(x):
    log = _log_erfcx_of_positive(_core.abs(x))
    return _core.where(x < 0, 2 * _core.exp(x * x) - _core.exp(log), _core.exp(log))


@_with_slope(lambda x, y: math.sqrt(math.pi) / 2 * _core.exp(y * y))
def _erfinv(x):
    # Winitzki's approximation, then Newton's steps; near 1 they are taken of erfc.
    rest = 1 - _core.abs(x)
    a = _core.log(rest * (2 - rest))
    b = 2 / (math.pi * 0.147) + a / 2
    z = _core.sqrt(_core.clamp(_core.sqrt(b * b - a / 0.147) - b, min=0.0))
    for _ in range(3):
        wrong = _core.where(z < 0.5, _core.erf(z) - _core.abs(x), rest - _erfc(z))
        slope = 2 / math.sqrt(math.pi) * _core.exp(-z * z)
        step = wrong / slope
        z = z - step / (1 + z * step)
    z = _core.where(rest == 0, _core.full_like(z, math.inf), z)
    return _core.where(x < 0, -z, z)


erfc = _in_double(_erfc)
erfcx = _in_double(_erfcx)
erfinv = _in_double(_erfinv)


@_in_double
def ndtr(input):
    """The share of the standard normal distribution below input.

    >>> sf.special.ndtr(sf.tensor([-1.96, 0., 1.96]))
    tensor([0.0250, 0.5000, 0.9750])
    """
    return _erfc(input * -math.sqrt(0.5)) / 2


@_in_double
def ndtri(input):
    """The number below which the share input of the standard normal distribution lies; nan outside [0, 1].

    >>> sf.special.ndtri(sf.tensor([0.5, 0.975]))
    tensor([0.0000, 1.9600])
    """
    return _erfinv(2 * input - 1) * math.sqrt(2)


@_in_double
def log_ndtr(input):
    """log(ndtr(input)), exact far below 0 too.

    >>> sf.special.log_ndtr(sf.tensor([-10., 0.]))
    tensor([-53.2313,  -0.6931])
    """
    below = input < 0
    z = _core.where(below, -input, _core.zeros_like(input)) * math.sqrt(0.5)
    near = _core.where(below, _core.zeros_like(input), input)
    return _core.where(
        below, _log_erfcx_of_positive(z) - z * z - math.log(2), _core.log1p(-_erfc(near * math.sqrt(0.5)) / 2)
    )


# ---- the gamma function: asymptotic series from 10 on, recurrence below, reflection below 1/2

_SHIFT = 10


def _stirling(x):
    r = 1 / x
    series = _polynomial(r * r, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156))
    return (x - 0.5) * _core.log(x) - x + 0.5 * math.log(2 * math.pi) + r * series


@_with_slope(lambda x, y: _digamma(x))
def _gammaln(x):
    mirrored = x < 0.5
    z = _core.where(mirrored, 1 - x, x)
    product = _polynomial_of_steps(z)
    y = _core.where(z < _SHIFT, _stirling(z + _SHIFT) - _core.log(product), _stirling(_core.clamp(z, min=1.0)))
    y = _core.where((z == 1) | (z == 2), _core.zeros_like(y), y)
    near = x - _core.round(x)  # sin(pi x) but for its sign
    other = math.log(math.pi) - _core.log(_core.abs(_core.sin(math.pi * near))) - y
    return _core.where(_core.isinf(x), _core.full_like(x, math.inf), _core.where(mirrored, other, y))


def _polynomial_of_steps(z):
    """z (z + 1) ... (z + _SHIFT - 1); 1 where z is large."""
    small = _core.where(z < _SHIFT, z, _core.ones_like(z))
    product = small
    for k in range(1, _SHIFT):
        product = product * (small + k)
    return product


@_with_slope(lambda x, y: _polygamma(1, x))
def _digamma(x):
    mirrored = x < 0.5
    z = _core.where(mirrored, 1 - x, x)
    shifted = _core.where(z < _SHIFT, z + _SHIFT, z)
    r = 1 / shifted
    square = r * r
    y = _core.log(shifted) - r / 2
    y = y - square * _polynomial(square, (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12))
    steps = _core.zeros_like(z)
    for k in range(_SHIFT):
        steps = steps + 1 / (z + k)
    y = _core.where(z < _SHIFT, y - steps, y)
    near = x - _core.round(x)
    other = y - math.pi / _core.tan(math.pi * near)
    pole = _core.where(x == 0, _core.copysign(_core.full_like(x, math.inf), -x), _core.full_like(x, math.nan))
    return _core.where(mirrored, _core.where(near == 0, pole, other), y)


def _zeta(s, q):
    """Hurwitz's zeta function for a number s > 1 and q > 0: the sum of (q + k)^-s, by Euler's and Maclaurin's
    formula."""
    total = _core.zeros_like(q)
    for k in range(_SHIFT):
        total = total + _core.pow(q + k, -s)
    z = q + _SHIFT
    power = _core.pow(z, -s)
    total = total + power * (z / (s - 1) + 0.5)
    factor = s
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
    power = power / z
    for j, b in enumerate(bernoulli, 1):
        total = total + b * factor / math.factorial(2 * j) * power
        power = power / (z * z)
        factor = factor * (s + 2 * j - 1) * (s + 2 * j)
    return total


def _polygamma(n, x):
    """The derivative of order n >= 1 of digamma; its own gradient is that of order n + 1."""
    return _with_slope(lambda x, y: _polygamma(n + 1, x))(lambda x: _polygamma_of(n, x))(x)


def _polygamma_of(n, x):
    mirrored = x < 0.5
    y = (-1) ** (n + 1) * math.factorial(n) * _zeta(n + 1, _core.where(mirrored, 1 - x, x))
    slopes = [0.0, 1.0]  # of the derivatives of c = cot(pi x): c' = -pi (1 + c^2)
    for _ in range(n):
        down = [k * c for k, c in enumerate(slopes)][1:]
        slopes = [-math.pi * (a + b) for a, b in zip([*down, 0.0, 0.0], [0.0, 0.0, *down])]
    near = x - _core.round(x)
    other = (-1) ** n * y - math.pi * _polynomial(1 / _core.tan(math.pi * near), slopes)
    other = _core.where(near == 0, _core.full_like(x, (-1) ** (n + 1) * math.inf), other)
    return _core.where(mirrored, other, y)


gammaln = _in_double(_gammaln)
digamma = psi = _in_double(_digamma)
_of_order = _in_double(lambda x, n: _polygamma(n, x) if n else _digamma(x))


def polygamma(n, input):
    """The derivative of order n of digamma(input); n: a whole number from 0 on.

    >>> sf.special.polygamma(1, sf.tensor([1.]))  # pi**2 / 6
    tensor([1.6449])
    """
    if not isinstance(n, int) or n < 0:
        raise RuntimeError(f"polygamma: n must be a whole number from 0 on, got {n!r}")
    return _of_order(input, n)


def multigammaln(input, p):
    """The logarithm of the multivariate gamma function of dimension p; input must be above (p - 1) / 2.

    >>> sf.special.multigammaln(sf.tensor([3.]), 2)
    tensor([1.5502])
    """
    parts = [gammaln(input - i / 2) for i in range(p)]
    return sum(parts[1:], parts[0]) + p * (p - 1) / 4 * math.log(math.pi)


# ---- Bessel functions: the series up to 20, the asymptotic one above, both over exp(|x|)


def _scaled_bessel(order, x):
    a = _core.abs(x)
    near = _core.clamp(a, max=20.0)
    quarter = near * near / 4
    term = _core.ones_like(x) if order == 0 else near / 2
    total = term
    for k in range(1, 56):
        term = term * quarter / (k * (k + order))
        total = total + term
    far = _core.clamp(a, min=20.0)
    part = _core.ones_like(x)
    series = part
    for k in range(1, 20):
        part = part * -(4 * order * order - (2 * k - 1) ** 2) / (k * 8 * far)
        series = series + part
    y = _core.where(a <= 20, total * _core.exp(-near), series / _core.sqrt(2 * math.pi * far))
    return _core.copysign(y, x) if order else y


def _scale(x):
    return _core.exp(_core.abs(x))


def _i1_over_x(x, i1):
    zero = x == 0
    return _core.where(zero, _core.full_like(x, 0.5), i1 / _core.where(zero, _core.ones_like(x), x))


@_with_slope(lambda x, y: _i1(x))
def _i0(x):
    return _scaled_bessel(0, x) * _scale(x)


@_with_slope(lambda x, y: _i1e(x) - _core.sign(x) * y)
def _i0e(x):
    return _scaled_bessel(0, x)


@_with_slope(lambda x, y: _i0(x) - _i1_over_x(x, y))
def _i1(x):
    return _scaled_bessel(1, x) * _scale(x)


@_with_slope(lambda x, y: _i0e(x) - _i1_over_x(x, y) - _core.sign(x) * y)
def _i1e(x):
    return _scaled_bessel(1, x)


i0, i0e, i1, i1e = (_in_double(f) for f in (_i0, _i0e, _i1, _i1e))


# ---- products with logarithms


@_in_double
def entr(input):
    """-input log(input), 0 at 0 and minus infinity below.

    >>> sf.special.entr(sf.tensor([0.25, 0.5]))
    tensor([0.3466, 0.3466])
    """
    inside = _core.where(input > 0, input, _core.ones_like(input))
    y = -input * _core.log(inside)
    return _core.where(input < 0, _core.full_like(input, -math.inf), y)


def xlog1py(input, other):
    """input * log1p(other), 0 where input is 0; either may be a number.

    >>> sf.special.xlog1py(sf.tensor([0., 2.]), sf.tensor([-1., 1.]))
    tensor([0.0000, 1.3863])
    """
    if not isinstance(other, _core.Tensor):
        return input * math.log1p(other)
    zero = _core.zeros_like(other) + input == 0
    return _core.where(zero & ~_core.isnan(other), _core.zeros_like(other), input * _core.log1p(other))


for _name, (_doc, _given, _found) in {  # what it is, and an example: of what, its result
    "erfc": ("1 - erf(input), exact where that is small.", "0., 1.", "1.0000, 0.1573"),
    "erfcx": ("exp(input^2) erfc(input).", "0., 10.", "1.0000, 0.0561"),
    "erfinv": ("The number whose erf is input; nan outside [-1, 1].", "0., 0.5", "0.0000, 0.4769"),
    "gammaln": ("The logarithm of the absolute value of the gamma function at input.", "3., 5.", "0.6931, 3.1781"),
    "digamma": ("The derivative of gammaln at input; nan at negative whole numbers.", "1., 2.", "-0.5772,  0.4228"),
    "i0": ("The modified Bessel function of the first kind, of order 0, at input.", "0., 1.", "1.0000, 1.2661"),
    "i0e": ("exp(-|input|) i0(input).", "1., 100.", "0.4658, 0.0399"),
    "i1": ("The modified Bessel function of the first kind, of order 1, at input.", "0., 1.", "0.0000, 0.5652"),
    "i1e": ("exp(-|input|) i1(input).", "1., 100.", "0.2079, 0.0397"),
}.items():
    globals()[_name].__doc__ = f"{_doc}\n\n>>> sf.special.{_name}(sf.tensor([{_given}]))\ntensor([{_found}])"
    globals()[_name].__name__ = globals()[_name].__qualname__ = _name

help_modules()  # this one is imported after the others
