"""What samplers and pipelines made for diffusers ask of a scheduler besides its numbers."""

import copy
import inspect
import json
import logging
import math
import pickle

import numpy as np
import pytest
from test_pipelines import make, one_thread  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import ConfigMixin, SchedulerMixin, register_to_config, schedulers

NAMES = [n for n in schedulers.__all__ if n not in ("SchedulerMixin", "SchedulerOutput")]
SD = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}


def parameters(function):
    return {name: p.default for name, p in inspect.signature(function).parameters.items()}


# ---- signatures


@pytest.mark.parametrize("name", NAMES)
def test_signatures_tell_what_a_call_takes(name):
    cls = getattr(diffusion, name)
    s = cls()
    config = {k: v for k, v in s.config.items() if not k.startswith("_")}
    assert {k: v for k, v in parameters(cls.__init__).items() if k != "self"} == config
    step, timesteps = parameters(s.step), parameters(s.set_timesteps)
    empty = inspect.Parameter.empty
    assert step["model_output"] is step["timestep"] is step["sample"] is empty
    assert step["return_dict"] is (name != "CogVideoXDPMScheduler")
    assert list(timesteps)[:2] == ["num_inference_steps", "device"] and timesteps["device"] is None
    assert s.step.__doc__ and s.set_timesteps.__doc__


def test_signatures_are_diffusers():
    assert list(parameters(diffusion.DDIMScheduler().step).items())[3:] == [
        ("eta", 0.0),
        ("use_clipped_model_output", False),
        ("generator", None),
        ("variance_noise", None),
        ("return_dict", True),
    ]
    assert parameters(diffusion.TCDScheduler().step)["eta"] == 0.3
    assert parameters(diffusion.EulerDiscreteScheduler().step)["s_tmax"] == math.inf
    assert list(parameters(diffusion.EulerDiscreteScheduler().set_timesteps)) == [
        "num_inference_steps",
        "device",
        "timesteps",
        "sigmas",
    ]
    with pytest.raises(TypeError, match="unexpected keyword argument 'eta'"):
        diffusion.EulerDiscreteScheduler().step(None, 1, None, eta=1.0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'sample'"):
        diffusion.EulerDiscreteScheduler().step(None, 1)


# ---- outputs and attributes


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("DDIMScheduler", "pred_original_sample"),
        ("LCMScheduler", "denoised"),
        ("TCDScheduler", "pred_noised_sample"),
        ("UniPCMultistepScheduler", None),
    ],
)
def test_an_output_is_an_ordered_mapping(name, second):
    s = getattr(diffusion, name)()
    s.set_timesteps(4)
    x = sf.ones(1, 1, 2, 2)
    out = s.step(x, s.timesteps[0], x)
    names = ["prev_sample", second] if second else ["prev_sample"]
    assert list(out.keys()) == list(out) == names and len(out.values()) == len(names)
    assert out.to_tuple()[0] is out.prev_sample is out["prev_sample"] is out[0]
    assert isinstance(out, schedulers.SchedulerOutput) and dict(out).keys() == set(names)
    assert pickle.loads(pickle.dumps(out)).keys() == out.keys()
    s.set_timesteps(4)
    assert len(s.step(x, s.timesteps[0], x, return_dict=False)) == len(names)


def test_initial_noise_is_a_tensor_where_diffusers_has_one():
    for name in NAMES:
        sigma = getattr(diffusion, name)().init_noise_sigma
        tensor = any(n in name for n in ("EulerDiscrete", "EulerAncestral", "HeunDisc", "LMS", "KDPM2"))
        tensor = tensor and not name.startswith("Flow")
        assert isinstance(sigma, sf.Tensor) == tensor, name
        assert sigma.shape == () if tensor else isinstance(sigma, float), name
    assert float(diffusion.EulerDiscreteScheduler(**SD).init_noise_sigma) == pytest.approx(14.6146, abs=1e-4)


