"""Adam, AdamW, and AdamW with moments in eight bits."""

from .capturable import CapturableOptimizer
from .optimizer import _refuse


class Adam(CapturableOptimizer):
    """Adam (Kingma and Ba 2015) with weight decay as part of the gradient; options as torch.optim.Adam.

    All tensors of a step are updated by one C++ call in one pass over their memory,
    so foreach and fused change nothing.
    Statistics are float32 for 16-bit parameters, float64 for float64. master_weights=True keeps a float32 copy of each
    16-bit parameter, trains that, and rounds it into the parameter: without it, updates below half a unit in the last
    place are lost. state: step (0-d float32), exp_avg, exp_avg_sq, with amsgrad max_exp_avg_sq,
    with master_weights master.
    ValueError for a negative lr, eps or weight_decay, and betas outside [0, 1).

    capturable=True: step count and options are in device memory, so that step() can be part of a CUDA graph and
    GradScaler(capturable=True) can skip it there. Each replay takes lr, betas, eps and weight_decay from the group as
    they are then, so that schedules work as ever; lr may be a CUDA tensor too.
    A step before the capture makes the state.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Adam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "Adam"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
        master_weights=False,
    ):
        _refuse(type(self).__name__, differentiable=differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
            "master_weights": master_weights,
        }
        self._check_group(defaults)
        super().__init__(params, defaults)


class AdamW(Adam):
    """Adam with weight decay beside the gradient (Loshchilov and Hutter 2019);
    options as torch.optim.AdamW and Adam's.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.AdamW([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.8990, 0.8990])
    """

    _rule = "AdamW"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
        master_weights=False,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
            master_weights=master_weights,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class AdamW8bit(CapturableOptimizer):
    """AdamW whose moments take two bytes a parameter instead of eight, as bitsandbytes.optim.AdamW8bit.

    Blocks of 256 values share a scale; each value is the index of the nearest of 256 levels of the dynamic map
    (Dettmers et al. 2022). The update between reading and writing the moments is AdamW's;
    weight decay comes before it, as in torch.
    Tensors of fewer than min_8bit_size elements, and float64 ones, keep full moments. master_weights: as Adam's.
    state: step, state1, state2 (uint8 of the parameter's shape), absmax1, absmax2 (float32, one per block).
    capturable: as Adam's.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.AdamW8bit([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.8990, 0.8990])
    """

    _rule = "AdamW8bit"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        *,
        min_8bit_size=4096,
        maximize=False,
        master_weights=False,
        capturable=False,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "min_8bit_size": min_8bit_size,
            "maximize": maximize,
            "master_weights": master_weights,
            "capturable": capturable,
        }
        self._check_group(defaults)
        super().__init__(params, defaults)
