"""The loss and log-probabilities of many classes, of which few are frequent."""

import math
from collections import namedtuple

from .. import _core
from .._documents import add_to
from . import init
from .container import ModuleList, Sequential
from .module import Module

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Efficient softmax (Grave et al. 2017): classes below cutoffs[0] and each further cluster of classes, as one, are
    outputs of `head`; a cluster's classes are those of a layer in `tail`, whose width falls by div_value each time.

    forward(input[N, in_features], target[N]) -> (output[N], the targets' log-probabilities, loss, their negative
    mean). ValueError for cutoffs that do not rise within 1 .. n_classes - 1.

    >>> head = nn.AdaptiveLogSoftmaxWithLoss(8, 100, cutoffs=[10, 50])
    >>> output, loss = head(sf.randn(4, 8), sf.tensor([3, 20, 60, 99]))
    >>> output.shape, head.predict(sf.randn(4, 8)).shape
    (scaffolding.Size([4]), scaffolding.Size([4]))
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            any(int(c) != c for c in cutoffs)
            or any(a >= b for a, b in zip(cutoffs, cutoffs[1:]))
            or cutoffs[0] <= 0
            or cutoffs[-1] > n_classes - 1
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        place, linear = {"device": device, "dtype": dtype}, _core._layer_Linear
        self.head = linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(linear(in_features, width, bias=False, **place), linear(width, size, bias=False, **place))
            )

    def reset_parameters(self):
        """Draws all weights anew, as Linear does."""
        for layer in (self.head, *(m for pair in self.tail for m in pair)):
            init.kaiming_uniform_(layer.weight, a=math.sqrt(5))
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.in_features)
                init.uniform_(layer.bias, -bound, bound)

    def forward(self, input_, target_):
        """(log-probabilities of target_[N], the loss) of input_[N, in_features]."""
        if target_.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input_.dim() != target_.dim() + 1:
            raise RuntimeError(
                f"{target_.dim()}D target tensor expects {target_.dim() + 1}D input tensors, but found inputs with "
                f"size {list(input_.shape)}"
            )
        batched = target_.dim() == 1
        if batched and len(input_) != len(target_):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        input, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        if len(target) and not bool(((target >= 0) & (target < self.n_classes)).all().item()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{target.min().item()}, "
                f"{target.max().item()}] were found. "
            )
        # Of rows whose target is in a cluster, the head's output is the cluster.
        cluster = sum((target >= cutoff).long() for cutoff in self.cutoffs[:-1])
        in_head = _core.where(cluster == 0, target, self.shortlist_size - 1 + cluster)
        output = _core.log_softmax(self.head(input), 1).gather(1, in_head.unsqueeze(1)).squeeze(1)
        for i, tail in enumerate(self.tail):
            rows = _core.nonzero(cluster == i + 1).squeeze(1)
            if len(rows):
                chosen = (_core.index_select(target, 0, rows) - self.cutoffs[i]).unsqueeze(1)
                of_class = _core.log_softmax(tail(_core.index_select(input, 0, rows)), 1).gather(1, chosen)
                output = _core.index_add(output, 0, rows, of_class.squeeze(1))
        loss = -output.mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input):
        """The log-probabilities [N, n_classes] of input[N, in_features]."""
        head = _core.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            parts.append(_core.log_softmax(tail(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return _core.cat(parts, 1)

    def predict(self, input):
        """The most likely class [N] of each row of input[N, in_features]."""
        return _core.argmax(self.log_prob(input), 1)


AdaptiveLogSoftmaxWithLoss.__module__ = "scaffolding.nn"


add_to(AdaptiveLogSoftmaxWithLoss, "nn")