def test_tables_are_where_diffusers_has_them():
    ddim, euler, flow = (
        getattr(diffusion, f"{n}Scheduler")() for n in ("DDIM", "EulerDiscrete", "FlowMatchEulerDiscrete")
    )
    assert not hasattr(ddim, "sigmas") and not hasattr(flow, "alphas_cumprod") and not hasattr(flow, "betas")
    assert euler.sigmas.shape == (1001,) and euler.alphas_cumprod.shape == (1000,)
    assert bool((ddim.alphas == 1 - ddim.betas).all()) and float(ddim.final_alpha_cumprod) == 1.0
    assert np.allclose(ddim.alphas_cumprod.numpy(), np.cumprod(ddim.alphas.double().numpy()), rtol=1e-6)
    assert float(diffusion.DDIMScheduler(set_alpha_to_one=False).final_alpha_cumprod) == float(ddim.alphas_cumprod[0])
    with pytest.raises(AttributeError, match="'DDIMScheduler' object has no attribute 'sigmas'"):
        ddim.sigmas


def test_variances_are_diffusers():
    ddim, ddpm = diffusion.DDIMScheduler(), diffusion.DDPMScheduler()
    for at, want in (((420, 400), 0.14771), ((980, 960), 0.32460), ((487, 486), 0.00979), ((999, 998), 0.02)):
        assert float(ddim._get_variance(*at)) == pytest.approx(want, abs=1e-5)
    for t, want in ((0, 0.0), (487, 0.00979), (999, 0.02)):
        assert float(ddpm._get_variance(t)) == pytest.approx(want, abs=1e-5)
    large = diffusion.DDPMScheduler(variance_type="fixed_large")
    assert float(large._get_variance(999)) == pytest.approx(0.02, abs=1e-5)
    assert int(ddpm.previous_timestep(7)) == 6
    ddpm.set_timesteps(timesteps=[100, 87, 50, 1, 0])
    assert [int(ddpm.previous_timestep(t)) for t in ddpm.timesteps] == [87, 50, 1, 0, -1]


def test_a_run_can_be_set_from_outside():
    x = sf.randn(1, 2, 3, 3)
    runs = []
    for carried in (False, True):
        s = diffusion.DPMSolverMultistepScheduler()
        s.set_timesteps(6)
        sample = x
        for i, t in enumerate(s.timesteps):
            if carried and i == 3:  # another object goes on where the first stopped
                state = s.model_outputs, s.lower_order_nums
                s = diffusion.DPMSolverMultistepScheduler()
                s.set_timesteps(6)
                s.model_outputs, s.lower_order_nums = state
            sample = s.step(0.3 * sample, t, sample).prev_sample
        runs.append(sample.tolist())
    assert runs[0] == runs[1]
    assert s.step_index == 6
    s._step_index = None
    assert s.step_index is None
    s.set_begin_index(3)
    s._begin_index = None
    assert s.begin_index is None
    for name, wrong, error in (
        ("model_outputs", [x], "must have 2 entries, got 1"),
        ("model_outputs", x, "a list of tensors"),
        ("lower_order_nums", 3, "must be from 0 to 2, got 3"),
        ("_step_index", -2, "step_index must be in the schedule"),
        ("sigmas", x, "sigmas must be"),
    ):
        with pytest.raises((ValueError, TypeError), match=error):
            setattr(s, name, wrong)
    s.sigmas = s.sigmas[:3]
    s._step_index = 5
    with pytest.raises(ValueError, match="the 3 sigmas that were set are too few"):
        s.step(x, 100, x)


def test_pndm_by_its_methods():
    s, other = (diffusion.PNDMScheduler() for _ in range(2))
    x = sf.randn(1, 2, 3, 3)
    with pytest.raises(ValueError, match="needs set_timesteps first"):
        s.step_plms(x, 1, x)
    for scheduler in (s, other):
        scheduler.set_timesteps(5)
    with pytest.raises(ValueError, match="after three Runge-Kutta steps, got 0"):
        s.step_plms(x, 1, x)
    assert len(s.prk_timesteps) == 12 and len(s.plms_timesteps) + 12 == len(s.timesteps)
    sample = same = x
    for t in s.timesteps:
        one = s.step_prk if s.counter < len(s.prk_timesteps) else s.step_plms
        sample = one(0.2 * sample, t, sample).prev_sample
        same = other.step(0.2 * same, t, same).prev_sample
    assert sample.tolist() == same.tolist() and len(s.ets) == 4
    with pytest.raises(ValueError, match="a run has 12 Runge-Kutta steps"):
        s.step_prk(x, 1, x)


@pytest.mark.parametrize(
    "name", ["EulerDiscreteScheduler", "HeunDiscreteScheduler", "LMSDiscreteScheduler", "KDPM2DiscreteScheduler"]
)
def test_a_step_before_set_timesteps_is_one_of_the_training(name):
    alone, run = (getattr(diffusion, name)(**SD) for _ in range(2))
    run.set_timesteps(1000)
    x = sf.randn(1, 2, 3, 3) * 10
    t = run.timesteps[-7]
    assert alone.step(0.1 * x, t, x).prev_sample.tolist() == run.step(0.1 * x, t, x).prev_sample.tolist()


