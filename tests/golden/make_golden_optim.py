"""Writes tests/golden/optim.json.xz: what torch's optimizers and schedules, diffusers' schedules and EMAModel, and
torch's GradScaler compute.

    python tests/golden/make_golden_optim.py      # a Python that has torch and diffusers

Optimizers: the parameters after each of ten steps with fixed gradients, for sets of options, and the state dictionary
after the fifth. Schedules: the rates of two groups after each step.
tests/python/optim/test_optim*.py and test_amp.py read the file.
"""

import json
import math
import pathlib
import warnings

import diffusers
import torch
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel
from packed import write_json
from torch.optim import swa_utils

warnings.simplefilter("ignore")
STEPS = 10
SHAPES = {"w": (3, 4), "b": (5,), "k": (2, 3, 2)}


def numbers(t):
    digits = 12 if t.dtype == torch.float64 else 9  # as many as tell a type's values apart, or the tests look at
    return [float(f"{x:.{digits}g}") for x in t.detach().double().flatten().tolist()]


# ---- optimizers

torch.manual_seed(7)
INITIAL = {name: torch.randn(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
GRADS = [
    {name: torch.randn(shape, dtype=torch.float64) * (0.1 + 0.3 * (t % 3)) for name, shape in SHAPES.items()}
    for t in range(STEPS)
]

OPTIMIZERS = {
    "adamw": ("AdamW", {}, {}),
    "adamw_options": ("AdamW", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}, {}),
    "adamw_amsgrad": ("AdamW", {"lr": 0.02, "amsgrad": True, "betas": (0.5, 0.6)}, {}),
    "adamw_maximize": ("AdamW", {"lr": 0.02, "maximize": True}, {}),
    "adamw_groups": ("AdamW", {"lr": 0.02}, {"b": {"lr": 0.1, "weight_decay": 0.0}}),
    "adamw_mixed": ("AdamW", {"lr": 0.02}, {"dtypes": {"w": "bfloat16", "b": "float32", "k": "float64"}}),
    "adamw_half": ("AdamW", {"lr": 0.02, "eps": 1e-4}, {"dtypes": {"w": "float16", "b": "float16", "k": "float16"}}),
    "adam": ("Adam", {}, {}),
    "adam_decay": ("Adam", {"lr": 0.05, "weight_decay": 0.2}, {}),
    "adam_amsgrad_maximize": ("Adam", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True, "maximize": True}, {}),
    "adam_decoupled": ("Adam", {"lr": 0.05, "weight_decay": 0.2, "decoupled_weight_decay": True}, {}),
    "sgd": ("SGD", {"lr": 0.1}, {}),
    "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}, {}),
    "sgd_dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.05}, {}),
    "sgd_nesterov": ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05, "maximize": True}, {}),
    "sgd_groups": ("SGD", {"lr": 0.1, "momentum": 0.9}, {"w": {"lr": 0.01, "momentum": 0.5}}),
    "adafactor": ("Adafactor", {}, {}),
    "adafactor_options": (
        "Adafactor",
        {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-5, 1e-2), "d": 1.5, "weight_decay": 0.1, "maximize": True},
        {},
    ),
    "rmsprop": ("RMSprop", {}, {}),
    "rmsprop_centered": (
        "RMSprop",
        {"lr": 0.02, "alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.1, "maximize": True},
        {"dtypes": {"w": "bfloat16", "b": "float32", "k": "float64"}},
    ),
    "adagrad": ("Adagrad", {}, {}),
    "adagrad_options": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2, "maximize": True},
        {},
    ),
    "adamax": ("Adamax", {}, {}),
    "adamax_options": ("Adamax", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}, {}),
    "nadam": ("NAdam", {"weight_decay": 0.1}, {}),
    "nadam_decoupled": (
        "NAdam",
        {"lr": 0.05, "momentum_decay": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
        {},
    ),
    "radam": ("RAdam", {"lr": 0.02, "weight_decay": 0.1}, {}),
    "radam_decoupled": (
        "RAdam",
        {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
        {"dtypes": {"w": "bfloat16", "b": "float32", "k": "float64"}},
    ),
    "adadelta": ("Adadelta", {}, {}),
    "adadelta_options": ("Adadelta", {"lr": 0.5, "rho": 0.5, "weight_decay": 0.1, "maximize": True}, {}),
    "asgd": ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 3}, {}),
    "asgd_options": ("ASGD", {"alpha": 0.5, "weight_decay": 0.1, "maximize": True}, {}),
    "rprop": ("Rprop", {}, {}),
    "rprop_options": ("Rprop", {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (0.06, 0.13), "maximize": True}, {}),
}


