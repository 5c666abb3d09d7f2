"""Muon."""

import math

from .. import _core
from ..autograd.grad_mode import enable_grad, no_grad
from .optimizer import Optimizer

_ADJUSTMENTS = (None, "original", "match_rms_adamw", "spectral_unclamped")


class Muon(Optimizer):
    """Muon (Jordan 2024) with torch.optim.Muon's options and state: momentum whose matrix is made orthogonal by
    ns_steps of a Newton-Schulz iteration with ns_coefficients (a, b, c). For weights with two dimensions; biases,
    embeddings and the first and last layers belong to AdamW.

    adjust_lr_fn: "original" multiplies lr by sqrt(max(1, rows / columns)), "match_rms_adamw" by 0.2 sqrt(max(rows,
    columns)), with which AdamW's lr and weight_decay serve, "spectral_unclamped" by sqrt(rows / columns).
    The iteration is computed in bfloat16 as torch's is, in float32 where the processor has no bfloat16.
    state: momentum_buffer. ValueError for options out of range and for parameters of other than two dimensions.

    >>> w = nn.Parameter(sf.eye(2))
    >>> optimizer = optim.Muon([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data.diagonal().round(decimals=2)
    tensor([0.9600, 0.9600])
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.7750, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        if not lr >= 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not momentum >= 0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if not weight_decay >= 0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if not 0 <= ns_steps < 100:
            raise ValueError(f"Muon: ns_steps must be in 0 .. 99, got {ns_steps}")
        if len(ns_coefficients) != 3:
            raise ValueError(f"Muon: ns_coefficients must be three numbers, got {ns_coefficients}")
        if adjust_lr_fn not in _ADJUSTMENTS:
            raise ValueError(f"Muon: adjust_lr_fn must be one of {_ADJUSTMENTS}, got {adjust_lr_fn!r}")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(
                        f"Muon: parameters must have two dimensions, got shape {list(p.shape)}; give it to AdamW"
                    )

    @no_grad()
    def step(self, closure=None):
        """One step; closure, if given, computes the loss, which is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = _core.zeros_like(p.grad)
                options = {name: value for name, value in group.items() if name in self.defaults}
                step_of_matrix(p, p.grad, state["momentum_buffer"], **options)
        return loss


@no_grad()
def step_of_matrix(
    p, grad, buffer, *, lr, weight_decay, momentum, nesterov, ns_coefficients, ns_steps, eps, adjust_lr_fn
):
    """Muon's step of one parameter of two dimensions; p and the momentum's buffer change in place."""
    lr = float(lr)
    buffer.lerp_(grad, 1 - momentum)
    update = grad.lerp(buffer, momentum) if nesterov else buffer
    update = _orthogonal(update, ns_coefficients, ns_steps, eps)
    p.mul_(1 - lr * weight_decay)
    p.add_(update.to(p.dtype), alpha=-lr * _adjustment(adjust_lr_fn, *p.shape))


def _adjustment(name, rows, columns):
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    ratio = rows / columns
    return math.sqrt(ratio if name == "spectral_unclamped" else max(1, ratio))


def _orthogonal(matrix, coefficients, steps, eps):
    """About U V^T of the matrix U S V^T: singular values come to about 0.7 .. 1.2."""
    from ..backends import cpu

    a, b, c = coefficients
    fast = matrix.device.type != "cpu" or cpu.has_bf16()
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(_core.bfloat16 if fast else _core.float32)
    x = x.t() if tall else x
    x = x / _core.norm(x).clamp(min=eps)
    for _ in range(steps):
        gram = _core.matmul(x, x.t())
        x = _core.addmm(x, _core.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x