@pytest.mark.parametrize("name", [n for n in NAMES if "trained_betas" in getattr(diffusion, n)().config])
def test_trained_betas_of_any_length(name, tmp_path):
    s = getattr(diffusion, name)(trained_betas=np.array([0.1, 0.3]))
    s.save_pretrained(tmp_path)
    assert type(s).from_pretrained(tmp_path).betas.tolist() == s.betas.tolist() == np.float32([0.1, 0.3]).tolist()
    assert s.config.num_train_timesteps == 1000
    x = sf.ones(1, 1, 2, 2)
    if "CogVideoX" not in name:
        s.set_timesteps(4)
        try:
            s.step(x, s.timesteps[0], x)
        except ValueError as error:  # what looks the timestep up refuses one beyond the table
            assert "the last of trained_betas, 1, got" in str(error)


# ---- configs


def test_config_has_its_class_and_grows(caplog):
    s = diffusion.DDIMScheduler(clip_sample=False)
    assert s.config._class_name == "DDIMScheduler"
    s.register_to_config(mine=5)
    assert s.config.mine == 5 and json.loads(s.to_json_string())["mine"] == 5
    with pytest.warns(FutureWarning, match="mine is an entry of its config"):
        assert s.mine == 5
    s.note = "kept"
    for other in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert other.note == "kept" and other.config == s.config and other.timesteps.tolist() == s.timesteps.tolist()
    with pytest.raises(AttributeError, match="'DDIMScheduler' object has no attribute 'absent'"):
        s.absent


def test_compatibles():
    ddim = diffusion.DDIMScheduler(beta_schedule="scaled_linear")
    found = ddim.compatibles
    assert diffusion.DDIMScheduler in found and diffusion.DEISMultistepScheduler in found and len(found) == 13
    for cls in found:
        other = cls.from_config(ddim.config)
        assert other.config.beta_schedule == "scaled_linear" and other.config._class_name == cls.__name__
        back = diffusion.DDIMScheduler.from_config(other.config)
        assert {k: v for k, v in back.config.items() if k in ddim.config} == dict(ddim.config)
    assert diffusion.LCMScheduler().compatibles == [diffusion.LCMScheduler]


class Halving(SchedulerMixin, ConfigMixin):
    """A step takes a share of the noise away."""

    @register_to_config
    def __init__(self, num_train_timesteps=1000, share=0.5, names=("a", "b")):
        self.timesteps = None
        self.calls = []

    def set_timesteps(self, num_inference_steps, device=None):
        self.timesteps = sf.linspace(self.config.num_train_timesteps - 1, 0, num_inference_steps).round().long()

    def step(self, model_output, timestep, sample, return_dict=True):
        self.calls.append(int(timestep))
        return (sample - self.config.share * model_output,)


def test_a_config_of_ones_own(tmp_path, caplog):
    s = Halving(500, share=0.25)
    assert s.config.num_train_timesteps == 500 and s.config["_use_default_values"] == ["names"]
    s.save_pretrained(tmp_path)
    assert (tmp_path / "scheduler_config.json").is_file()
    again = Halving.from_pretrained(tmp_path, share=0.75)
    assert (
        again.config.share == 0.75
        and again.config.num_train_timesteps == 500
        and list(again.config.names) == ["a", "b"]
    )
    assert isinstance(s, SchedulerMixin) and isinstance(diffusion.DDIMScheduler(), (ConfigMixin, SchedulerMixin))
    assert issubclass(diffusion.DDIMScheduler, SchedulerMixin)
    assert parameters(Halving.__init__)["share"] == 0.5
    with caplog.at_level(logging.INFO):
        Halving.from_config({"share": 0.1, "strange": 1})
    assert "'strange': 1" in caplog.text and "was not found in config" in caplog.text

    class Named(ConfigMixin):
        @register_to_config
        def __init__(self, a=1):
            pass

    with pytest.raises(NotImplementedError, match="needs a config_name"):
        Named()