def plain(o):
    """A state dictionary as JSON: tensors as [dtype, shape, values]."""
    if isinstance(o, torch.Tensor):
        return {"dtype": str(o.dtype)[6:], "shape": list(o.shape), "values": numbers(o)}
    if isinstance(o, dict):
        return {str(k): plain(v) for k, v in o.items()}
    if isinstance(o, (list, tuple)):
        return [plain(v) for v in o]
    return o


def run_optimizer(name, options, special):
    dtypes = special.get("dtypes", {})
    params = {n: INITIAL[n].to(getattr(torch, dtypes.get(n, "float32")), copy=True).requires_grad_() for n in SHAPES}
    groups = (
        [{"params": [p], **special.get(n, {})} for n, p in params.items()]
        if any(n in special for n in SHAPES)
        else list(params.values())
    )
    optimizer = getattr(torch.optim, name)(groups, **options)
    values, middle = [], None
    for t in range(STEPS):
        for n, p in params.items():
            p.grad = None if (t == 3 and n == "b") else GRADS[t][n].to(p.dtype)
        optimizer.step()
        values.append([x for p in params.values() for x in numbers(p)])
        if t == 4:
            middle = plain(optimizer.state_dict())
    return {
        "class": name,
        "options": options,
        "special": special,
        "values": values,
        "state_dict": middle,
        "repr": repr(optimizer),
    }


# ---- L-BFGS

LBFGS = {
    "steps": {"lr": 0.1, "max_iter": 4},
    "history": {"lr": 0.5, "max_iter": 6, "history_size": 2, "maximize": True},
    "wolfe": {"max_iter": 8, "line_search_fn": "strong_wolfe"},
    "few": {"max_iter": 8, "max_eval": 5, "line_search_fn": "strong_wolfe"},
}


