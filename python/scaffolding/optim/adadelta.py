"""Adadelta."""

from .optimizer import RuleOptimizer


class Adadelta(RuleOptimizer):
    """Adadelta (Zeiler 2012) with torch.optim.Adadelta's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, square_avg, acc_delta.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Adadelta([w])
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9968, 0.9968])
    """

    _rule = "Adadelta"

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
    ):
        self._begin(locals())
