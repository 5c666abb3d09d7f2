"""Muon beside its formula in float64."""

import math

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import optim

# Of the largest move: singular values are spread by the iteration, which bfloat16 does not keep.
EXACT = 3e-2 if sf.backends.cpu.has_bf16() else 1e-5


def orthogonal(x, coefficients, steps):
    a, b, c = coefficients
    x = x / np.linalg.norm(x)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.parametrize("shape", [(6, 4), (4, 9), (5, 5)])
@pytest.mark.parametrize("options", [
    {},
    {"nesterov": False, "lr": 0.02},
    {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.5},
    {"adjust_lr_fn": "spectral_unclamped", "weight_decay": 0, "ns_steps": 3, "ns_coefficients": (2, -1.5, 0.5)},
])  # fmt: skip
def test_steps(shape, options):
    full = {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "ns_steps": 5} | options
    rows, columns = shape
    factor = {
        None: math.sqrt(max(1, rows / columns)),
        "match_rms_adamw": 0.2 * math.sqrt(max(shape)),
        "spectral_unclamped": math.sqrt(rows / columns),
    }[options.get("adjust_lr_fn")]
    generator = np.random.default_rng(3)
    start = generator.normal(size=shape)
    want, buffer = start.copy(), np.zeros(shape)
    parameter = sf.nn.Parameter(sf.tensor(start, dtype=sf.float32))
    optimizer = optim.Muon([parameter], **options)
    for _ in range(5):
        gradient = generator.normal(size=shape)
        parameter.grad = sf.tensor(gradient, dtype=sf.float32)
        optimizer.step()
        momentum = full["momentum"]
        buffer = momentum * buffer + (1 - momentum) * gradient
        update = (1 - momentum) * gradient + momentum * buffer if full["nesterov"] else buffer
        update = orthogonal(update, full.get("ns_coefficients", (3.4445, -4.7750, 2.0315)), full["ns_steps"])
        want = want * (1 - full["lr"] * full["weight_decay"]) - full["lr"] * factor * update
    moved = np.abs(want - start).max()
    roundings = 5 * np.abs(start).max() * 2**-24  # of the parameter, once a step
    assert np.abs(parameter.detach().numpy() - want).max() < EXACT * moved + roundings
    again = optim.Muon([parameter], **options)
    again.load_state_dict(optimizer.state_dict())
    assert again.state[parameter]["momentum_buffer"].equal(optimizer.state[parameter]["momentum_buffer"])


def test_what_is_refused():
    p = sf.nn.Parameter(sf.ones(3, 2))
    for options, text in (
        ({"lr": -1}, "Invalid learning rate: -1"), ({"momentum": -1}, "Invalid momentum value"),
        ({"ns_steps": 100}, "ns_steps must be in 0 .. 99"), ({"ns_coefficients": (1, 2)}, "must be three numbers"),
        ({"adjust_lr_fn": "best"}, "adjust_lr_fn must be one of"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            optim.Muon([p], **options)
    with pytest.raises(ValueError, match=r"parameters must have two dimensions, got shape \[3\]; give it to AdamW"):
        optim.Muon([sf.nn.Parameter(sf.ones(3))])