def run_lbfgs(options):
    """Rosenbrock's valley in two tensors, one coordinate upside down to maximise."""
    a = torch.tensor([-1.2], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([a, b], **options)
    sign = -1 if options.get("maximize") else 1

    def closure():
        optimizer.zero_grad()
        loss = sign * ((1 - a) ** 2 + 10 * (b - a**2) ** 2).sum()
        loss.backward()
        return loss

    losses, values = [], []
    for _ in range(4):
        losses.append(optimizer.step(closure).item())
        values.append(numbers(a) + numbers(b))
    state = next(iter(optimizer.state.values()))
    return {
        "options": options,
        "losses": losses,
        "values": values,
        "func_evals": state["func_evals"],
        "n_iter": state["n_iter"],
    }


# ---- schedules

SCHEDULES = {
    "cosine": "CosineAnnealingLR(o, 7, eta_min=0.01)",
    "cosine_long": "CosineAnnealingLR(o, 4)",
    "warm_restarts": "CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.001)",
    "warm_restarts_even": "CosineAnnealingWarmRestarts(o, 4)",
    "lambda": "LambdaLR(o, [lambda t: 0.9 ** t, lambda t: 1 / (1 + t)])",
    "multiplicative": "MultiplicativeLR(o, lambda t: 0.95 + 0.01 * t)",
    "step": "StepLR(o, 3, gamma=0.5)",
    "multi_step": "MultiStepLR(o, [2, 5, 5, 8], gamma=0.3)",
    "linear": "LinearLR(o, start_factor=0.2, end_factor=0.9, total_iters=6)",
    "constant": "ConstantLR(o, factor=0.25, total_iters=4)",
    "exponential": "ExponentialLR(o, 0.8)",
    "polynomial": "PolynomialLR(o, total_iters=9, power=1.5)",
    "one_cycle": "OneCycleLR(o, max_lr=[0.5, 0.2], total_steps=20)",
    "one_cycle_linear": (
        "OneCycleLR(o, max_lr=0.5, epochs=4, steps_per_epoch=5, anneal_strategy='linear', three_phase=True, "
        "pct_start=0.25)"
    ),
    "cyclic": "CyclicLR(o, 0.01, 0.1, step_size_up=3, step_size_down=5)",
    "cyclic_2": "CyclicLR(o, 0.01, [0.1, 0.2], step_size_up=3, mode='triangular2', cycle_momentum=False)",
    "cyclic_exp": "CyclicLR(o, 0.01, 0.1, step_size_up=4, mode='exp_range', gamma=0.95)",
    "sequential": "SequentialLR(o, [LinearLR(o, 0.1, total_iters=4), CosineAnnealingLR(o, 10), StepLR(o, 2)], [4, 12])",
    "chained": "ChainedScheduler([ConstantLR(o, 0.5, 3), ExponentialLR(o, 0.9)])",
    "swa": "SWALR(o, [0.02, 0.5], anneal_epochs=6)",
    "swa_linear": "SWALR(o, 0.02, anneal_epochs=4, anneal_strategy='linear')",
    "swa_at_once": "SWALR(o, 0.02, anneal_epochs=0)",
}
JUMPS = ("cosine", "warm_restarts", "step", "multi_step", "linear", "constant", "exponential", "polynomial")
NAMED = {
    "constant": {},
    "constant_with_warmup": {"num_warmup_steps": 5},
    "piecewise_constant": {"step_rules": "1:3,0.1:8,0.01:12,0.005"},
    "linear": {"num_warmup_steps": 4, "num_training_steps": 15},
    "cosine": {"num_warmup_steps": 4, "num_training_steps": 15},
    "cosine_with_restarts": {"num_warmup_steps": 3, "num_training_steps": 18, "num_cycles": 3},
    "polynomial": {"num_warmup_steps": 3, "num_training_steps": 12, "power": 2.0},
}


def optimizer_for_schedules():
    a, b = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    return torch.optim.AdamW([{"params": [a]}, {"params": [b], "lr": 0.03}], lr=0.1)


def run_schedule(make, steps=20):
    o = optimizer_for_schedules()
    s = make(o)
    rates, betas = [s.get_last_lr()], [[g["betas"][0] for g in o.param_groups]]
    for _ in range(steps):
        o.step()
        s.step()
        rates.append(list(s.get_last_lr()))
        betas.append([g["betas"][0] for g in o.param_groups])
    return {"rates": rates, "betas": betas}


def jumps(text):
    """Rates after scheduler.step(epoch)."""
    o = optimizer_for_schedules()
    s = eval(text, {**vars(torch.optim.lr_scheduler), **vars(swa_utils), "o": o})
    out = []
    for epoch in (5, 2, 9, 3):
        s.step(epoch)
        out.append([epoch, list(s.get_last_lr())])
    return out


def plateau():
    o = optimizer_for_schedules()
    s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1, cooldown=1, factor=0.5, min_lr=[0.02, 0.001])
    metrics = [3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0.5, 0.6, 0.7, 0.8]
    rates = []
    for m in metrics:
        s.step(m)
        rates.append([g["lr"] for g in o.param_groups])
    return {"metrics": metrics, "rates": rates}


# ---- averages of weights

EMAS = {
    "plain": {"decay": 0.9},
    "min_decay": {"decay": 0.99, "min_decay": 0.5, "update_after_step": 2},
    "warmup": {"decay": 0.95, "use_ema_warmup": True, "inv_gamma": 2.0, "power": 0.75},
}


