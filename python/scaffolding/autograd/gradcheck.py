"""Comparing gradients with finite differences."""

from .. import _core
from .._core import Tensor


def _over_tensors(func, inputs):
    """func as a function of the tensors among its inputs, giving the tensors among its results."""
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)

    def call(tensors):
        given = iter(tensors)
        out = func(*(next(given) if isinstance(x, Tensor) else x for x in inputs))
        return [y for y in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(y, Tensor)]

    return call, [x for x in inputs if isinstance(x, Tensor)]


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, check_undefined_grad=True):
    """Whether the gradients of func at inputs equal central differences; inputs must be float64.

    Every element of the Jacobian is compared, with steps of eps: |difference - gradient| <= atol + rtol * |difference|.

    Args:
        raise_exception: whether a difference is an error, and not False
        check_undefined_grad: whether backward is tried without gradients of outputs too

    >>> x = sf.tensor([0.5, 1.5], dtype=sf.float64, requires_grad=True)
    >>> sf.autograd.gradcheck(sf.sin, (x,))
    True
    """
    call, tensors = _over_tensors(func, inputs)
    return _core._gradcheck(call, tensors, eps, atol, rtol, raise_exception, check_undefined_grad)


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """As gradcheck(func, inputs, eps, atol, rtol, raise_exception), for the gradients of func: the second derivatives.
    grad_outputs are random unless given."""
    call, tensors = _over_tensors(func, inputs)
    grad_outputs = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or [])
    return _core._gradgradcheck(call, tensors, grad_outputs, eps, atol, rtol, raise_exception)
