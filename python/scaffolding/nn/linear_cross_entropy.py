"""LinearCrossEntropyLoss, and its logits in chunks of rows that are made again for the gradients."""

import dataclasses

from .. import _core
from .._documents import add_to
from . import functional
from .module import Module


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How many rows of the input have logits at a time: batch_chunk_size of them, or as chunking_method says.

    "auto" and "aspect_ratio": so many that a chunk's logits take no more than the input, a power of two;
    "aspect_ratio:N": an N-th of it; None: batch_chunk_size, or all rows. Gradients are made from logits that are
    computed again, so that backward may run as often as the graph is kept: allow_retain_graph, acc_policy and
    acc_dtype are accepted and change nothing. ValueError for other values, and for both sizes at once.

    >>> options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    >>> loss = nn.LinearCrossEntropyLoss(8, 1000, options=options)
    >>> loss(sf.randn(4, 8), sf.tensor([1, 2, 3, 4])).shape
    scaffolding.Size([])
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: object = None

    def __post_init__(self):
        if self.acc_policy not in ("auto", "accurate", "compact"):
            raise ValueError(f"acc_policy must be 'auto', 'accurate' or 'compact', got {self.acc_policy!r}")
        if self.batch_chunk_size is not None and self.batch_chunk_size < 1:
            raise ValueError(f"batch_chunk_size must be positive, got {self.batch_chunk_size}")
        if self.chunking_method not in (None, "auto"):
            name, _, factor = self.chunking_method.partition(":")
            if name != "aspect_ratio" or (factor and not (factor.isdecimal() and int(factor) > 0)):
                raise ValueError(
                    f"chunking_method must be 'auto', 'aspect_ratio', 'aspect_ratio:N' or None, "
                    f"got {self.chunking_method!r}"
                )
            if self.batch_chunk_size is not None:
                raise ValueError("batch_chunk_size and chunking_method both say how many rows; leave one of them")

    def rows(self, batch, in_features, classes):
        """Rows of a chunk, for input [batch, in_features] and so many classes."""
        if self.batch_chunk_size is not None:
            return self.batch_chunk_size
        if self.chunking_method is None:
            return max(batch, 1)
        factor = int(self.chunking_method.partition(":")[2] or 1)
        ratio = -(-classes // in_features)
        return max((1 << max(-(-batch // ratio) - 1, 0).bit_length()) // factor, 1)


def in_chunks(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, options):
    """linear_cross_entropy of input[N, in] and class numbers target[N], a chunk of rows at a time."""
    from ..utils.checkpoint import checkpoint

    classes, features = linear_weight.shape

    def loss(rows, linear_weight, linear_bias, target):
        logits = _core.linear(rows, linear_weight, linear_bias)
        kind = "none" if reduction == "none" else "sum"
        return _core.cross_entropy(logits, target, weight, ignore_index, kind, label_smoothing)

    step = options.rows(input.shape[0], features, classes)
    losses = [
        checkpoint(loss, input[at : at + step], linear_weight, linear_bias, target[at : at + step], use_reentrant=False)
        for at in range(0, input.shape[0], step)
    ]
    if reduction == "none":
        return _core.cat(losses, 0)
    total = losses[0]
    for more in losses[1:]:
        total = total + more
    if reduction == "sum":
        return total
    counted = _core.ne(target, ignore_index)
    if weight is None:
        return total / counted.sum().to(total.dtype)
    weights = _core.index_select(weight, 0, _core.where(counted, target, _core.zeros_like(target)))
    return total / (weights * counted.to(weights.dtype)).sum()


class LinearCrossEntropyLoss(Module):
    """cross_entropy of the logits linear(input): input[N, in_features] and target[N, *out_features] of class numbers,
    or probabilities [N, num_classes, *out_features].

    linear.weight is [num_classes * prod(out_features), in_features]; bias adds linear.bias. weight[num_classes]
    rescales classes; reduction is "none", "mean" or "sum". RuntimeError for a weight of another shape and for
    label_smoothing outside 0 .. 1. options: LinearCrossEntropyOptions, with which the logits are never whole.

    >>> loss = nn.LinearCrossEntropyLoss(8, 1000)
    >>> loss(sf.randn(4, 8), sf.tensor([1, 2, 3, 4])).shape
    scaffolding.Size([])
    """

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        out_features=(),
        bias=False,
        device=None,
        dtype=None,
        reduction="mean",
        weight=None,
        ignore_index=None,
        label_smoothing=0.0,
        options=None,
    ):
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__()
        from . import Linear

        self.in_features, self.num_classes, self.out_features = in_features, num_classes, tuple(out_features)
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing
        self.options = options
        outputs = num_classes
        for size in self.out_features:
            outputs *= size
        self.linear = Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)
        self.register_buffer("weight", weight)

    def forward(self, input, target):
        """The loss of input[..., in]: a number, or with reduction "none" of target's shape without classes."""
        sizes = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return functional.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*sizes, self.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(*sizes),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self):
        return f"in_features={self.in_features}, num_classes={self.num_classes}, out_features={self.out_features}"


add_to(LinearCrossEntropyLoss, "nn")