def run_ema(options):
    params = [torch.nn.Parameter(INITIAL["w"].float()), torch.nn.Parameter(INITIAL["b"].float(), requires_grad=False)]
    ema = EMAModel(params, **options)
    values, decays = [], []
    for t in range(STEPS):
        with torch.no_grad():
            params[0].add_(GRADS[t]["w"].float())
            params[1].add_(GRADS[t]["b"].float())
        ema.step(params)
        values.append([x for p in ema.shadow_params for x in numbers(p)])
        decays.append(ema.cur_decay_value)
    state = {k: v for k, v in ema.state_dict().items() if k != "shadow_params"}
    return {"options": options, "values": values, "decays": decays, "state": state}


# ---- averaged models

AVERAGES = {
    "swa": {},
    "swa_multi": {"multi_avg_fn": "get_swa_multi_avg_fn()"},
    "swa_single": {"avg_fn": "get_swa_avg_fn()"},
    "ema_multi": {"multi_avg_fn": "get_ema_multi_avg_fn(0.9)", "use_buffers": True},
    "ema_single": {"avg_fn": "get_ema_avg_fn(0.8)", "use_buffers": True},
}


def averaged_net():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.arange(p.numel()).reshape(p.shape) * 0.1 - i)
    return net


def run_averages(options):
    net = averaged_net()
    averaged = swa_utils.AveragedModel(
        net, **{k: eval(v, vars(swa_utils)) if isinstance(v, str) else v for k, v in options.items()}
    )
    values = []
    for t in range(4):
        net(GRADS[t]["w"].float())
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.3 * (t + 1))
        averaged.update_parameters(net)
        values.append([x for v in averaged.state_dict().values() for x in numbers(v)])
    swa_utils.update_bn([GRADS[t]["w"].float() for t in range(5)], averaged)
    return {
        "options": options,
        "values": values,
        "keys": list(averaged.state_dict()),
        "after_update_bn": [x for v in averaged.state_dict().values() for x in numbers(v)],
    }


# ---- loss scaling


def run_scaler():
    options = {"init_scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}
    scaler = torch.amp.GradScaler("cpu", **options)
    p = torch.tensor([1.0, -2.0], requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.1)
    scales, values, bad = [], [], [2, 3, 9]
    for t in range(14):
        optimizer.zero_grad()
        factor = math.inf if t in bad else 0.5
        scaler.scale((p * p).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        values.append(numbers(p))
    return {"options": options, "inf_steps": bad, "scales": scales, "values": values, "state": scaler.state_dict()}


def main():
    out = {
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "initial": {n: numbers(t) for n, t in INITIAL.items()},
        "shapes": SHAPES,
        "grads": [{n: numbers(t) for n, t in g.items()} for g in GRADS],
        "optimizers": {name: run_optimizer(*case) for name, case in OPTIMIZERS.items()},
        "schedules": {
            name: {
                "make": text,
                **run_schedule(lambda o: eval(text, {**vars(torch.optim.lr_scheduler), **vars(swa_utils), "o": o})),
            }
            for name, text in SCHEDULES.items()
        },
        "lbfgs": {name: run_lbfgs(options) for name, options in LBFGS.items()},
        "averages": {name: run_averages(options) for name, options in AVERAGES.items()},
        "jumps": {
            name: jumps(SCHEDULES[name])
            for name in (
                "cosine",
                "warm_restarts",
                "step",
                "multi_step",
                "linear",
                "constant",
                "exponential",
                "polynomial",
            )
        },
        "named": {
            name: {"options": options, **run_schedule(lambda o: get_scheduler(name, o, **options))}
            for name, options in NAMED.items()
        },
        "plateau": plateau(),
        "ema": {name: run_ema(options) for name, options in EMAS.items()},
        "scaler": run_scaler(),
    }
    path = pathlib.Path(__file__).parent / "optim.json.xz"
    write_json(path, json.dumps(out, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
