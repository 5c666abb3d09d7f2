"""Schedulers: diffusers' runs (tests/golden/make_golden_schedulers.py), configs, refusals."""

import json
import math
import pathlib

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import schedulers

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "schedulers"
NAMES = [n for n in schedulers.__all__ if n not in ("SchedulerMixin", "SchedulerOutput")]
FILES = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES}
CASES = [pytest.param(name, case, id=f"{name}-{i}") for name in NAMES for i, case in enumerate(FILES[name]["cases"])]
TOLERANCE = {"float64": 1e-5, "float32": 1e-5, "float16": 3e-3}


def seeded(shape, seed):
    return sf.randn(shape, generator=sf.Generator().manual_seed(seed))


def assert_like(got, expected, limit, what):
    got, expected = got.detach().double().numpy().ravel(), np.array(expected, dtype=np.float64)
    assert got.shape == expected.shape, what
    finite = np.isfinite(expected)
    assert (finite == np.isfinite(got)).all(), what
    scale = max(1e-3, np.abs(expected[finite]).max(initial=0))
    error = np.abs(got - expected)[finite].max(initial=0) / scale
    assert error <= limit, f"{what}: {error:.2e} of {scale:.3g}"


def model(x, t, channels):
    y = 0.7 * sf.sin(x * 1.3) + 0.1 * math.cos(float(t) / 100)
    return sf.cat([y, 0.3 * sf.cos(x) ** 2], 1) if channels == 2 else y


@pytest.mark.parametrize("name, case", CASES)
def test_runs_equal_diffusers(name, case):
    want = case["result"]
    dtype = case.get("dtype", "float32")
    limit = TOLERANCE[dtype]
    scheduler = getattr(diffusion, name)(**case["config"])
    scheduler.set_timesteps(**case["set_timesteps"])
    n = len(scheduler.timesteps)
    if n > 1 and scheduler.timesteps[0] == scheduler.timesteps[1]:
        scheduler.set_begin_index(0)
    thin = 1 if len(want["timesteps"]) == n else 5
    assert_like(scheduler.timesteps[::thin], want["timesteps"], 1e-6, "timesteps")
    if want["sigmas"] is not None:
        assert_like(scheduler.sigmas[::thin], want["sigmas"], 1e-6, "sigmas")
    options = dict(case["step"])
    if "seed" in case:
        options["generator"] = sf.Generator().manual_seed(case["seed"])
    channels = 2 if str(case["config"].get("variance_type")).startswith("learned") and name == "DDPMScheduler" else 1
    sample = (seeded((1, 2, 3, 3), 3) * scheduler.init_noise_sigma).to(getattr(sf, dtype))
    old = back = None
    kept = []
    for i, t in enumerate(scheduler.timesteps):
        y = model(scheduler.scale_model_input(sample, t), t, channels).to(getattr(sf, dtype))
        if name == "CogVideoXDPMScheduler":
            sample, old = scheduler.step(y, old, t, back, sample, **options)
            back, original = t, old
        else:
            out = scheduler.step(y, t, sample, **options)
            sample, original = out.prev_sample, out.pred_original_sample
        if i in want["keep"]:
            kept.append(sample)
    assert len(kept) == len(want["samples"])
    for place, got, expected in zip(want["keep"], kept, want["samples"], strict=True):
        assert_like(got, expected, limit, f"sample {place}")
    if want["original"] is not None:
        assert_like(original, want["original"], limit, "pred_original_sample")


@pytest.mark.parametrize("name", NAMES)
def test_noise_for_training_equals_diffusers(name):
    for case in FILES[name]["noised"]:
        scheduler = getattr(diffusion, name)(**case["config"])
        scheduler.set_timesteps(4)
        x, noise = seeded((2, 1, 2), 5), seeded((2, 1, 2), 6)
        at = sf.stack([scheduler.timesteps[0], scheduler.timesteps[2]])
        assert_like(scheduler.add_noise(x, noise, at), case["noisy"], 1e-6, "add_noise")
        if case["velocity"] is not None:
            assert_like(scheduler.get_velocity(x, noise, at), case["velocity"], 1e-6, "get_velocity")


@pytest.mark.parametrize("name", NAMES)
def test_fields_and_defaults_are_diffusers(name):
    config = getattr(diffusion, name)().config
    ours = {k: v for k, v in config.items() if not k.startswith("_")}
    assert ours == FILES[name]["defaults"]
    assert list(ours) == list(FILES[name]["defaults"])  # the order of positional arguments
