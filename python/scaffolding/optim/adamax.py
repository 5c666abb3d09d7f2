"""Adamax."""

from .optimizer import RuleOptimizer


class Adamax(RuleOptimizer):
    """Adamax (Kingma and Ba 2015), Adam by the largest gradient instead of the mean square, with torch.optim.Adamax's
    options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, exp_avg, exp_inf.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Adamax([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "Adamax"

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        self._begin(locals())
