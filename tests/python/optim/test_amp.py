"""GradScaler and EMAModel: torch's and diffusers' numbers (tests/golden/make_golden_optim.py)."""

import copy

import folders
import numpy as np
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding import optim
from scaffolding.amp import GradScaler

GOLDEN = read_json(folders.GOLDEN / "optim.json.xz")


def run_scaler(scaler, p, optimizer, steps, bad):
    for t in steps:
        optimizer.zero_grad()
        scaler.scale((p * p).sum() * (sf.inf if t in bad else 0.5)).backward()
        scaler.step(optimizer)
        scaler.update()
        yield scaler.get_scale(), p.tolist()


def test_scales_are_torchs():
    case = GOLDEN["scaler"]
    scaler = GradScaler("cpu", **case["options"])
    p = sf.nn.Parameter(sf.tensor([1.0, -2.0]))
    got = list(run_scaler(scaler, p, optim.SGD([p], lr=0.1), range(14), case["inf_steps"]))
    assert [scale for scale, _ in got] == case["scales"]
    assert np.allclose([v for _, v in got], case["values"], rtol=0, atol=1e-6)
    assert scaler.state_dict() == case["state"]


def test_scaler_resumes():
    case = GOLDEN["scaler"]
    p = sf.nn.Parameter(sf.tensor([1.0, -2.0]))
    optimizer = optim.SGD([p], lr=0.1)
    first = GradScaler("cpu", **case["options"])
    list(run_scaler(first, p, optimizer, range(8), case["inf_steps"]))
    second = GradScaler("cpu")
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    got = list(run_scaler(second, p, optimizer, range(8, 14), case["inf_steps"]))
    assert [scale for scale, _ in got] == case["scales"][8:]


def test_unscale_before_clipping():
    p = sf.nn.Parameter(sf.tensor([3.0]))
    optimizer, scaler = optim.SGD([p], lr=0.5), GradScaler("cpu", init_scale=8.0)
    scaler.scale((p * p).sum()).backward()
    assert p.grad.item() == 48
    scaler.unscale_(optimizer)
    assert p.grad.item() == 6
    p.grad.clamp_(max=1)
    scaler.step(optimizer)
    assert p.item() == 2.5
    with pytest.raises(RuntimeError, match="step.. has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="being called after step"):
        scaler.unscale_(optimizer)
    scaler.update()


def test_scale_takes_lists_and_keeps_dtypes():
    scaler = GradScaler("cpu", init_scale=2.0)
    a, (b, c) = scaler.scale([sf.ones(1), (sf.ones(2, dtype=sf.float16), sf.ones(1))])
    assert a.item() == 2 and b.tolist() == [2, 2] and b.dtype is sf.float16 and c.item() == 2
    with pytest.raises(ValueError, match="must be a Tensor or an iterable of Tensors"):
        scaler.scale(3)


def test_nan_in_any_gradient_skips_the_step():
    for dtype in (sf.float32, sf.bfloat16, sf.float64):
        p, q = sf.nn.Parameter(sf.ones(1000, dtype=dtype)), sf.nn.Parameter(sf.ones(3))
        optimizer, scaler = optim.AdamW([p, q]), GradScaler("cpu", init_scale=4.0)
        p.grad, q.grad = sf.ones(1000, dtype=dtype), sf.ones(3)
        p.grad[777] = sf.nan
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0 and sf.equal(p, sf.ones(1000, dtype=dtype)) and q.grad.tolist() == [0.25] * 3
        assert not optimizer.state


def test_disabled_scaler_passes_through():
    p = sf.nn.Parameter(sf.tensor([1.0]))
    optimizer, scaler = optim.SGD([p], lr=0.5), GradScaler("cpu", enabled=False)
    loss = (p * p).sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.item() == 0 and scaler.state_dict() == {} and not scaler.is_enabled()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"growth_factor": 1.0}, "growth factor must be > 1.0"),
        ({"backoff_factor": 1.0}, "backoff factor must be < 1.0"),
        ({"init_scale": 0}, "positive"),
    ],
)
def test_scaler_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        GradScaler("cpu", **options)


