"""Batch normalisation in eval mode as part of the layer before it."""

import copy

from ... import _core
from ...autograd.grad_mode import no_grad
from ..parameter import Parameter


def _scale_and_shift(bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    scale = _core.rsqrt(bn_rv + bn_eps)
    if bn_w is not None:
        scale = scale * bn_w
    shift = -bn_rm * scale
    return scale, shift if bn_b is None else shift + bn_b


def _fused(weight, bias, scale, shift, dim):
    """The parameters of scale * (weight x + bias) + shift; dim of weight is that of the outputs."""
    sizes = [1] * weight.dim()
    sizes[dim] = -1
    new_bias = shift if bias is None else bias * scale + shift
    return (
        Parameter((weight * scale.reshape(sizes)).to(weight.dtype).detach(), weight.requires_grad),
        Parameter(new_bias.to(weight.dtype).detach(), bias is not None and bias.requires_grad),
    )


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """(weight, bias) of a convolution, conv_w and conv_b, that is followed by batch normalisation with the statistics
    bn_rm and bn_rv, and bn_eps; conv_b, bn_w
    and bn_b may be None. transpose: of a transposed convolution."""
    return _fused(conv_w, conv_b, *_scale_and_shift(bn_rm, bn_rv, bn_eps, bn_w, bn_b), 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """(weight, bias) of a linear layer, linear_w and linear_b, that is followed by batch normalisation with the
    statistics bn_rm and bn_rv, with bn_eps, bn_w and bn_b."""
    return _fused(linear_w, linear_b, *_scale_and_shift(bn_rm, bn_rv, bn_eps, bn_w, bn_b), 0)


def _statistics(bn):
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def _check(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A copy of conv that computes bn(conv(x)); both in eval mode, bn with running statistics: AssertionError else.
    transpose: of a transposed convolution.

    >>> conv, norm, x = nn.Conv2d(3, 8, 3).eval(), nn.BatchNorm2d(8).eval(), sf.randn(1, 3, 8, 8)
    >>> sf.allclose(nn.utils.fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-5)
    True
    """
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    with no_grad():
        fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, *_statistics(bn), transpose)
    return fused


def fuse_linear_bn_eval(linear, bn):
    """A copy of linear that computes bn(linear(x)); both in eval mode, bn with running statistics and as many features:
    AssertionError else."""
    _check(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused = copy.deepcopy(linear)
    with no_grad():
        fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, *_statistics(bn))
    return fused
