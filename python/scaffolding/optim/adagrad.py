"""Adagrad."""

from .optimizer import RuleOptimizer


class Adagrad(RuleOptimizer):
    """Adagrad (Duchi, Hazan and Singer 2011) with torch.optim.Adagrad's options.

    foreach and fused change nothing. Statistics are float32 for 16-bit parameters. state: step, sum.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Adagrad([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "Adagrad"

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        self._begin(locals())
