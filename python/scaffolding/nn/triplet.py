"""The triplet loss with a distance of one's own."""

from .. import _core
from .._documents import add_to
from . import functional
from .module import Module


class TripletMarginWithDistanceLoss(Module):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)); distance_function, the Euclidean distance unless
    given, takes two tensors [N, ...] and gives one of [N]. swap: the nearer of anchor and positive counts.

    >>> distance = lambda x, y: 1 - F.cosine_similarity(x, y)
    >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=distance)
    >>> loss(sf.tensor([[1., 0.]]), sf.tensor([[1., 0.]]), sf.tensor([[0., 1.]]))
    tensor(0.)
    """

    def __init__(self, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
        super().__init__()
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function = _core._layer_PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap, self.reduction = margin, swap, reduction

    def forward(self, anchor, positive, negative):
        """The loss of anchor, positive and negative, of one shape."""
        return functional.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


TripletMarginWithDistanceLoss.__module__ = "scaffolding.nn"


add_to(TripletMarginWithDistanceLoss, "nn")
