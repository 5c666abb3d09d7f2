"""Schedulers: diffusers' runs (tests/golden/make_golden_schedulers.py), configs, refusals."""

import copy
import json
import math
import pickle

import folders
import numpy as np
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import schedulers

FOLDER = folders.GOLDEN / "schedulers"
WITHOUT_BETAS = [
    "FlowMatchEulerDiscreteScheduler",
    "EDMEulerScheduler",
    "EDMDPMSolverMultistepScheduler",
    "IPNDMScheduler",
]
NAMES = [n for n in schedulers.__all__ if n not in ("SchedulerMixin", "SchedulerOutput")]
FILES = {name: read_json(FOLDER / f"{name}.json.xz") for name in NAMES}
CASES = [pytest.param(name, case, id=f"{name}-{i}") for name in NAMES for i, case in enumerate(FILES[name]["cases"])]
# In 16 bits every sum and product is rounded alike on both sides,
# so that runs are equal to the last bit (the files have 9 digits).
TOLERANCE = {"float64": 1e-5, "float32": 1e-5, "float16": 1e-8, "bfloat16": 1e-8}


def seeded(shape, seed):
    return sf.randn(shape, generator=sf.Generator().manual_seed(seed))


def distance(got, expected, what):
    """The largest difference relative to the largest value, of what is finite on both sides."""
    got, expected = got.detach().double().numpy().ravel(), np.array(expected, dtype=np.float64)
    assert got.shape == expected.shape, what
    finite = np.isfinite(expected)
    assert (finite == np.isfinite(got)).all(), what
    return np.abs(got - expected)[finite].max(initial=0) / max(1e-3, np.abs(expected[finite]).max(initial=0))


def assert_like(got, expected, limit, what):
    error = distance(got, expected, what)
    assert error <= limit, f"{what}: {error:.2e} of the largest value"


def model(x, t, channels):
    y = 0.7 * sf.sin(x.double() * 1.3) + 0.1 * math.cos(float(t) / 100)
    return (sf.cat([y, 0.3 * sf.cos(x.double()) ** 2], 1) if channels == 2 else y).to(x.dtype)


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
        y = model(scheduler.scale_model_input(sample, t), t, channels)
        if name == "CogVideoXDPMScheduler":
            sample, old = scheduler.step(y, old, t, back, sample, **options)
            back, original = t, old
        else:
            out = scheduler.step(y, t, sample, **options)
            sample, original = out.prev_sample, out[1] if len(out) > 1 else None
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
        if case["noisy"] is None:
            with pytest.raises(NotImplementedError, match="has no add_noise"):
                scheduler.add_noise(x, noise, at)
            continue
        assert_like(scheduler.add_noise(x, noise, at), case["noisy"], 1e-6, "add_noise")
        if case["velocity"] is not None:
            assert_like(scheduler.get_velocity(x, noise, at), case["velocity"], 1e-6, "get_velocity")


def test_another_predictor_under_unipc_equals_diffusers():
    for case in FILES["UniPCMultistepScheduler"]["other_predictors"]:
        predictor = getattr(diffusion, case["class"])(beta_schedule="scaled_linear", **case["config"])
        scheduler = diffusion.UniPCMultistepScheduler(beta_schedule="scaled_linear", solver_p=predictor)
        for _ in range(2):  # a second run begins anew, in the predictor too
            scheduler.set_timesteps(case["steps"])
            sample = seeded((1, 2, 3, 3), 3)
            for t in scheduler.timesteps:
                sample = scheduler.step(model(sample, t, 1), t, sample).prev_sample
            assert_like(sample, case["sample"], 1e-5, case["class"])
    with pytest.raises(NotImplementedError, match="solver_p must be a scheduler or null"):
        diffusion.UniPCMultistepScheduler(solver_p="ddim")


def test_velocity_of_noise_levels_is_that_of_their_timesteps():
    euler, ddim = (
        getattr(diffusion, n)(beta_schedule="scaled_linear") for n in ("EulerDiscreteScheduler", "DDIMScheduler")
    )
    x, noise, at = seeded((2, 1, 2), 5), seeded((2, 1, 2), 6), sf.tensor([999, 321])
    want = ddim.get_velocity(x, noise, at)
    assert bool((euler.get_velocity(x, noise, at.float()) == want).all())
    euler.set_timesteps(7)
    assert bool((euler.get_velocity(x, noise, at.float()) == want).all())


