"""Functional ops under torch.nn.functional's names."""

from .. import _core

# Ops whose signature is torch's already. A name that this build has no op for is left out.
_SAME = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d
avg_pool3d batch_norm binary_cross_entropy_with_logits conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity
cross_entropy dropout embedding fold gelu glu group_norm huber_loss instance_norm interpolate kl_div l1_loss layer_norm linear log_softmax max_pool1d
max_pool2d max_pool3d mse_loss nll_loss normalize one_hot pad pixel_shuffle pixel_unshuffle rms_norm scaled_dot_product_attention sigmoid
smooth_l1_loss softmax softplus tanh unfold
""".split()
__all__ = [name for name in _SAME if hasattr(_core, name)]
globals().update({name: getattr(_core, name) for name in __all__})


def _activation(name):
    op, inplace_op = getattr(_core, name), getattr(_core, name + "_", None)

    def activation(input, *args, inplace=False, **kwargs):
        return (inplace_op if inplace else op)(input, *args, **kwargs)

    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = op.__doc__
    return activation


for _name in ("elu", "hardswish", "leaky_relu", "mish", "relu", "silu", "quick_gelu"):
    if hasattr(_core, _name):
        globals()[_name] = _activation(_name)
        __all__.append(_name)
