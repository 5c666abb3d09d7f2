"""RAdam."""

from .optimizer import RuleOptimizer


class RAdam(RuleOptimizer):
    """RAdam (Liu et al. 2020), Adam that divides by the second moment only once its variance is small, with
    torch.optim.RAdam's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, exp_avg, exp_avg_sq.
    ValueError for options out of range.
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