def test_scaler_misuse():
    p = sf.nn.Parameter(sf.tensor([1.0]))
    optimizer, scaler = optim.SGD([p], lr=0.5), GradScaler("cpu")
    with pytest.raises(RuntimeError, match="No inf checks were recorded for this optimizer"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="No inf checks were recorded prior to update"):
        GradScaler("cpu").update()
    q = sf.nn.Parameter(sf.ones(2, dtype=sf.float16))
    q.grad = sf.ones(2, dtype=sf.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        GradScaler("cpu").unscale_(optim.SGD([q]))


# ---- averages of weights


def parameters():
    w = sf.nn.Parameter(sf.tensor(GOLDEN["initial"]["w"]).reshape(3, 4))
    b = sf.nn.Parameter(sf.tensor(GOLDEN["initial"]["b"]), requires_grad=False)
    return [w, b]


def move(params, t):
    with sf.no_grad():
        params[0].add_(sf.tensor(GOLDEN["grads"][t]["w"]).reshape(3, 4))
        params[1].add_(sf.tensor(GOLDEN["grads"][t]["b"]))


@pytest.mark.parametrize("name", sorted(GOLDEN["ema"]))
def test_averages_are_diffusers(name):
    case = GOLDEN["ema"][name]
    params = parameters()
    ema = optim.EMAModel(params, **case["options"])
    for t in range(10):
        move(params, t)
        ema.step(params)
        assert ema.cur_decay_value == pytest.approx(case["decays"][t], abs=1e-12)
        got = np.concatenate([p.numpy().ravel() for p in ema.shadow_params])
        assert np.abs(got - case["values"][t]).max() < 1e-6
    assert {k: v for k, v in ema.state_dict().items() if k != "shadow_params"} == case["state"]


def test_ema_resumes_stores_and_restores():
    case = GOLDEN["ema"]["plain"]
    params = parameters()
    ema = optim.EMAModel(iter(params), **case["options"])
    for t in range(6):
        move(params, t)
        ema.step(params)
    other = optim.EMAModel(params)
    other.load_state_dict(ema.state_dict())
    assert other.shadow_params[0] is not ema.shadow_params[0]
    for t in range(6, 10):
        move(params, t)
        other.step(params)
    assert np.abs(np.concatenate([p.numpy().ravel() for p in other.shadow_params]) - case["values"][-1]).max() < 1e-6
    before = params[0].detach().clone()
    with pytest.raises(RuntimeError, match="no `store"):
        other.restore(params)
    other.store(params)
    other.copy_to(params)
    assert sf.equal(params[0], other.shadow_params[0]) and params[0].requires_grad
    other.restore(params)
    assert sf.equal(params[0], before)
    other.to(dtype=sf.float64)
    assert other.shadow_params[0].dtype is sf.float64
    move(params, 0)
    other.step(params)


def test_ema_of_bfloat16_weights_in_float32():
    p = sf.nn.Parameter(sf.ones(300, dtype=sf.bfloat16))
    ema = optim.EMAModel([p], decay=0.5)
    ema.to(dtype=sf.float32)
    for _ in range(3):
        with sf.no_grad():
            p.mul_(2)
        ema.step([p])
    want, decay = 1.0, (0, 2 / 11, 3 / 12)
    for value, d in zip((2.0, 4.0, 8.0), decay):
        want += (1 - d) * (value - want)
    assert ema.shadow_params[0].dtype is sf.float32 and sf.allclose(
        ema.shadow_params[0], sf.full((300,), want), atol=1e-5
    )


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda p: optim.EMAModel([]), ValueError, "empty parameter list"),
        (lambda p: optim.EMAModel(p, decay=1.5), ValueError, "Decay must be between 0 and 1"),
        (lambda p: optim.EMAModel(p).step(p[:1]), ValueError, "made for 2 parameters, got 1"),
        (lambda p: optim.EMAModel(p).copy_to([p[1], p[0]]), ValueError, "parameter 0 must have shape"),
        (lambda p: optim.EMAModel(p).load_state_dict({"decay": 2.0}), ValueError, "Decay must be between 0 and 1"),
        (
            lambda p: optim.EMAModel(p).load_state_dict({"optimization_step": 1.5}),
            ValueError,
            "Invalid optimization_step",
        ),
        (lambda p: optim.EMAModel(p).load_state_dict({"shadow_params": (1,)}), ValueError, "must be a list"),
    ],
)
def test_ema_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(parameters())
