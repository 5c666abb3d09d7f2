"""RAdam."""

from .optimizer import RuleOptimizer


class RAdam(RuleOptimizer):
    """RAdam (Liu et al. 2020), Adam that divides by the second moment only once its variance is small, with
    torch.optim.RAdam's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, exp_avg, exp_avg_sq.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.RAdam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "RAdam"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        self._begin(locals())
