"""Functional ops under torch.nn.functional's names and with its arguments.

Most are ops as they are (see scaffolding.<name>). A call that only torch's signature allows (inplace=, return_indices=,
size_average=, softmax without dim) is translated here and made again. Random ops take a `generator` keyword as well.
"""

import warnings

from .. import _core
from .multi_head_attention import multi_head_attention_forward

# Ops whose signature is torch's already, and fused ones of our own.
_OPS = """
add_layer_norm add_rms_norm apply_rotary_emb cat_group_norm_silu feature_dropout geglu group_norm_silu
layer_norm_modulate mlp quick_gelu rms_norm_modulate swiglu
max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices
adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear celu_
channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity elu_ fold
gaussian_nll_loss gelu group_norm gumbel_softmax hardshrink hardtanh_ huber_loss instance_norm interpolate layer_norm
leaky_relu_ linear logsigmoid normalize pad pairwise_distance pixel_shuffle pixel_unshuffle prelu relu_ rms_norm
scaled_dot_product_attention selu_ sigmoid softplus softshrink softsign tanh tanhshrink threshold_ unfold
""".split()
__all__ = list(_OPS)
globals().update({name: getattr(_core, name) for name in _OPS})


def _form(name, params, translate):
    """Shows params as the op's own, and hands calls that do not fit the op to translate(op, arguments by name)."""
    op = getattr(_core, name)

    def second_form(*args, **kwargs):
        import inspect  # not at import: it is slow to load

        try:
            bound = inspect.signature(op).bind(*args, **kwargs)
        except TypeError:
            return op(*args, **kwargs)  # which says what is wrong
        return translate(op, bound.arguments)

    _core._set_second_form(op, second_form, params)
    globals()[name] = op
    __all__.append(name)


def _flag(op, arguments, name):
    value = arguments.pop(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{op.__name__}: {name} must be a bool, got {type(value).__name__}")
    return value


# ---- activations with inplace


def _perhaps_inplace(op, arguments):
    inplace = _flag(op, arguments, "inplace")
    return (getattr(_core, op.__name__ + "_") if inplace else op)(**arguments)


for _name, _params in {
    "celu": "input, alpha=1.0, inplace=False",
    "elu": "input, alpha=1.0, inplace=False",
    "hardsigmoid": "input, inplace=False",
    "hardswish": "input, inplace=False",
    "hardtanh": "input, min_val=-1.0, max_val=1.0, inplace=False",
    "leaky_relu": "input, negative_slope=0.01, inplace=False",
    "mish": "input, inplace=False",
    "relu": "input, inplace=False",
    "relu6": "input, inplace=False",
    "selu": "input, inplace=False",
    "silu": "input, inplace=False",
    "threshold": "input, threshold, value, inplace=False",
}.items():
    _form(_name, _params, _perhaps_inplace)


# ---- dropout


def _dropout(op, arguments):
    inplace = _flag(op, arguments, "inplace")
    result = op(**arguments)
    return arguments["input"].copy_(result) if inplace and result is not arguments["input"] else result


for _name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
    _form(_name, "input, p=0.5, training=True, inplace=False, *, generator=None", _dropout)
_form("alpha_dropout", "input, p=0.5, training=False, inplace=False, *, generator=None", _dropout)


# ---- softmax without dim


def _implicit_dim(op, arguments):
    arguments.pop("_stacklevel", None)
    if arguments.get("dim") is None:
        warnings.warn(f"{op.__name__}: the dimension is chosen by the number of dimensions; give dim=", stacklevel=5)
        arguments["dim"] = 0 if arguments["input"].dim() in (0, 1, 3) else 1
    return op(**arguments)


for _name in ("softmax", "log_softmax", "softmin"):
    _form(_name, "input, dim=None, _stacklevel=3, dtype=None", _implicit_dim)


# ---- pools with return_indices


def _perhaps_indices(op, arguments):
    return_indices = _flag(op, arguments, "return_indices")
    return (getattr(_core, op.__name__ + "_with_indices") if return_indices else op)(**arguments)


for _name in ("max_pool1d", "max_pool2d", "max_pool3d"):
    _form(
        _name,
        "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False",
        _perhaps_indices,
    )
for _name in ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"):
    _form(_name, "input, output_size, return_indices=False", _perhaps_indices)


# ---- losses with the old size_average and reduce


def _old_reduction(op, arguments):
    size_average, reduce = arguments.pop("size_average", None), arguments.pop("reduce", None)
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(
            f"{op.__name__}: size_average and reduce are deprecated, use reduction='{reduction}'", stacklevel=5
        )
        arguments["reduction"] = reduction
    return op(**arguments)


_OLD = "size_average=None, reduce=None, reduction='mean'"
for _name, _params in {
    "binary_cross_entropy": f"input, target, weight=None, {_OLD}",
    "binary_cross_entropy_with_logits": f"input, target, weight=None, {_OLD}, pos_weight=None",
    "cosine_embedding_loss": f"input1, input2, target, margin=0, {_OLD}",
    "cross_entropy": (
        "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', "
        "label_smoothing=0.0"
    ),
    "hinge_embedding_loss": f"input, target, margin=1.0, {_OLD}",
    "kl_div": f"input, target, {_OLD}, log_target=False",
    "l1_loss": f"input, target, {_OLD}, weight=None",
    "margin_ranking_loss": f"input1, input2, target, margin=0, {_OLD}",
    "mse_loss": f"input, target, {_OLD}, weight=None",
    "multilabel_soft_margin_loss": f"input, target, weight=None, {_OLD}",
    "nll_loss": "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'",
    "poisson_nll_loss": (
        "input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean'"
    ),
    "smooth_l1_loss": f"input, target, {_OLD}, beta=1.0",
    "soft_margin_loss": f"input, target, {_OLD}",
    "triplet_margin_loss": f"anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, {_OLD}",
}.items():
    _form(_name, _params, _old_reduction)


# ---- glu of another dimension than the last


def _glu(op, arguments):
    dim = arguments.pop("dim", -1)
    arguments["input"] = arguments["input"].movedim(dim, -1)
    return op(**arguments).movedim(-1, dim)


_form("glu", "input, dim=-1, *, activation='sigmoid', gate_first=False", _glu)


# ---- one_hot, whose input torch calls tensor

_form("one_hot", "tensor, num_classes=-1", lambda op, arguments: op(arguments.pop("tensor"), **arguments))

# ---- embedding


def _embedding(op, arguments):
    if arguments.pop("sparse", False):
        raise NotImplementedError("embedding: sparse=True is not supported, the gradient is dense; leave sparse=False")
    max_norm, norm_type = arguments.pop("max_norm", None), arguments.pop("norm_type", 2.0)
    if max_norm is not None:
        _core.embedding_renorm_(arguments["weight"], arguments["input"], max_norm, norm_type)
    return op(**arguments)


_form(
    "embedding",
    "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False",
    _embedding,
)


# ---- interpolate's older names


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate, by its old name."""
    warnings.warn("upsample is deprecated, use interpolate", stacklevel=2)
    return _core.interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate(mode="nearest"), by its old name."""
    warnings.warn("upsample_nearest is deprecated, use interpolate", stacklevel=2)
    return _core.interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate(mode="bilinear", align_corners=True), by its old name."""
    warnings.warn("upsample_bilinear is deprecated, use interpolate", stacklevel=2)
    return _core.interpolate(input, size, scale_factor, "bilinear", True)


__all__ += ["upsample", "upsample_nearest", "upsample_bilinear", "multi_head_attention_forward"]