@pytest.mark.parametrize("case", FILES["FlowMatchEulerDiscreteScheduler"]["per_token"])
def test_tokens_with_noise_levels_of_their_own(case):
    s = diffusion.FlowMatchEulerDiscreteScheduler(**case["config"])
    s.set_timesteps(4)
    y, x = seeded((2, 3, 4), 5), seeded((2, 3, 4), 6)
    at = sf.tensor(case["per_token_timesteps"])
    assert_like(
        s.step(y, s.timesteps[0], x, per_token_timesteps=at, generator=sf.Generator().manual_seed(11)).prev_sample,
        case["sample"],
        1e-6,
        "sample",
    )
    with pytest.raises(ValueError, match="per_token_timesteps must be"):
        s.step(y, s.timesteps[1], x, per_token_timesteps=at[:, :2])


def test_thresholding_takes_each_samples_own_quantile():
    s = diffusion.DDIMScheduler(
        thresholding=True,
        dynamic_thresholding_ratio=0.75,
        sample_max_value=5.0,
        prediction_type="sample",
        clip_sample=False,
    )
    s.set_timesteps(4)
    y = sf.tensor([[[-4.0, 0.0, 2.0, 1.0, 3.0]], [[0.5, -0.25, 0.1, 0.0, 0.2]], [[math.nan, 9.0, 1.0, 1.0, 1.0]]])
    got = s.step(y, s.timesteps[0], y).pred_original_sample.numpy()
    assert np.allclose(got[0, 0], np.array([-3, 0, 2, 1, 3]) / 3)  # of 0 1 2 3 4 the third quarter
    assert np.allclose(got[1, 0], [0.5, -0.25, 0.1, 0.0, 0.2])
    assert np.isnan(got[2]).all()


@pytest.mark.parametrize("name", NAMES)
def test_fields_and_defaults_are_diffusers(name):
    config = getattr(diffusion, name)().config
    ours = {k: v for k, v in config.items() if not k.startswith("_")}
    assert ours == FILES[name]["defaults"]
    assert list(ours) == list(FILES[name]["defaults"])  # the order of positional arguments


# ---- configs


def test_config_travels_between_classes():
    ddim = diffusion.DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, prediction_type="v_prediction")
    assert ddim.config.beta_schedule == "scaled_linear" and "beta_start" in ddim.config["_use_default_values"]
    with pytest.raises(TypeError, match="cannot be changed"):
        ddim.config["beta_start"] = 1
    heun = diffusion.HeunDiscreteScheduler.from_config(ddim.config, use_karras_sigmas=True)
    assert heun.config.prediction_type == "v_prediction" and heun.config.use_karras_sigmas
    assert heun.config.beta_start == 0.00085  # DDIM's was a default, so Heun has its own
    back = diffusion.DDIMScheduler.from_config(heun.config)
    assert back.config.clip_sample is False and back.config.prediction_type == "v_prediction"


def test_config_file_round_trip(tmp_path):
    made = diffusion.DPMSolverMultistepScheduler(
        use_karras_sigmas=True, solver_order=3, trained_betas=np.linspace(0.001, 0.02, 20), num_train_timesteps=20
    )
    made.save_config(tmp_path / "scheduler")
    text = (tmp_path / "scheduler" / "scheduler_config.json").read_text()
    assert json.loads(text)["_class_name"] == "DPMSolverMultistepScheduler" and "-Infinity" in text
    for read in (
        diffusion.DPMSolverMultistepScheduler.from_pretrained(tmp_path, subfolder="scheduler"),
        pickle.loads(pickle.dumps(made)),
        copy.deepcopy(made),
    ):
        assert {k: v for k, v in read.config.items() if not k.startswith("_")} == {
            k: v for k, v in made.config.items() if not k.startswith("_")
        }


@pytest.mark.parametrize("name", NAMES)
def test_every_config_comes_back_from_a_file(name, tmp_path):
    cls = getattr(diffusion, name)
    fields = lambda s: {k: v for k, v in s.config.items() if not k.startswith("_")}  # noqa: E731
    for config in {json.dumps(case["config"]): case["config"] for case in FILES[name]["cases"]}.values():
        made = cls(**config)
        made.save_config(tmp_path)
        assert all(fields(made)[k] == (list(v) if isinstance(v, tuple) else v) for k, v in config.items())
        assert fields(cls.from_pretrained(tmp_path)) == fields(made) == fields(cls.from_config(made.config))


