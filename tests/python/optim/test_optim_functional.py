"""optim.functional: torch's values (make_golden_optim.py: torch's classes call the same functions), state that
stays the caller's, and what is refused."""

import numpy as np
import pytest
from test_optim import CASES, GOLDEN, assert_like, parameters, set_gradients, tensors_of

import scaffolding as sf
from scaffolding.optim import functional

# {function: its lists after params and grads, as keys of the class's state}
STATE = {
    "adadelta": ("square_avg", "acc_delta", "step"),
    "adafactor": ("row_var", "col_var", "variance", "step"),
    "adagrad": ("sum", "step"),
    "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"),
    "adamax": ("exp_avg", "exp_inf", "step"),
    "adamw": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"),
    "asgd": ("ax", "mu", "eta", "step"),
    "nadam": ("exp_avg", "exp_avg_sq", "mu_product", "step"),
    "radam": ("exp_avg", "exp_avg_sq", "step"),
    "rmsprop": ("square_avg", "grad_avg", "momentum_buffer", "step"),
    "rprop": ("prev", "step_size", "step"),
    "sgd": ("momentum_buffer",),
}
OTHERWISE = {  # options that are pairs in the class
    "betas": ("beta1", "beta2"),
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
}
NOT_ARGUMENTS = {"params", "initial_accumulator_value", "capturable", "differentiable", "foreach", "fused"}


def options_of(name, group):
    options = {}
    for key, value in group.items():
        names = ("eps1", "eps2") if (name, key) == ("adafactor", "eps") else OTHERWISE.get(key)
        if names:
            options.update(zip(names, value))
        elif key not in NOT_ARGUMENTS:
            options[key] = value
    if name == "adamw":
        del options["decoupled_weight_decay"]
    if name == "rprop":
        del options["lr"]
    return options


@pytest.mark.parametrize("case", [n for n in CASES if GOLDEN["optimizers"][n]["class"].lower() in STATE])
def test_steps_five_to_ten_are_torchs(case):
    """From torch's state after five steps, statistics in the type that torch keeps."""
    golden = GOLDEN["optimizers"][case]
    name = golden["class"].lower()
    params = parameters(golden["special"].get("dtypes", {}))
    at = 0
    with sf.no_grad():
        for p in params.values():
            p.copy_(sf.tensor(golden["values"][4][at : at + p.numel()], dtype=sf.float64).reshape(p.shape))
            at += p.numel()
    saved = tensors_of(golden["state_dict"])
    names = list(params)
    kept = {}
    for t in range(5, 10):
        set_gradients(params, t)
        for group in saved["param_groups"]:
            its = [params[names[i]] for i in group["params"]]
            states = [saved["state"].get(i, {}) for i in group["params"]]
            lists = [[s.get(key) for s in states] for key in STATE[name]]
            kept.setdefault(group["params"][0], [x for entries in lists for x in entries if x is not None])
            options = options_of(name, group)
            getattr(functional, name)(its, [p.grad for p in its], *lists, **options)
            now = [x for entries in lists for x in entries if x is not None]
            assert all(a is b for a, b in zip(kept[group["params"][0]], now)), "state must change in place"
        assert_like(params, golden["values"][t], (case, t))


@pytest.mark.parametrize("name", sorted(STATE))
def test_a_step_from_nothing_is_the_class(name):
    case = next(c for c in CASES if GOLDEN["optimizers"][c]["class"].lower() == name)
    golden = GOLDEN["optimizers"][case]
    ours, theirs = parameters(), parameters()
    optimizer = getattr(sf.optim, golden["class"])(theirs.values(), **golden["options"])
    set_gradients(ours, 0)
    set_gradients(theirs, 0)
    initial = {key: sf.zeros(()) for key in ("step",)}
    if name == "asgd":
        initial |= {"mu": sf.ones(()), "eta": sf.tensor(optimizer.param_groups[0]["lr"])}
    if name == "nadam":
        initial |= {"mu_product": sf.ones(())}
    lists = [[initial[key].clone() if key in initial else None for _ in ours] for key in STATE[name]]
    if name == "rprop":  # its lr is the first step_size
        lists[1] = [sf.full_like(p, optimizer.param_groups[0]["lr"]) for p in ours.values()]
    group = {k: v for k, v in optimizer.param_groups[0].items() if k != "master_weights"}
    params = list(ours.values())
    getattr(functional, name)(params, [p.grad for p in params], *lists, **options_of(name, group))
    optimizer.step()
    for a, b in zip(ours.values(), theirs.values()):
        assert a.equal(b)
    for key, entries in zip(STATE[name], lists):
        for p, entry in zip(theirs.values(), entries):
            kept = optimizer.state[p].get(key)
            assert (entry is None) == (kept is None), key
            assert kept is None or entry.equal(kept), key


