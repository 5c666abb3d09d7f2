"""Adam, AdamW, and AdamW with moments in eight bits."""

import math

from .. import _core
from .._core import Tensor
from .optimizer import RuleOptimizer, _refuse


class Adam(RuleOptimizer):
    """Adam (Kingma and Ba 2015) with weight decay as part of the gradient; options as torch.optim.Adam.

    All tensors of a step are updated by one C++ call in one pass over their memory, so foreach and fused change nothing.
    Statistics are float32 for 16-bit parameters, float64 for float64. master_weights=True keeps a float32 copy of each
    16-bit parameter, trains that, and rounds it into the parameter: without it, updates below half a unit in the last place
    are lost. state: step (0-d float32), exp_avg, exp_avg_sq, with amsgrad max_exp_avg_sq, with master_weights master.
    ValueError for a negative lr, eps or weight_decay, and betas outside [0, 1).

    capturable=True: the step count is in device memory, so that step() can be part of a CUDA graph and GradScaler(capturable=True) can skip it there. Give
    lr as a CUDA tensor, which schedules fill; a step before the capture makes the state.
    """

    _rule = "Adam"
    _step_supports_amp_scaling = True

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
        if isinstance(lr, Tensor) and not capturable:
            raise ValueError(f"{type(self).__name__}: lr as a tensor needs capturable=True")
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

    def _check_group(self, group):
        super()._check_group(dict(group, lr=float(group["lr"])) if isinstance(group["lr"], Tensor) else group)
        if group["capturable"] and any(p.device.type != "cuda" for p in group.get("params", ())):
            raise ValueError(f"{type(self).__name__}: capturable=True needs parameters on CUDA")

    def step(self, closure=None):
        """Updates every parameter that has a gradient. With a closure: calls it first, with recording on, and returns its loss."""
        if not any(group["capturable"] for group in self.param_groups):
            return super().step(closure)
        return super()._step(closure, self._step_group)

    def _step_group(self, group):
        if not group["capturable"]:
            return self._update(self.state, group)
        by_step = {}
        for p in group["params"]:
            if p.grad is not None:
                by_step.setdefault(id(self._device_step(p)), []).append(p)
        found = getattr(self, "found_inf", None)
        for params in by_step.values():
            step = self.state[params[0]]["step"]
            step += 1 if found is None else 1 - found
            self._update(self.state, dict(group, params=params, lr=0.0, _numbers=self._numbers(group, step, found)))

    def _device_step(self, p):
        """The step count of a parameter: a tensor that those of equal counts share, so that a step counts once."""
        shared = self.__dict__.setdefault("_device_steps", [])
        step = self.state[p].get("step") if p in self.state else None
        if any(step is s for s in shared):
            return step
        if _core._cuda_is_capturing():
            raise RuntimeError(f"{type(self).__name__}.step: the first step makes the state and cannot be captured; call step() once before the capture")
        count = 0.0 if step is None else float(step)
        for known in shared:
            if known.device == p.device and known.item() == count:
                break
        else:
            known = _core.full((), count, dtype=_core.float32, device=p.device)
            shared.append(known)
        self.state[p]["step"] = known
        return known

    @staticmethod
    def _numbers(group, step, found):
        """What the kernel reads (scaffolding/ops/adamw/kernel.h)."""
        lr, (beta1, beta2) = group["lr"], group["betas"]
        if not isinstance(lr, Tensor):
            if _core._cuda_is_capturing():
                raise RuntimeError("Adam.step: a captured lr would stay that of the capture in every replay; give lr as a CUDA tensor")
            lr = _core.full((), lr, dtype=_core.float64, device=step.device)
        count, lr = step.to(_core.float64), lr.detach().reshape(()).to(_core.float64)
        power = [(count * (math.log(b) if b > 0 else -math.inf)).exp() for b in (beta1, beta2)]
        one = _core.ones((), dtype=_core.float64, device=step.device)
        skip = one - 1 if found is None else found.to(_core.float64)
        return _core.stack([lr, lr / (1 - power[0]), (1 - power[1]).sqrt(), one, skip])


class AdamW(Adam):
    """Adam with weight decay beside the gradient (Loshchilov and Hutter 2019); options as torch.optim.AdamW and Adam's."""

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


class AdamW8bit(RuleOptimizer):
    """AdamW whose moments take two bytes a parameter instead of eight, as bitsandbytes.optim.AdamW8bit.

    Blocks of 256 values share a scale; each value is the index of the nearest of 256 levels of the dynamic map (Dettmers et
    al. 2022). The update between reading and writing the moments is AdamW's; weight decay comes before it, as in torch.
    Tensors of fewer than min_8bit_size elements, and float64 ones, keep full moments. master_weights: as Adam's.
    state: step, state1, state2 (uint8 of the parameter's shape), absmax1, absmax2 (float32, one per block).
    """

    _rule = "AdamW8bit"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, *, min_8bit_size=4096, maximize=False, master_weights=False):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "min_8bit_size": min_8bit_size,
            "maximize": maximize,
            "master_weights": master_weights,
        }
        self._check(defaults)
        super().__init__(params, defaults)
