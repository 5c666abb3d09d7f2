"""Functional ops under torch.nn.functional's names and with its arguments.

Most are ops as they are (see scaffolding.<name>). A call that only torch's signature allows (inplace=, return_indices=,
size_average=, softmax without dim) is translated here and made again. Random ops take a `generator` keyword as well.
"""

import warnings

from .. import _core
from .._core import Tensor  # noqa: F401  (annotations of programs say F.Tensor)
from .multi_head_attention import multi_head_attention_forward

# Ops whose signature is torch's already, and fused ones of our own.
_OPS = """
add_layer_norm add_rms_norm affine_grid apply_rotary_emb cat_group_norm_silu feature_dropout geglu group_norm_silu
layer_norm_modulate mlp quick_gelu rms_norm_modulate swiglu
fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices local_response_norm
lp_pool1d lp_pool2d lp_pool3d max_unpool1d max_unpool2d max_unpool3d rrelu_
max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices
adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear celu_
channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity elu_ fold
gaussian_nll_loss gelu grid_sample group_norm gumbel_softmax hardshrink hardtanh_ huber_loss instance_norm interpolate
layer_norm leaky_relu_ linear logsigmoid normalize pad pairwise_distance pdist
pixel_shuffle pixel_unshuffle prelu relu_ rms_norm
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
    "rrelu": "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False, *, generator=None",
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
for _name in ("alpha_dropout", "feature_alpha_dropout"):
    _form(_name, "input, p=0.5, training=False, inplace=False, *, generator=None", _dropout)


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


def _kept_sizes(op, arguments):
    size = arguments["output_size"]
    if size is None or (isinstance(size, (tuple, list)) and None in size):  # a side that stays is -1
        arguments["output_size"] = -1 if size is None else [-1 if n is None else n for n in size]
    return _perhaps_indices(op, arguments)


for _name in ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"):
    _form(_name, "input, output_size, return_indices=False", _kept_sizes)
for _name in ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"):
    _form(_name, "input, output_size", _kept_sizes)


def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """fractional_max_pool2d_with_indices of input, kernel_size, output_size and output_ratio, without the indices
    unless return_indices.

    >>> F.fractional_max_pool2d(sf.ones(1, 3, 9, 9), 2, output_size=4).shape
    scaffolding.Size([1, 3, 4, 4])
    """
    y, indices = _core.fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples
    )
    return (y, indices) if return_indices else y


def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """fractional_max_pool3d_with_indices of input, kernel_size, output_size and output_ratio, without the indices
    unless return_indices.

    >>> F.fractional_max_pool3d(sf.ones(1, 3, 9, 9, 9), 2, output_size=4).shape
    scaffolding.Size([1, 3, 4, 4, 4])
    """
    y, indices = _core.fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples
    )
    return (y, indices) if return_indices else y


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
    "multi_margin_loss": f"input, target, p=1, margin=1.0, weight=None, {_OLD}",
    "multilabel_margin_loss": f"input, target, {_OLD}",
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


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d the Euclidean distance unless distance_function is
    given; swap: the nearer of anchor and positive counts. reduction: "mean", "sum" or "none". ValueError for other
    reductions, and margins that are not positive.

    >>> a, p, n = sf.tensor([[0., 0.]]), sf.tensor([[0., 1.]]), sf.tensor([[3., 4.]])
    >>> F.triplet_margin_with_distance_loss(a, p, n, margin=5.0)
    tensor(1.0000)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    distance = _core.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _core.minimum(far, distance(positive, negative))
    y = _core.clamp(margin + near - far, 0)
    return y.mean() if reduction == "mean" else y.sum() if reduction == "sum" else y


def linear_cross_entropy(
    input,
    linear_weight,
    target,
    *,
    linear_bias=None,
    weight=None,
    reduction="mean",
    ignore_index=None,
    label_smoothing=0.0,
    options=None,
):
    """cross_entropy, by its weight, reduction, ignore_index and label_smoothing, of the logits linear(input[..., in],
    linear_weight[C, ..., in], linear_bias[C, ...]).

    options (nn.LinearCrossEntropyOptions): logits of input[N, in] and class numbers target[N] are made a chunk of rows
    at a time, and again for the gradients. Of other shapes and of probabilities they are made whole, with a warning.

    >>> x, weight = sf.ones(2, 4), sf.zeros(3, 4)
    >>> F.linear_cross_entropy(x, weight, sf.tensor([0, 2]))
    tensor(1.0986)
    """
    ignore_index = -100 if ignore_index is None else ignore_index
    if options is not None:
        if input.dim() == 2 and linear_weight.dim() == 2 and target.dim() == 1 and len(target):
            from .linear_cross_entropy import in_chunks

            rest = (linear_bias, weight, reduction, ignore_index, label_smoothing, options)
            return in_chunks(input, linear_weight, target, *rest)
        import warnings

        warnings.warn(
            "linear_cross_entropy: options need input[N, in], linear_weight[C, in] and class numbers target[N], got "
            f"{list(input.shape)}, {list(linear_weight.shape)} and {list(target.shape)}; the logits are made whole",
            stacklevel=2,
        )
    classes = linear_weight.shape[:-1]
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = _core.linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    logits = logits.reshape(*input.shape[:-1], *classes)
    return _core.cross_entropy(logits, target, weight, ignore_index, reduction, label_smoothing)


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups, as layers of experts have them. offs[G] (integers) are the ends of the groups in what is 2-D:

    a[M, K], b[G, K, N]: rows of a, to [M, N]; a[G, M, K], b[K, N]: columns of b, to [M, N]; a[M, K], b[K, N]: of the
    summed dimension, to [G, M, N]; a[G, M, K], b[G, K, N]: without offs, to [G, M, N]. Rows and columns after the last
    end are 0. ValueError for other shapes and for ends that fall or exceed the dimension.

    >>> x, weights = sf.ones(5, 3), sf.ones(2, 3, 4)
    >>> F.grouped_mm(x, weights, offs=sf.tensor([2, 5], dtype=sf.int32)).shape
    scaffolding.Size([5, 4])
    """
    if mat_a.dim() not in (2, 3) or mat_b.dim() not in (2, 3) or mat_a.shape[-1] != mat_b.shape[-2]:
        shapes = f"{list(mat_a.shape)} and {list(mat_b.shape)}"
        raise ValueError(f"grouped_mm: needs [M, K] and [K, N], either with groups, got {shapes}")
    if bias is not None:
        raise NotImplementedError("grouped_mm: bias is not supported; add it to the result")
    if mat_a.dim() == mat_b.dim() == 3:
        if offs is not None or mat_a.shape[0] != mat_b.shape[0]:
            raise ValueError("grouped_mm: of two 3-D operands offs must be None and the groups equally many")
        product = _core.bmm(mat_a, mat_b)
        return product if out_dtype is None else product.to(out_dtype)
    groups = mat_a.shape[0] if mat_a.dim() == 3 else mat_b.shape[0] if mat_b.dim() == 3 else None
    size = mat_b.shape[1] if mat_a.dim() == 3 else mat_a.shape[0] if mat_b.dim() == 3 else mat_a.shape[1]
    ends = [] if offs is None else offs.tolist()
    if offs is None or len(ends) != (groups or len(ends)) or any(a > b for a, b in zip([0, *ends], [*ends, size])):
        raise ValueError(
            f"grouped_mm: offs must be {groups or 'as many'} ends of groups, rising to at most {size}, got "
            f"{None if offs is None else ends}"
        )
    parts = []
    for i, (a, b) in enumerate(zip([0, *ends], ends)):
        if mat_b.dim() == 3:
            parts.append(_core.matmul(mat_a[a:b], mat_b[i]))
        elif mat_a.dim() == 3:
            parts.append(_core.matmul(mat_a[i], mat_b[:, a:b]))
        else:
            parts.append(_core.matmul(mat_a[:, a:b], mat_b[a:b]))
    if groups is None:
        product = _core.stack(parts, 0)
    else:
        dim, rest = (0, [0, 0, 0]) if mat_b.dim() == 3 else (1, [0])
        product = _core.pad(_core.cat(parts, dim), [*rest, size - (ends[-1] if ends else 0)])
    return product if out_dtype is None else product.to(out_dtype)


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


