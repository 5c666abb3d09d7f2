"""RAdam."""

from .optimizer import RuleOptimizer, _refuse


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
        _refuse("RAdam", capturable=capturable, differentiable=differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        self._check(defaults)
        super().__init__(params, defaults)
