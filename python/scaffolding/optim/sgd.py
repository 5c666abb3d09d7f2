"""Stochastic gradient descent."""

from .._core import Tensor
from .capturable import CapturableOptimizer
from .optimizer import _refuse


class SGD(CapturableOptimizer):
    """Gradient descent with momentum, dampening and Nesterov's form; options as torch.optim.SGD.

    All tensors of a step are updated in one pass, so foreach and fused change nothing. master_weights: as Adam's.
    state: momentum_buffer, with master_weights master. ValueError for negative options, and nesterov without momentum
    or with dampening. capturable: as Adam's; lr as a CUDA tensor is capturable too.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
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
        capturable=False,
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
            "capturable": capturable,
        }
        self._check_group(defaults)
        super().__init__(params, defaults)

    def _is_capturable(self, group):
        return group["capturable"] or isinstance(group["lr"], Tensor)