# ---- embedding_bag


def _embedding_bag(op, arguments):
    if arguments.pop("sparse", False):
        raise NotImplementedError(
            "embedding_bag: sparse=True is not supported, the gradient is dense; leave sparse=False"
        )
    max_norm, norm_type = arguments.pop("max_norm", None), arguments.pop("norm_type", 2.0)
    if max_norm is not None:
        _core.embedding_renorm_(arguments["weight"], arguments["input"], max_norm, norm_type)
    return op(**arguments)


_form(
    "embedding_bag",
    "input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', sparse=False, "
    "per_sample_weights=None, include_last_offset=False, padding_idx=None",
    _embedding_bag,
)


# ---- ctc_loss with lengths in tuples


def _lengths(x):
    return x if isinstance(x, _core.Tensor) else _core.tensor(x, dtype=_core.int64)


def _ctc_loss(op, arguments):
    arguments |= {name: _lengths(arguments[name]) for name in ("input_lengths", "target_lengths")}
    return op(**arguments)


_form(
    "ctc_loss",
    "log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False",
    _ctc_loss,
)


# ---- interpolate's older names


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate(input, size, scale_factor, mode, align_corners), by its old name."""
    warnings.warn("upsample is deprecated, use interpolate", stacklevel=2)
    return _core.interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate(input, size, scale_factor, mode="nearest"), by its old name."""
    warnings.warn("upsample_nearest is deprecated, use interpolate", stacklevel=2)
    return _core.interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate(input, size, scale_factor, mode="bilinear", align_corners=True), by its old name."""
    warnings.warn("upsample_bilinear is deprecated, use interpolate", stacklevel=2)
    return _core.interpolate(input, size, scale_factor, "bilinear", True)


# ---- what needs no op of its own

native_channel_shuffle = _core.channel_shuffle


def conv_tbc(input, weight, bias, pad=0):
    """A convolution over time: input[T, B, C], weight[K, C, O], bias[O], pad zeros at both ends -> [T', B, O].

    >>> F.conv_tbc(sf.ones(5, 1, 3), sf.ones(2, 3, 4), sf.zeros(4)).shape
    scaffolding.Size([4, 1, 4])
    """
    return _core.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


__all__ += [
    "conv_tbc",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "linear_cross_entropy",
    "multi_head_attention_forward",
    "native_channel_shuffle",
    "triplet_margin_with_distance_loss",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
