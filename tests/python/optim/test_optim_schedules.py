"""Learning-rate schedules: torch's and diffusers' rates (tests/golden/make_golden_optim.py)."""

import warnings

import folders
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding import optim
from scaffolding.optim import lr_scheduler

GOLDEN = read_json(folders.GOLDEN / "optim.json.xz")


def two_groups():
    a, b = sf.nn.Parameter(sf.zeros(1)), sf.nn.Parameter(sf.zeros(1))
    return optim.AdamW([{"params": [a]}, {"params": [b], "lr": 0.03}], lr=0.1)


def make(text, o):
    return eval(text, {**vars(lr_scheduler), "SWALR": optim.swa_utils.SWALR, "o": o})


def rates(scheduler, o, steps=20):
    out, betas = [scheduler.get_last_lr()], [[g["betas"][0] for g in o.param_groups]]
    for _ in range(steps):
        o.step()
        scheduler.step()
        out.append(list(scheduler.get_last_lr()))
        betas.append([g["betas"][0] for g in o.param_groups])
        assert out[-1] == [g["lr"] for g in o.param_groups]
    return out, betas


def close(got, want):
    return all(
        a == pytest.approx(b, rel=1e-9, abs=1e-15)
        for x, y in zip(got, want, strict=True)
        for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("name", sorted(GOLDEN["schedules"]))
def test_rates_are_torchs(name):
    case = GOLDEN["schedules"][name]
    o = two_groups()
    got, betas = rates(make(case["make"], o), o)
    assert close(got, case["rates"])
    assert close(betas, case["betas"])


@pytest.mark.parametrize("name", sorted(GOLDEN["named"]))
def test_named_rates_are_diffusers(name):
    case = GOLDEN["named"][name]
    o = two_groups()
    got, _ = rates(optim.get_scheduler(name, o, **case["options"]), o)
    assert close(got, case["rates"])
    assert optim.SchedulerType(name).value == name


@pytest.mark.parametrize("name", sorted(GOLDEN["jumps"]))
def test_jumps_are_torchs(name):
    scheduler = make(GOLDEN["schedules"][name]["make"], two_groups())
    for epoch, want in GOLDEN["jumps"][name]:
        scheduler.step(epoch)
        assert scheduler.last_epoch == epoch
        assert close([scheduler.get_last_lr()], [want])


def test_plateau_is_torchs():
    case = GOLDEN["plateau"]
    o = two_groups()
    scheduler = lr_scheduler.ReduceLROnPlateau(o, patience=1, cooldown=1, factor=0.5, min_lr=[0.02, 0.001])
    for metric, want in zip(case["metrics"], case["rates"]):
        scheduler.step(metric)
        assert close([[g["lr"] for g in o.param_groups]], [want])


@pytest.mark.parametrize("name", sorted(set(GOLDEN["schedules"]) - {"lambda", "multiplicative"}))
def test_resumed_schedule_goes_on(name):
    text, want = GOLDEN["schedules"][name]["make"], GOLDEN["schedules"][name]["rates"]
    o = two_groups()
    scheduler = make(text, o)
    for _ in range(7):
        o.step()
        scheduler.step()
    saved, saved_optimizer = scheduler.state_dict(), o.state_dict()
    assert "optimizer" not in saved
    o = two_groups()
    scheduler = make(text, o)
    o.load_state_dict(saved_optimizer)
    scheduler.load_state_dict(saved)
    got = []
    for _ in range(13):
        o.step()
        scheduler.step()
        got.append(list(scheduler.get_last_lr()))
    assert close(got, want[8:])


def test_last_epoch_resumes():
    o = two_groups()
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(o, 3, last_epoch=4)
    for group in o.param_groups:
        group["initial_lr"] = group["lr"]
    scheduler = lr_scheduler.LambdaLR(o, lambda t: 0.5**t, last_epoch=4)
    assert scheduler.last_epoch == 5 and scheduler.get_last_lr()[0] == pytest.approx(0.1 * 0.5**5)


def test_lambda_state_keeps_objects_not_functions():
    class Factor:
        def __init__(self, base):
            self.base = base

        def __call__(self, epoch):
            return self.base**epoch

    o = two_groups()
    saved = lr_scheduler.LambdaLR(o, [Factor(0.5), lambda t: 1.0]).state_dict()
    assert saved["lr_lambdas"] == [{"base": 0.5}, None]
    scheduler = lr_scheduler.LambdaLR(two_groups(), [Factor(0.9), lambda t: 1.0])
    scheduler.load_state_dict(saved)
    assert scheduler.lr_lambdas[0].base == 0.5


def test_users_own_schedule():
    class Halving(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    o = two_groups()
    scheduler = Halving(o)
    o.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.05, 0.015]


def test_wrong_order_warns_once():
    o = two_groups()
    scheduler = lr_scheduler.StepLR(o, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda o: lr_scheduler.StepLR("x", 3), TypeError, "str is not an Optimizer"),
        (lambda o: lr_scheduler.StepLR(o, 0), ValueError, "step_size must be a positive"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 0), ValueError, "T_max must be a positive"),
        (lambda o: lr_scheduler.LinearLR(o, 0.0), ValueError, "Starting multiplicative factor"),
        (lambda o: lr_scheduler.LinearLR(o, 0.5, 2.0), ValueError, "Ending multiplicative factor"),
        (lambda o: lr_scheduler.ConstantLR(o, 1.5), ValueError, "between 0 and 1"),
        (lambda o: lr_scheduler.LambdaLR(o, [lambda t: 1]), ValueError, "Expected 2 lr_lambdas, but got 1"),
        (lambda o: lr_scheduler.LambdaLR(o, 0.5), TypeError, "lr_lambda should be a function"),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 0), ValueError, "Expected positive integer T_0"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1), ValueError, "You must define either total_steps"),
        (
            lambda o: lr_scheduler.OneCycleLR(o, [0.1] * 3, total_steps=5),
            ValueError,
            "max_lr must have the same length",
        ),
        (
            lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.StepLR(o, 2)], [3]),
            ValueError,
            "one more than the number of milestone",
        ),
        (lambda o: lr_scheduler.ChainedScheduler([]), ValueError, "expects at least one scheduler"),
        (
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2), lr_scheduler.StepLR(two_groups(), 2)]),
            ValueError,
            "same optimizer",
        ),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="most"), ValueError, "mode most is unknown"),
        (lambda o: optim.get_scheduler("parabola", o), ValueError, "parabola"),
        (lambda o: optim.get_scheduler("cosine", o), ValueError, "num_warmup_steps"),
        (lambda o: optim.get_scheduler("cosine", o, num_warmup_steps=3), ValueError, "num_training_steps"),
        (
            lambda o: optim.get_scheduler("piecewise_constant", o, step_rules="1:x,3"),
            ValueError,
            "step_rules must read like",
        ),
        (
            lambda o: optim.get_scheduler("constant_with_warmup", o, num_warmup_steps=-1),
            ValueError,
            "num_warmup_steps must not be negative, got -1",
        ),
        (
            lambda o: optim.get_scheduler("linear", o, num_warmup_steps=1, num_training_steps=0),
            ValueError,
            "linear: num_training_steps must be a positive",
        ),
        (
            lambda o: optim.get_scheduler("polynomial", o, num_warmup_steps=1, num_training_steps=-3),
            ValueError,
            "num_training_steps must be a positive",
        ),
        (
            lambda o: optim.get_scheduler("cosine_with_restarts", o, None, 1, 9, num_cycles=0),
            ValueError,
            "num_cycles must be positive, got 0",
        ),
        (lambda o: lr_scheduler.MultiStepLR(o, [4, -2]), ValueError, "milestones must ascend from 0 on"),
        (lambda o: lr_scheduler.ConstantLR(o, total_iters=-1), ValueError, "total_iters must not be negative"),
        (
            lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.StepLR(o, 2) for _ in range(3)], [5, 2]),
            ValueError,
            "milestones must ascend",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make(two_groups())


def test_one_cycle_ends():
    o = two_groups()
    scheduler = lr_scheduler.OneCycleLR(o, 0.1, total_steps=3)
    with pytest.raises(ValueError, match="The specified number of total steps is 3"):
        for _ in range(5):
            o.step()
            scheduler.step()
