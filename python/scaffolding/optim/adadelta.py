"""Adadelta."""

from .optimizer import RuleOptimizer, _refuse


class Adadelta(RuleOptimizer):
    """Adadelta (Zeiler 2012) with torch.optim.Adadelta's options.

    foreach changes nothing. Statistics are float32 for 16-bit parameters. state: step, square_avg, acc_delta.
    ValueError for options out of range.
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
        _refuse("Adadelta", capturable=capturable, differentiable=differentiable)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "capturable": capturable,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        self._check(defaults)
        super().__init__(params, defaults)
