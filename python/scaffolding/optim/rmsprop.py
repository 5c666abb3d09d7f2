"""RMSprop."""

from .optimizer import RuleOptimizer


class RMSprop(RuleOptimizer):
    """RMSprop (Tieleman and Hinton 2012) with torch.optim.RMSprop's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, square_avg, with momentum
    momentum_buffer, with centered grad_avg.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.RMSprop([w], lr=0.01)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "RMSprop"

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        self._begin(locals())
