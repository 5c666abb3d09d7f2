"""Functional ops under torch.nn.functional's names."""

from .. import _core

# Ops whose signature is torch's already, and fused ones of our own. A name that this build has no op for is left out.
_OPS = """
add_layer_norm add_rms_norm apply_rotary_emb dropout1d dropout2d dropout3d feature_dropout geglu group_norm_silu layer_norm_modulate rms_norm_modulate
swiglu max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
adaptive_max_pool3d_with_indices
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d
avg_pool3d batch_norm binary_cross_entropy_with_logits conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity
cross_entropy dropout embedding fold gelu glu group_norm huber_loss instance_norm interpolate kl_div l1_loss layer_norm linear log_softmax max_pool1d
max_pool2d max_pool3d mse_loss nll_loss normalize one_hot pad pixel_shuffle pixel_unshuffle rms_norm scaled_dot_product_attention sigmoid
smooth_l1_loss softmax softplus tanh unfold
""".split()
__all__ = [name for name in _OPS if hasattr(_core, name)]
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


# ---- compositions


def relu6(input, inplace=False):
    """input limited to [0, 6]."""
    return input.clamp_(0, 6) if inplace else input.clamp(0, 6)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input limited to [min_val, max_val]."""
    return input.clamp_(min_val, max_val) if inplace else input.clamp(min_val, max_val)


def logsigmoid(input):
    """log(sigmoid(input)), without overflow."""
    return -_core.softplus(-input)


def softsign(input):
    """input / (1 + |input|)."""
    return input / (1 + input.abs())


def softmin(input, dim, dtype=None):
    """softmax of -input."""
    return _core.softmax(-input, dim, dtype)


__all__ += ["relu6", "hardtanh", "logsigmoid", "softsign", "softmin"]

if "normalize" not in __all__:

    def normalize(input, p=2.0, dim=1, eps=1e-12):
        """input divided by its p-norm over dim, or by eps where that is smaller."""
        return input / input.norm(p, dim, keepdim=True).clamp(min=eps)

    __all__.append("normalize")

if "cosine_similarity" not in __all__:

    def cosine_similarity(x1, x2, dim=1, eps=1e-8):
        """The cosine of the angle between x1 and x2 along dim."""
        return (x1 * x2).sum(dim) / (x1.norm(2, dim).clamp(min=eps) * x2.norm(2, dim).clamp(min=eps))

    __all__.append("cosine_similarity")
