"""NAdam."""

from .optimizer import RuleOptimizer


class NAdam(RuleOptimizer):
    """NAdam (Dozat 2016), Adam with Nesterov's momentum, with torch.optim.NAdam's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, exp_avg, exp_avg_sq, mu_product.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.NAdam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.8944, 0.8944])
    """

    _rule = "NAdam"

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        self._begin(locals())
