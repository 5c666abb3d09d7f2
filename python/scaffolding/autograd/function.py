"""User-defined ops: subclass Function and give it forward and backward."""

import functools

from .. import _core
from .._core import Tensor


class FunctionCtx:
    """What forward hands to backward."""

    def __init__(self):
        self._to_save = ()
        self._saved = None
        self._non_differentiable = ()
        self._dirty = ()
        self._materialize_grads = True
        self.needs_input_grad = ()

    def save_for_backward(self, *tensors):
        """Keeps tensors for backward, which finds them in saved_tensors. Inputs, outputs and None are allowed."""
        self._to_save = tensors

    @property
    def saved_tensors(self):
        """The tensors kept by save_for_backward; an error when one was written in place since."""
        return self._to_save if self._saved is None else self._saved.get()

    def mark_non_differentiable(self, *tensors):
        """These outputs get no gradient."""
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors):
        """These inputs were written in place and are outputs."""
        self._dirty = tensors

    def set_materialize_grads(self, value):
        """value False: absent gradients of outputs come to backward as None instead of zeros."""
        self._materialize_grads = bool(value)


class Function:
    """An op with its own gradient.

    >>> class Exp(sf.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         y = x.exp()
    ...         ctx.save_for_backward(y)
    ...         return y
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (y,) = ctx.saved_tensors
    ...         return dy * y
    >>> x = sf.zeros(2, requires_grad=True)
    >>> Exp.apply(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])

    forward may leave out ctx when the class has setup_context(ctx, inputs, output). backward returns one gradient, or
    None, per argument of forward; written with ops it can be differentiated again.
    """

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("Function: forward must be defined")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("Function: backward must be defined")

    setup_context = None

    @classmethod
    def apply(cls, *args, **kwargs):
        """Calls forward and records the op."""
        ctx = FunctionCtx()
        recording = _core.is_grad_enabled()
        ctx.needs_input_grad = tuple(recording and isinstance(a, Tensor) and a.requires_grad for a in args)
        before = _core._set_grad_enabled(False)
        try:
            if cls.setup_context is None:
                outputs = cls.forward(ctx, *args, **kwargs)
            else:
                outputs = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, outputs)
        finally:
            _core._set_grad_enabled(before)
        single = not isinstance(outputs, (tuple, list))
        results = _core._record_function(cls, ctx, args, (outputs,) if single else tuple(outputs), tuple(ctx._dirty))
        ctx._to_save = ctx._non_differentiable = ctx._dirty = ()
        return results[0] if single else results


def once_differentiable(backward):
    """Decorates a backward that is not written with ops: differentiating it again is an error."""

    @functools.wraps(backward)
    def decorated(ctx, *gradients):
        if _core.is_grad_enabled() and any(isinstance(g, Tensor) and g.requires_grad for g in gradients):
            raise RuntimeError("once_differentiable: this backward cannot be differentiated again")
        before = _core._set_grad_enabled(False)
        try:
            return backward(ctx, *gradients)
        finally:
            _core._set_grad_enabled(before)

    return decorated