@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2", "cosine", "sigmoid"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_BETAS])
def test_every_class_takes_every_beta_schedule(name, schedule):
    betas = {"beta_start": 0.00085, "beta_end": 0.012}
    by_name = getattr(diffusion, name)(beta_schedule=schedule, **betas)
    by_value = getattr(diffusion, name)(
        trained_betas=diffusion.get_beta_schedule(schedule, 1000, *betas.values()).tolist()
    )
    noisy = []
    for s in (by_name, by_value):
        s.set_timesteps(10)
        noisy.append(s.add_noise(seeded((3, 2), 5), seeded((3, 2), 6), s.timesteps[[1, 4, 9]]))
    assert_like(noisy[0], noisy[1].numpy().ravel(), 1e-6, schedule)
    other = getattr(diffusion, name)(beta_schedule="sigmoid" if schedule == "linear" else "linear", **betas)
    other.set_timesteps(10)
    assert not sf.allclose(
        other.add_noise(seeded((3, 2), 5), seeded((3, 2), 6), other.timesteps[[1, 4, 9]]), noisy[0], rtol=1e-3
    )


def test_unknown_entries_are_kept_and_reported(caplog):
    s = diffusion.DDIMScheduler.from_config(
        {"_class_name": "DDIMScheduler", "_diffusers_version": "0.6.0", "clip_smaple": False}
    )
    assert [r.levelname for r in caplog.records] == ["WARNING"] and "{'clip_smaple': False} were" in caplog.text
    assert s.config.clip_smaple is False and json.loads(s.to_json_string())["_diffusers_version"] == "0.6.0"
    s, unused = diffusion.DDIMScheduler.from_config({}, return_unused_kwargs=True, eta=1.0, clip_sample=False)
    assert unused == {"eta": 1.0} and s.config.clip_sample is False
    with pytest.raises(TypeError, match="unexpected keyword argument 'eta'"):
        diffusion.DDIMScheduler(eta=1.0)


@pytest.mark.parametrize("name", NAMES)
def test_impossible_configs(name):
    cls = getattr(diffusion, name)
    with pytest.raises(TypeError, match="num_train_timesteps must be an integer"):
        cls(num_train_timesteps="many")
    for bad in (0, -1, 10**12):
        with pytest.raises(ValueError, match="num_train_timesteps must be from 1"):
            cls(num_train_timesteps=bad)
    if name in WITHOUT_BETAS:
        bad = {"Flow": {"shift": 0.0}, "EDME": {"rho": 0.0}, "EDMD": {"sigma_min": 0.0}, "IPND": {"trained_betas": []}}
        with pytest.raises(ValueError, match="must be positive|trained_betas must have from 1"):
            cls(**bad[name[:4]])
        return
    with pytest.raises(ValueError, match="beta_schedule must be"):
        cls(beta_schedule="exponential")
    with pytest.raises(ValueError, match="beta_end must be"):
        cls(beta_end=math.nan)
    with pytest.raises(ValueError, match="trained_betas must have from 1"):
        cls(trained_betas=[])
    with pytest.raises(ValueError, match="prediction_type must be one of"):
        cls(prediction_type="noise")


def test_broken_config_files(tmp_path):
    path = tmp_path / "scheduler_config.json"
    for text, message in [("", "no JSON"), ("[1]", "must be a JSON object"), ("{" * 100, "no JSON"),
                          ('{"a":' + "[" * 1000, "nested deeper"), ('{"beta_start": 1e999}', "no JSON")]:  # fmt: skip
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            diffusion.DDIMScheduler.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError):
        diffusion.DDIMScheduler.from_pretrained(tmp_path / "absent")


# ---- refusals


# Whose step before set_timesteps is one of the training's.
WITHOUT_A_RUN = [
    "DDPMScheduler",
    "EulerDiscreteScheduler",
    "EulerAncestralDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LMSDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "KDPM2AncestralDiscreteScheduler",
    "EDMEulerScheduler",
    "IPNDMScheduler",
]