def test_muon_is_the_class():
    generator = np.random.default_rng(5)
    start, gradient = (sf.tensor(generator.normal(size=(4, 6)), dtype=sf.float32) for _ in range(2))
    theirs = sf.nn.Parameter(start.clone())
    optimizer = sf.optim.Muon([theirs], lr=0.1)
    ours, buffer = sf.nn.Parameter(start.clone()), sf.zeros(4, 6)
    options = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    for _ in range(3):
        theirs.grad = gradient
        optimizer.step()
        functional.muon([ours], [gradient], [buffer], has_complex=False, **options)
    assert ours.equal(theirs) and not ours.equal(start) and buffer.equal(optimizer.state[theirs]["momentum_buffer"])


def test_statistics_of_16_bits_stay_so():
    p, g = sf.ones(8, dtype=sf.bfloat16), sf.full((8,), 0.5, dtype=sf.bfloat16)
    first, second, step = sf.zeros(8, dtype=sf.bfloat16), sf.zeros(8, dtype=sf.bfloat16), sf.tensor(0.0)
    options = {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0, "eps": 1e-8}
    functional.adam([p], [g], [first], [second], [], [step], amsgrad=False, maximize=False, **options)
    assert first.dtype == sf.bfloat16 and first.tolist() == sf.full((8,), 0.05, dtype=sf.bfloat16).tolist()
    assert second.tolist() == sf.full((8,), 0.0025, dtype=sf.bfloat16).tolist() and step.item() == 1
    assert p.tolist() == sf.full((8,), 0.9, dtype=sf.bfloat16).tolist()


def test_what_is_refused_changes_nothing():
    p, g = sf.ones(3), sf.ones(3)
    first, second, step = sf.zeros(3), sf.zeros(3), sf.tensor(0.0)
    options = {"amsgrad": False, "beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0, "eps": 1e-8}
    options["maximize"] = False

    def adam(params=[p], grads=[g], firsts=[first], seconds=[second], largest=[], steps=[step], **changed):
        functional.adam(params, grads, firsts, seconds, largest, steps, **(options | changed))

    for error, text, arguments in (
        (ValueError, "adam: grads has 0 entries for 1 params", {"grads": []}),
        (ValueError, "adam: exp_avgs has 2 entries for 1 params", {"firsts": [first, first]}),
        (ValueError, "adam: max_exp_avg_sqs has 0 entries for 1 params", {"amsgrad": True}),
        (TypeError, "adam: exp_avg_sqs must be a list, got tuple", {"seconds": (second,)}),
        (RuntimeError, "state_steps must be a list of tensors", {"steps": [0]}),
        (TypeError, "grads", {"grads": [None]}),
        (ValueError, r"exp_avg.*\[2\]", {"firsts": [sf.zeros(2)]}),
        (ValueError, "grad", {"grads": [sf.ones(2)]}),
        (ValueError, "Invalid beta parameter at index 0", {"beta1": 1.0}),
        (ValueError, "Invalid learning rate", {"lr": -1}),
        (ValueError, "capturable=True is not supported; use the class", {"capturable": True}),
        (ValueError, "differentiable=True is not supported", {"differentiable": True}),
        (ValueError, "found_inf=.* is not supported; skip the step with GradScaler", {"found_inf": sf.tensor(0.0)}),
        (ValueError, "has_complex=True is not supported; there are no complex tensors", {"has_complex": True}),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            adam(**arguments)
    assert p.tolist() == [1, 1, 1] and first.tolist() == second.tolist() == [0, 0, 0] and step.item() == 0
    with pytest.raises(ValueError, match=r"muon: params must have two dimensions, got shape \[3\]"):
        functional.muon([p], [g], [first], lr=1, weight_decay=0, momentum=0, nesterov=False, ns_coefficients=(1, 1, 1),
                        ns_steps=1, eps=1, adjust_lr_fn=None, has_complex=False)  # fmt: skip
    adam()
    assert step.item() == 1 and p.tolist() != [1, 1, 1]


def test_sparse_adam_says_why():
    with pytest.raises(AttributeError, match="there are no sparse tensors"):
        functional.sparse_adam  # noqa: B018
