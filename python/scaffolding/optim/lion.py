"""Lion."""

from .optimizer import RuleOptimizer


class Lion(RuleOptimizer):
    """Lion (Chen et al. 2023): steps of size lr in the direction of the sign of a moving average. Rates are three to
    ten times smaller than AdamW's, and weight_decay, which is beside the gradient, as much larger.

    Statistics are float32 for 16-bit parameters. state: step, exp_avg.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Lion([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "Lion"

    def __init__(
        self,
        params,
        lr=1e-4,
        betas=(0.9, 0.99),
        weight_decay=0,
        *,
        maximize=False,
    ):
        self._begin(locals())