@pytest.mark.parametrize("name", NAMES)
def test_impossible_calls(name):
    s = getattr(diffusion, name)()
    x = sf.randn(1, 2, 3, 3)
    order = (x, None, 999, None, x) if name == "CogVideoXDPMScheduler" else (x, 999, x)
    if name not in WITHOUT_A_RUN:
        with pytest.raises(ValueError, match="step needs set_timesteps first"):
            s.step(*order)
    for bad in (0, -3, 1001):
        with pytest.raises(ValueError, match="num_inference_steps must be from 1"):
            s.set_timesteps(bad)
    with pytest.raises(ValueError, match="set_timesteps needs num_inference_steps"):
        s.set_timesteps()
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        s.set_timesteps(steps=4)
    s.set_timesteps(4)
    t = s.timesteps[0]
    call = (lambda y, t, x: s.step(y, None, t, None, x)) if name == "CogVideoXDPMScheduler" else s.step
    with pytest.raises(ValueError, match="must have the shape of sample"):
        call(sf.randn(1, 2, 3, 4), t, x)
    with pytest.raises((TypeError, ValueError), match="model_output"):
        call(None, t, x)
    with pytest.raises(ValueError, match="timestep"):
        call(x, math.nan, x)
    if name != "IPNDMScheduler":  # which has no add_noise
        with pytest.raises(ValueError, match="noise"):
            s.add_noise(x, sf.randn(1, 2), s.timesteps[:1])
        with pytest.raises(ValueError, match="one for each sample"):
            s.add_noise(x, x, s.timesteps[:3])
    assert call(x, t, x) is not None


def test_a_run_has_an_end_and_can_begin_later():
    s = diffusion.EulerDiscreteScheduler()
    s.set_timesteps(2)
    x = sf.ones(1, 1, 2, 2)
    for t in s.timesteps:
        s.step(x, t, x)
    with pytest.raises(RuntimeError, match="the run of 2 timesteps is over"):
        s.step(x, t, x)
    s.set_timesteps(4)
    assert s.step_index is None
    s.set_begin_index(2)
    s.step(x, s.timesteps[2], x)
    assert s.step_index == 3
    with pytest.raises(ValueError, match="begin_index must be in the schedule"):
        s.set_begin_index(9)
    with pytest.raises(ValueError, match="must be one of scheduler.timesteps"):
        diffusion.EulerDiscreteScheduler().scale_model_input(x, 0.5)


def test_ancestral_steps_from_infinite_noise_are_finite():
    s = diffusion.EulerAncestralDiscreteScheduler(beta_schedule="squaredcos_cap_v2")
    s.set_timesteps(4)
    x = sf.randn(1, 2, 3, 3) * s.init_noise_sigma
    for t in s.timesteps:
        x = s.step(0.1 * s.scale_model_input(x, t), t, x).prev_sample
    assert bool(sf.isfinite(x).all())


def test_generators_for_each_sample():
    s = diffusion.DDIMScheduler()
    s.set_timesteps(4)
    x = sf.randn(2, 1, 2, 2)
    both = s.step(x, 250, x, eta=1.0, generator=[sf.Generator().manual_seed(i) for i in (1, 2)]).prev_sample
    one = s.step(x[1:], 250, x[1:], eta=1.0, generator=sf.Generator().manual_seed(2)).prev_sample
    assert bool((both[1:] == one).all())
    with pytest.raises(ValueError, match="one for each sample"):
        s.step(x, 250, x, eta=1.0, generator=[sf.Generator()] * 3)
    with pytest.raises(ValueError, match="not both"):
        s.step(x, 250, x, eta=1.0, generator=sf.Generator(), variance_noise=x)


def test_output_is_an_object_and_a_tuple():
    s = diffusion.DDIMScheduler()
    s.set_timesteps(4)
    x = sf.ones(1, 1, 2, 2)
    out = s.step(x, 250, x)
    first, second = s.step(x, 250, x, return_dict=False)
    assert (
        bool((out.prev_sample == first).all()) and bool((out["pred_original_sample"] == second).all()) and len(out) == 2
    )
    assert bool((out[0] == first).all())


# ---- helpers


def test_get_beta_schedule():
    linear = diffusion.get_beta_schedule("linear", 10, 0.1, 0.2).numpy()
    assert np.allclose(linear, np.linspace(0.1, 0.2, 10), atol=1e-7)
    assert np.allclose(
        diffusion.get_beta_schedule("scaled_linear", 10, 0.1, 0.2).numpy(),
        np.linspace(0.1**0.5, 0.2**0.5, 10) ** 2,
        atol=1e-7,
    )
    cosine = diffusion.get_beta_schedule("cosine", 10, 0.1, 0.2).numpy()
    assert (cosine == diffusion.get_beta_schedule("squaredcos_cap_v2", 10, 0.1, 0.2).numpy()).all() and cosine[
        -1
    ] == np.float32(0.999)
    sigmoid = diffusion.get_beta_schedule("sigmoid", 11, 0.1, 0.2).numpy()
    assert np.allclose(sigmoid[5], 0.15, atol=1e-6)
    with pytest.raises(ValueError, match="beta_schedule must be linear"):
        diffusion.get_beta_schedule("square", 10, 0.1, 0.2)
    with pytest.raises(ValueError, match="num_train_timesteps must be from 1"):
        diffusion.get_beta_schedule("linear", 0, 0.1, 0.2)


