"""The training objective: 20 steps of a tiny UNet as PyTorch and diffusers make them
(tests/golden/make_golden_training.py), options, refusals.
"""

import json
import math

import pytest
from folders import GOLDEN
from hashed_weights import hashed, hashed_weight

import scaffolding as sf
from scaffolding.diffusion import (
    DDPMScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    compute_snr,
    diffusion_loss,
    training_batch,
)
from scaffolding.models import UNet2DConditionModel

FILE = json.loads((GOLDEN / "training.json").read_text())
RUNS = FILE["runs"]
LATENTS = (FILE["batch"], 4, 8, 8)


@pytest.fixture(autouse=True)
def one_thread():
    """Where threads are busy elsewhere, waiting for each other takes most of the time of so small a network."""
    before = sf.get_num_threads()
    sf.set_num_threads(1)
    yield
    sf.set_num_threads(before)


def data(step):
    return sf.tensor(hashed(f"latents {step % 3}", LATENTS)), sf.tensor(
        hashed(f"captions {step % 3}", (FILE["batch"], 5, 24))
    )


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_those_of_pytorch_and_diffusers(name):
    run = RUNS[name]
    scheduler = (FlowMatchEulerDiscreteScheduler if name.startswith("flow") else DDPMScheduler)(**run["scheduler"])
    unet = UNet2DConditionModel(**FILE["unet"])
    unet.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in unet.state_dict().items()})
    optimizer = sf.optim.AdamW(unet.parameters(), lr=1e-3, weight_decay=1e-2)
    sf.manual_seed(len(name))
    for step, want in enumerate(run["losses"]):
        latents, text = data(step)
        loss = diffusion_loss(unet, scheduler, latents, text, **run["options"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        assert abs(loss.item() - want) <= 1e-4 * want, f"step {step}: {loss.item()} instead of {want}"


def echo(noisy, timesteps, *condition):
    return noisy


def test_given_noise_and_timesteps_are_used():
    scheduler = DDPMScheduler()
    latents, noise = sf.randn(*LATENTS), sf.randn(*LATENTS)
    timesteps = sf.tensor([0, 10, 500, 999])
    batch = training_batch(scheduler, latents, noise=noise, timesteps=timesteps)
    assert batch.timesteps is timesteps and batch.weights is None and batch.dropped is None
    assert sf.equal(batch.noisy_latents, scheduler.add_noise(latents, noise, timesteps)) and sf.equal(
        batch.target, noise
    )
    assert batch.loss(noise).item() == 0
    v = training_batch(scheduler, latents, noise=noise, timesteps=timesteps, prediction_type="v_prediction")
    assert sf.equal(v.target, scheduler.get_velocity(latents, noise, timesteps))
    assert sf.equal(
        training_batch(scheduler, latents, noise=noise, timesteps=timesteps, prediction_type="sample").target, latents
    )


def test_a_generator_decides_everything_that_is_drawn():
    scheduler, latents = DDPMScheduler(), sf.randn(*LATENTS)
    options = {"noise_offset": 0.1, "input_perturbation": 0.1, "condition_dropout": 0.5}
    first, second = (
        training_batch(scheduler, latents, generator=sf.Generator().manual_seed(3), **options) for _ in range(2)
    )
    for name in ("noisy_latents", "timesteps", "target", "dropped"):
        assert sf.equal(getattr(first, name), getattr(second, name)), name
    shared = training_batch(scheduler, sf.zeros(*LATENTS), noise=sf.zeros(*LATENTS), noise_offset=0.3).target
    assert shared.abs().max().item() > 0 and sf.equal(shared, shared[:, :, :1, :1].expand(*LATENTS))


def test_min_snr_weights_never_exceed_one_and_are_finite_without_signal():
    scheduler = DDPMScheduler(rescale_betas_zero_snr=True)
    timesteps = sf.tensor([0, 300, 700, 999])
    snr = compute_snr(scheduler, timesteps)
    assert snr[3].item() == 0
    weights = {p: training_batch(scheduler, sf.randn(*LATENTS), timesteps=timesteps, snr_gamma=5.0,
                                 prediction_type=p).weights for p in
               ("epsilon", "v_prediction", "sample")}  # fmt: skip
    for i, s in enumerate(snr.tolist()):
        assert math.isclose(weights["epsilon"][i].item(), min(1, 5 / s) if s else 1, rel_tol=1e-6)
        assert math.isclose(weights["v_prediction"][i].item(), min(s, 5) / (s + 1), rel_tol=1e-6)
        assert math.isclose(weights["sample"][i].item(), min(s, 5), rel_tol=1e-6)


def test_dropped_samples_get_the_null_condition():
    text, pooled, null = sf.randn(64, 3, 8), sf.randn(64, 6), sf.randn(3, 8)
    seen = {}

    def model(noisy, timesteps, text, added_cond_kwargs):
        seen.update(text=text, pooled=added_cond_kwargs["text_embeds"], other=added_cond_kwargs["time_ids"])
        return (noisy,)

    ids = sf.ones(64, 6)
    loss = diffusion_loss(
        model,
        DDPMScheduler(),
        sf.randn(64, 1, 2, 2),
        text,
        null,
        condition_dropout=0.4,
        added_cond_kwargs={"text_embeds": pooled, "time_ids": ids},
    )
    assert loss.dtype is sf.float32 and seen["other"] is ids
    dropped = [i for i in range(64) if not sf.equal(seen["text"][i], text[i])]
    assert 10 < len(dropped) < 45
    for i in range(64):
        assert sf.equal(seen["text"][i], null if i in dropped else text[i])
        assert sf.equal(seen["pooled"][i], sf.zeros(6) if i in dropped else pooled[i])
    assert all(training_batch(DDPMScheduler(), sf.randn(8, 1), condition_dropout=1.0).dropped.tolist())


def test_flow_matching_draws_from_the_schedule():
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    latents = sf.randn(512, 1)
    schedule = set(scheduler.timesteps.tolist())
    for scheme in ("none", "sigma_sqrt", "logit_normal", "mode", "cosmap"):
        batch = training_batch(scheduler, latents, weighting_scheme=scheme)
        assert set(batch.timesteps.tolist()) <= schedule
        assert (batch.weights is not None) == (scheme in ("sigma_sqrt", "cosmap"))
        sigma = (batch.timesteps / 1000).reshape(512, 1)
        noise = batch.target + latents
        assert sf.allclose(batch.noisy_latents, sigma * noise + (1 - sigma) * latents, atol=1e-5)
    scheduler.set_timesteps(10)
    with pytest.raises(ValueError, match="has the schedule of a run"):
        training_batch(scheduler, latents)


def test_half_precision_latents_have_a_float32_loss():
    loss = diffusion_loss(echo, DDPMScheduler(), sf.randn(2, 4, 8, 8, dtype=sf.bfloat16), snr_gamma=5.0)
    assert loss.dtype is sf.float32


@pytest.mark.parametrize(
    ("error", "text", "scheduler", "options"),
    [
        (
            TypeError,
            r"EulerDiscreteScheduler is no scheduler to train with; take DDPMScheduler",
            EulerDiscreteScheduler(),
            {},
        ),
        (ValueError, "prediction_type must be one of", DDPMScheduler(), {"prediction_type": "noise"}),
        (
            ValueError,
            "flow_prediction does not go with DDPMScheduler",
            DDPMScheduler(),
            {"prediction_type": "flow_prediction"},
        ),
        (
            ValueError,
            "epsilon does not go with FlowMatch",
            FlowMatchEulerDiscreteScheduler(),
            {"prediction_type": "epsilon"},
        ),
        (ValueError, "snr_gamma does not go with flow", FlowMatchEulerDiscreteScheduler(), {"snr_gamma": 5.0}),
        (ValueError, "weighting_scheme is for flow", DDPMScheduler(), {"weighting_scheme": "mode"}),
        (ValueError, "snr_gamma must be above 0", DDPMScheduler(), {"snr_gamma": 0}),
        (ValueError, "condition_dropout must be between", DDPMScheduler(), {"condition_dropout": 1.5}),
        (ValueError, "must be finite", DDPMScheduler(), {"noise_offset": math.nan}),
        (TypeError, "noise_offset must be a number", DDPMScheduler(), {"noise_offset": "0.1"}),
        (TypeError, "unexpected keyword argument 'snr_gama'", DDPMScheduler(), {"snr_gama": 5.0}),
        (ValueError, "noise must have shape", DDPMScheduler(), {"noise": sf.zeros(1, 4, 8, 8)}),
        (ValueError, "timesteps must have shape", DDPMScheduler(), {"timesteps": sf.zeros(3)}),
        (ValueError, "timestep must be an integer from 0 to", DDPMScheduler(), {"timesteps": sf.full((4,), 1000)}),
    ],
)
def test_what_is_refused(error, text, scheduler, options):
    with pytest.raises(error, match=text):
        training_batch(scheduler, sf.zeros(*LATENTS), **options)


def test_other_refusals():
    with pytest.raises(TypeError, match="latents must be a floating-point tensor"):
        training_batch(DDPMScheduler(), sf.zeros(1, 2, dtype=sf.int64))
    with pytest.raises(ValueError, match="prediction must have shape"):
        training_batch(DDPMScheduler(), sf.zeros(1, 2)).loss(sf.zeros(1, 3))
    with pytest.raises(ValueError, match="do(es)? not broadcast"):
        training_batch(DDPMScheduler(), sf.zeros(2, 2), condition_dropout=1.0).drop(sf.zeros(2, 3, 4), sf.zeros(5, 4))
    with pytest.raises(ValueError, match="timesteps must be 0 to 999"):
        compute_snr(DDPMScheduler(), sf.tensor([-1]))
    with pytest.raises(TypeError, match="no alphas_cumprod"):
        compute_snr(FlowMatchEulerDiscreteScheduler(), sf.tensor([1]))


def test_autocast_trains_a_unet():
    unet = UNet2DConditionModel(**FILE["unet"])
    latents, text = data(0)
    options = {"noise": sf.randn(*LATENTS), "timesteps": sf.tensor([10, 300, 600, 900])}
    want = diffusion_loss(unet, DDPMScheduler(), latents, text, **options).item()
    with sf.autocast("cpu", dtype=sf.bfloat16):
        loss = diffusion_loss(unet, DDPMScheduler(), latents, text, **options)
    loss.backward()
    assert loss.dtype is sf.float32 and abs(loss.item() - want) < 0.05 * want
    assert all(p.grad is not None and p.grad.dtype is sf.float32 for p in unet.parameters())
