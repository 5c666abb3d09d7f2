"""Optimizers whose numbers can be in device memory, so that their steps can be part of a CUDA graph."""

import math

from .. import _core
from .._core import Tensor
from .optimizer import RuleOptimizer


class CapturableOptimizer(RuleOptimizer):
    """An optimizer by a rule with betas, that reads step count and learning rate from the device in groups with capturable=True."""

    _step_supports_amp_scaling = True

    def _check_group(self, group):
        if isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise ValueError(f"{type(self).__name__}: lr as a tensor needs capturable=True")
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
            self._update(self.state, dict(group, params=params, lr=0.0, capturable=True, _numbers=self._numbers(group, step, found)))

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

    def _numbers(self, group, step, found):
        """What the kernel reads (scaffolding/ops/adamw/kernel.h)."""
        lr, (beta1, beta2) = group["lr"], group["betas"]
        if not isinstance(lr, Tensor):
            if _core._cuda_is_capturing():
                raise RuntimeError(f"{type(self).__name__}.step: a captured lr would stay that of the capture in every replay; give lr as a CUDA tensor")
            lr = _core.full((), lr, dtype=_core.float64, device=step.device)
        count, lr = step.to(_core.float64), lr.detach().reshape(()).to(_core.float64)
        power = [(count * (math.log(b) if b > 0 else -math.inf)).exp() for b in (beta1, beta2)]
        one = _core.ones((), dtype=_core.float64, device=step.device)
        skip = one - 1 if found is None else found.to(_core.float64)
        return _core.stack([lr, lr / (1 - power[0]), (1 - power[1]).sqrt(), one, skip])