def test_randn_tensor():
    x = diffusion.randn_tensor((2, 3), seed=5)
    assert bool((x == seeded((2, 3), 5)).all())
    assert bool((diffusion.randn_tensor((2, 3), sf.Generator().manual_seed(5)) == x).all())
    two = diffusion.randn_tensor((2, 16), generator=[sf.Generator().manual_seed(5), sf.Generator().manual_seed(6)])
    assert bool((two[1:] == seeded((1, 16), 6)).all())
    assert diffusion.randn_tensor((2,), dtype=sf.float16).dtype is sf.float16
    with pytest.raises(ValueError, match="not both"):
        diffusion.randn_tensor((2,), seed=1, generator=sf.Generator())


def test_slerp():
    a, b = sf.tensor([3.0, 0.0]), sf.tensor([0.0, 1.0])
    angle = math.pi / 6
    assert np.allclose(
        diffusion.slerp(a, b, 1 / 3).numpy(),
        (3 + (1 - 3) / 3) * np.array([math.cos(angle), math.sin(angle)]),
        atol=1e-6,
    )
    x, y = sf.randn(4, 8, dtype=sf.float16), sf.randn(4, 8, dtype=sf.float16)
    rows = diffusion.slerp(x, y, 0.25, dim=-1)
    assert rows.dtype is sf.float16
    assert np.allclose(rows[2].numpy(), diffusion.slerp(x[2], y[2], t=0.25).numpy(), atol=2e-3)
    assert np.allclose(diffusion.slerp(x, y, 0.0).numpy(), x.numpy(), atol=2e-3) and np.allclose(
        diffusion.slerp(x, y, 1.0).numpy(), y.numpy(), atol=2e-3
    )
    with pytest.raises(ValueError, match="one shape"):
        diffusion.slerp(x, y[:2], 0.5)
    with pytest.raises(TypeError, match="one floating dtype"):
        diffusion.slerp(x, y.float(), 0.5)


def test_rescale_noise_cfg():
    a, b = sf.randn(2, 3, 4), 3 * sf.randn(2, 3, 4)
    x, y = a.numpy(), b.numpy()
    ratio = y.std((1, 2), ddof=1, keepdims=True) / x.std((1, 2), ddof=1, keepdims=True)
    assert np.allclose(diffusion.rescale_noise_cfg(a, b).numpy(), 0.7 * x * ratio + 0.3 * x, rtol=1e-5)
    assert np.allclose(diffusion.rescale_noise_cfg(a, b, guidance_rescale=0.0).numpy(), x)
    with pytest.raises(ValueError, match="one shape"):
        diffusion.rescale_noise_cfg(a, b[:, :2])
    with pytest.raises(ValueError, match="must be finite"):
        diffusion.rescale_noise_cfg(a, b, math.nan)


def test_classifier_free_guidance():
    def guided(x, t, text):
        assert x.shape[0] == text.shape[0] == 4 and t.ndim == 0
        return x * 2 + text.sum(dim=-1).reshape(-1, 1)

    x, prompt, negative = sf.randn(2, 3), sf.randn(2, 5), sf.randn(2, 5)
    got = diffusion.classifier_free_guidance(guided, x, 10, prompt, negative, 4.0).numpy()
    p, n = prompt.numpy().sum(-1, keepdims=True), negative.numpy().sum(-1, keepdims=True)
    assert np.allclose(got, 2 * x.numpy() + n + 4 * (p - n), atol=1e-5)
    with pytest.raises(ValueError, match="one shape"):
        diffusion.classifier_free_guidance(guided, x, 10, prompt, negative[:1], 4.0)
    with pytest.raises(ValueError, match="must be finite"):
        diffusion.classifier_free_guidance(guided, x, 10, prompt, negative, math.nan)
    with pytest.raises(RuntimeError, match="broken"):
        diffusion.classifier_free_guidance(
            lambda *a: (_ for _ in ()).throw(RuntimeError("broken")), x, 10, prompt, negative, 4.0
        )
