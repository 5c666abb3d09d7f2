"""Gradients of parameters as one vector: its norm, and clipping it.

`parameters` is a tensor or an iterable of tensors; those without a gradient are passed over. `foreach` chooses nothing:
all tensors are always done together."""

import types
import warnings

from ..._core import Tensor, _clip_grad


def _listed(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm, of order norm_type, of all tensors as one vector (0-d), summed in float64; foreach changes nothing.
    RuntimeError for NaN or Inf with error_if_nonfinite.

    >>> nn.utils.get_total_norm([sf.tensor([3.]), sf.tensor([0., 4.])])
    tensor(5.)
    """
    return _clip_grad.get_total_norm(_listed(tensors), float(norm_type), error_if_nonfinite)


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Multiplies the gradients of parameters by max_norm / (total_norm + 1e-6) where that is below 1; foreach changes
    nothing."""
    _clip_grad.clip_grads_with_norm_(_listed(parameters), float(max_norm), total_norm)


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales gradients in place so that their norm, as one vector, is at most max_norm; returns the norm before (0-d).

    RuntimeError when that is NaN or Inf and error_if_nonfinite is set; no gradient is changed then.

    Args:
        parameters: one or several, those without a gradient count nothing
        norm_type: the order of the norm; inf is the largest gradient
        foreach: changes nothing

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer(sf.tensor([[3., 4.]])).sum().backward()
    >>> nn.utils.clip_grad_norm_(layer.parameters(), max_norm=1.0), layer.weight.grad
    (tensor(5.), tensor([[0.6000, 0.8000]]))
    """
    is_generator = isinstance(parameters, types.GeneratorType)
    parameters = _listed(parameters)
    if is_generator and not parameters:
        warnings.warn("clip_grad_norm_: parameters is an empty generator, nothing is clipped", stacklevel=2)
    return _clip_grad.clip_grad_norm_(parameters, float(max_norm), float(norm_type), error_if_nonfinite)


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The old name of clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)."""
    warnings.warn(
        "nn.utils.clip_grad_norm is deprecated in favor of nn.utils.clip_grad_norm_", FutureWarning, stacklevel=2
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Limits each element of the gradients of parameters to [-clip_value, clip_value], in place; foreach changes
    nothing.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer(sf.tensor([[3., -0.5]])).sum().backward()
    >>> nn.utils.clip_grad_value_(layer.parameters(), 1.0)
    >>> layer.weight.grad
    tensor([[ 1.0000, -0.5000]])
    """
    _clip_grad.clip_grad_value_(_listed(parameters), float(clip_value))
