"""Window functions: weights[window_length] of a stretch of samples. periodic: of a period, without its last point."""

import math

from . import _core
from .special import i0

__all__ = "bartlett_window blackman_window hamming_window hann_window kaiser_window".split()


def _window(name, window_length, periodic, of, dtype, device, requires_grad):
    if window_length < 0:
        raise ValueError(f"{name}: window_length must not be negative, got {window_length}")
    dtype = dtype or _core.get_default_dtype()
    if window_length <= 1:
        made = _core.ones(window_length, dtype=_core.float64)
    else:
        points = _core.arange(window_length, dtype=_core.float64)
        made = of(points / (window_length if periodic else window_length - 1))
    made = made.to(dtype) if device is None else made.to(device, dtype)
    return made.requires_grad_(requires_grad)


def _cosines(*weights):
    return lambda t: sum(w * _core.cos(2 * math.pi * k * t) for k, w in enumerate(weights))


def hann_window(window_length, periodic=True, *, dtype=None, device=None, requires_grad=False):
    """Half a cosine's arch from 0 to 0.

    Args:
        window_length: elements
        periodic: whether it is one short of a symmetric window of one more, as transforms want it
        dtype, device, requires_grad: of the result, as of zeros

    >>> sf.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("hann_window", window_length, periodic, _cosines(0.5, -0.5), dtype, device, requires_grad)


def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, device=None, requires_grad=False
):
    """alpha - beta cos(2 pi t).

    Args:
        window_length: elements
        periodic: whether it is one short of a symmetric window of one more, as transforms want it
        dtype, device, requires_grad: of the result, as of zeros

    >>> sf.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return _window("hamming_window", window_length, periodic, _cosines(alpha, -beta), dtype, device, requires_grad)


def blackman_window(window_length, periodic=True, *, dtype=None, device=None, requires_grad=False):
    """Three cosines' arch from 0 to 0.

    Args:
        window_length: elements
        periodic: whether it is one short of a symmetric window of one more, as transforms want it
        dtype, device, requires_grad: of the result, as of zeros

    >>> sf.blackman_window(4)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """
    return _window("blackman_window", window_length, periodic, _cosines(0.42, -0.5, 0.08), dtype, device, requires_grad)


def bartlett_window(window_length, periodic=True, *, dtype=None, device=None, requires_grad=False):
    """A triangle from 0 over 1 to 0.

    Args:
        window_length: elements
        periodic: whether it is one short of a symmetric window of one more, as transforms want it
        dtype, device, requires_grad: of the result, as of zeros

    >>> sf.bartlett_window(5, periodic=False)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _window(
        "bartlett_window", window_length, periodic, lambda t: 1 - _core.abs(2 * t - 1), dtype, device, requires_grad
    )


def kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, device=None, requires_grad=False):
    """Bessel's i0 over the upper half of an ellipse; a larger beta is narrower.

    Args:
        window_length: elements
        periodic: whether it is one short of a symmetric window of one more, as transforms want it
        dtype, device, requires_grad: of the result, as of zeros

    >>> sf.kaiser_window(3, periodic=False, beta=2.0)
    tensor([0.4387, 1.0000, 0.4387])
    """

    def of(t):
        return i0(beta * _core.sqrt(1 - (2 * t - 1) ** 2)) / i0(_core.tensor(float(beta), dtype=_core.float64))

    return _window("kaiser_window", window_length, periodic, of, dtype, device, requires_grad)
