"""ASGD."""

from .optimizer import RuleOptimizer


class ASGD(RuleOptimizer):
    """Averaged descent (Polyak and Juditsky 1992) with torch.optim.ASGD's options. state[p]["ax"] is the average of the
    parameter since step t0.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, eta, mu, ax.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.ASGD([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "ASGD"

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        self._begin(locals())