class Mine(diffusion.EulerDiscreteScheduler):
    """A class of C++ with more fields."""

    @register_to_config
    def __init__(self, num_train_timesteps=1000, beta_schedule="scaled_linear", extra=3):
        super().__init__(num_train_timesteps, beta_schedule=beta_schedule)

    def step(self, model_output, timestep, sample, **options):
        return super().step(0.5 * model_output, timestep, sample, **options)


def test_a_subclass_with_fields_of_its_own():
    s = Mine(extra=4)
    assert s.config.extra == 4 and s.config.beta_schedule == "scaled_linear" and s.config.beta_start == 0.0001
    again = Mine.from_config(s.config)
    assert again.config.extra == 4 and again.config._class_name == "Mine"


# ---- in pipelines


@pytest.fixture
def pipe():
    return make()


CALL = {"height": 16, "width": 16, "num_inference_steps": 4, "seed": 3, "output_type": "latent", "guidance_scale": 1.0}


def test_a_sampler_of_python_alone_runs_in_a_pipeline(pipe):
    sampler = Halving()
    made = type(pipe).from_pipe(pipe, scheduler=sampler)
    first = made("a square", **CALL).images
    assert sampler.calls == [999, 666, 333, 0] and bool(sf.isfinite(first).all())
    other = type(pipe).from_pipe(pipe, scheduler=Halving(share=0.25))("a square", **CALL).images
    assert not sf.allclose(first, other)
    with pytest.raises(TypeError, match="an object with set_timesteps, step and timesteps"):
        type(pipe).from_pipe(pipe, scheduler=object())("a square", **CALL)


def test_a_pipeline_with_a_subclass_is_saved_as_one_with_its_base(pipe, tmp_path):
    type(pipe).from_pipe(pipe, scheduler=Mine()).save_pretrained(tmp_path)
    read = type(pipe).from_pretrained(tmp_path).scheduler
    assert type(read) is diffusion.EulerDiscreteScheduler and read.config.beta_schedule == "scaled_linear"
    assert Mine.from_pretrained(tmp_path / "scheduler").config.extra == 3


def test_an_overridden_step_is_called_in_a_pipeline(pipe):
    ours = type(pipe).from_pipe(pipe, scheduler=Mine())("a square", **CALL).images
    plain = type(pipe).from_pipe(pipe, scheduler=diffusion.EulerDiscreteScheduler(beta_schedule="scaled_linear"))
    assert not sf.allclose(ours, plain("a square", **CALL).images)


@pytest.mark.parametrize(
    "name", ["TCD", "LMSDiscrete", "KDPM2AncestralDiscrete", "DPMSolverSinglestep", "DEISMultistep"]
)
def test_new_samplers_run_in_a_pipeline(pipe, name):
    cls = getattr(diffusion, f"{name}Scheduler")
    images = type(pipe).from_pipe(pipe, scheduler=cls.from_config(pipe.scheduler.config))("a square", **CALL).images
    assert bool(sf.isfinite(images).all())


# ---- values that make no sense


def test_values_without_sense_are_computed_with_and_logged(caplog):
    fixed = diffusion.DDPMScheduler()
    with caplog.at_level(logging.WARNING):
        other = diffusion.DDPMScheduler(variance_type="other")
    assert "variance_type='other' is none, and taken as 'fixed_small'" in caplog.text
    for s in (fixed, other):
        s.set_timesteps(10)
    x, out = sf.full((1, 3, 2, 2), 0.5), sf.full((1, 3, 2, 2), 0.1)
    steps = [s.step(out, 500, x, generator=sf.Generator().manual_seed(1)).prev_sample for s in (fixed, other)]
    assert sf.equal(*steps) and fixed.timesteps.tolist() == other.timesteps.tolist()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        beyond = diffusion.DDIMScheduler(beta_start=0.1, beta_end=2)
    assert "beta_end=2.0 leaves no signal, steps give NaN" in caplog.text and beyond.betas[-1].item() == 2
    beyond.set_timesteps(10)
    assert sf.isfinite(beyond.step(out, 0, x).prev_sample).all()
    assert beyond.step(out, 900, x).prev_sample.shape == x.shape
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        diffusion.DDPMScheduler(beta_end=0.99, variance_type="learned_range")
    assert caplog.text == ""
    with pytest.raises(ValueError, match="beta_end must be at least 0 and below 1"):
        diffusion.EulerDiscreteScheduler(beta_end=2)
    with pytest.raises(ValueError, match="beta_end must be at least 0 and finite"):
        diffusion.DDIMScheduler(beta_end=math.inf)
