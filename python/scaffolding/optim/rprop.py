"""Rprop."""

from .optimizer import RuleOptimizer


class Rprop(RuleOptimizer):
    """Rprop (Riedmiller and Braun 1993), for gradients of whole data sets, with torch.optim.Rprop's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, prev, step_size.
    ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Rprop([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "Rprop"

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        self._begin(locals())
