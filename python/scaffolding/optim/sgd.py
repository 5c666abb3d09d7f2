"""Stochastic gradient descent."""

from .. import _core
from .._core import Tensor
from .optimizer import RuleOptimizer, _refuse


class SGD(RuleOptimizer):
    """Gradient descent with momentum, dampening and Nesterov's form; options as torch.optim.SGD.

    All tensors of a step are updated in one pass, so foreach and fused change nothing. master_weights: as Adam's.
    state: momentum_buffer, with master_weights master. ValueError for negative options, and nesterov without momentum or
    with dampening. lr may be a CUDA tensor, which a step that is part of a CUDA graph reads anew in each replay; a number stays that of the capture.
    """

    _rule = "SGD"

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
        master_weights=False,
    ):
        _refuse("SGD", differentiable=differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
            "master_weights": master_weights,
        }
        self._check_group(defaults)
        super().__init__(params, defaults)

    def _check_group(self, group):
        lr = group["lr"]
        if isinstance(lr, Tensor) and lr.device.type != "cuda":
            raise ValueError(f"SGD: lr as a tensor must be on CUDA, got one on {lr.device}")
        super()._check_group(dict(group, lr=float(lr)) if isinstance(lr, Tensor) else group)

    def step(self, closure=None):
        """Updates every parameter that has a gradient. With a closure: calls it first, with recording on, and returns its loss."""
        return super()._step(closure, self._step_group)

    def _step_group(self, group):
        lr = group["lr"]
        if not isinstance(lr, Tensor):
            return self._update(self.state, group)
        lr = lr.detach().reshape(()).to(_core.float64)
        one = _core.ones((), dtype=_core.float64, device=lr.device)
        self._update(self.state, dict(group, lr=0.0, _numbers=_core.stack([lr, lr, one, one, one - 1])))
