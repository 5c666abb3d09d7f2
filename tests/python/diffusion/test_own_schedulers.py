"""Samplers written in Python in folders of pipelines, and samplers that do not go with a model."""

import json
import sys
import types

import numpy as np
import pytest
from golden_pipelines import CASES, one_thread, part, pipeline_of  # noqa: F401

import scaffolding as sf
from scaffolding.diffusion import (
    ConfigMixin,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DiffusionPipeline,
    FlowMatchEulerDiscreteScheduler,
    SchedulerMixin,
    StableDiffusionPipeline,
    register_to_config,
)

QUICK = {"num_inference_steps": 2, "seed": 3, "output_type": "np"}
STABLE = next(c for c in CASES.values() if c["pipeline"] == "StableDiffusionPipeline")


class Halving(SchedulerMixin, ConfigMixin):
    """A step takes a share of the noise away."""

    @register_to_config
    def __init__(self, num_train_timesteps=1000, strength=0.5):
        self.timesteps = None

    def set_timesteps(self, num_inference_steps, device=None):
        self.timesteps = sf.linspace(self.config.num_train_timesteps - 1, 0, num_inference_steps).round().long()

    def step(self, model_output, timestep, sample, return_dict=True):
        return (sample - self.config.strength * model_output,)


def pipe_with(scheduler):
    return DDPMPipeline(unet=part("unconditional", "unet"), scheduler=scheduler)


@pytest.fixture
def module():
    """Halving in a module of a user's own."""
    made = types.ModuleType("my_samplers")
    made.Halving = type("Halving", (Halving,), {"__module__": "my_samplers"})
    sys.modules["my_samplers"] = made
    yield made
    sys.modules.pop("my_samplers", None)


def test_a_pipeline_with_a_sampler_of_ones_own_there_and_back(tmp_path, module):
    pipe = pipe_with(module.Halving(strength=0.25))
    assert pipe.config.scheduler == ["my_samplers", "Halving"]
    pipe.save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    assert index["scheduler"] == ["my_samplers", "Halving"]
    config = json.loads((tmp_path / "scheduler" / "scheduler_config.json").read_text())
    assert config["_class_name"] == "Halving" and config["strength"] == 0.25
    for cls in (DDPMPipeline, DiffusionPipeline):
        again = cls.from_pretrained(tmp_path)
        assert type(again.scheduler) is module.Halving and again.scheduler.config.strength == 0.25
        np.testing.assert_array_equal(again(**QUICK).images, pipe(**QUICK).images)


def test_no_module_is_imported_because_a_folder_names_it(tmp_path, module, monkeypatch):
    pipe_with(module.Halving()).save_pretrained(tmp_path / "pipe")
    sys.modules.pop("my_samplers")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "pipe" / "scheduler"):
        (place / "my_samplers.py").write_text("raise SystemExit('run')")
        monkeypatch.syspath_prepend(place)
    with pytest.raises(ValueError, match="my_samplers.Halving, which is not there: import my_samplers before"):
        DDPMPipeline.from_pretrained(tmp_path / "pipe")
    passed = Halving(strength=0.75)
    assert DDPMPipeline.from_pretrained(tmp_path / "pipe", scheduler=passed).scheduler is passed


@pytest.mark.parametrize(
    "row", [["os", "system"], ["builtins", "dict"], ["json", "JSONDecoder"], ["my_samplers", "No"]]
)
def test_what_is_no_sampler_is_not_made(row, tmp_path, module):
    pipe_with(module.Halving()).save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(json.dumps({**index, "scheduler": row}))
    with pytest.raises(ValueError, match=f"{row[0]}.{row[1]}, which is not there"):
        DDPMPipeline.from_pretrained(tmp_path)


def test_a_sampler_without_a_config_cannot_be_saved(tmp_path):
    class Bare:
        timesteps = None

        def set_timesteps(self, steps, device=None):  # of another name than diffusers has
            self.timesteps = sf.arange(steps)

        def step(self, model_output, timestep, sample):
            return (sample,)

    pipe = pipe_with(Bare())
    pipe(**QUICK)
    with pytest.raises(TypeError, match="must be a model, scheduler or tokenizer of this library, got Bare"):
        pipe.save_pretrained(tmp_path / "pipe")
    assert not (tmp_path / "pipe").exists()


def test_a_model_or_an_unknown_class_of_another_library_is_refused(tmp_path, module):
    pipe_with(DDPMScheduler()).save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(json.dumps({**index, "unet": ["my_samplers", "Halving"]}))
    with pytest.raises(ValueError, match="there is no class 'Halving' for 'unet'"):
        DDPMPipeline.from_pretrained(tmp_path)
    (tmp_path / "model_index.json").write_text(json.dumps({**index, "scheduler": ["diffusers", "Halving"]}))
    with pytest.raises(ValueError, match="there is no class 'Halving' for 'scheduler'"):
        DDPMPipeline.from_pretrained(tmp_path)


# ---- flow matching on a model that predicts noise


def stable(scheduler=None):
    pipe = pipeline_of(STABLE, "stable_diffusion")
    if scheduler is not None:
        pipe.scheduler = scheduler
    return pipe


def generate(pipe):
    return pipe("a cat", num_inference_steps=2, seed=1, output_type="latent").images


@pytest.mark.parametrize(
    "made", [lambda c: FlowMatchEulerDiscreteScheduler(), FlowMatchEulerDiscreteScheduler.from_config]
)
def test_flow_matching_on_a_model_that_predicts_noise_is_refused(made, tmp_path):
    config = stable().scheduler.config
    says = "FlowMatchEulerDiscreteScheduler is for models that predict flow, and .*prediction_type='epsilon'"
    with pytest.raises(ValueError, match=f"StableDiffusionPipeline: {says}"):
        generate(stable(made(config)))
    with pytest.raises(ValueError, match=says):
        stable(made(config)).start("a cat", num_inference_steps=2)
    stable().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=says):
        generate(StableDiffusionPipeline.from_pretrained(tmp_path, scheduler=made(config)))
    shared = StableDiffusionPipeline.from_pipe(stable(), scheduler=made(config))
    with pytest.raises(ValueError, match=says):
        generate(shared)


def test_flow_matching_on_a_model_that_predicts_flow(tmp_path):
    """Trained by flow from a model that predicted noise, as train_text_to_image.py does."""
    stable().scheduler.save_pretrained(tmp_path / "noise")
    config = {
        **DDIMScheduler.load_config(tmp_path / "noise" / "scheduler_config.json"),
        "prediction_type": "flow_prediction",
    }
    pipe = stable(FlowMatchEulerDiscreteScheduler.from_config(config))
    assert generate(pipe).isfinite().all()
    pipe.save_pretrained(tmp_path)
    again = StableDiffusionPipeline.from_pretrained(tmp_path)
    assert sf.equal(generate(again), generate(pipe))
    parts = {**again.components, "scheduler": FlowMatchEulerDiscreteScheduler(shift=2.0)}
    assert generate(StableDiffusionPipeline(**parts)).isfinite().all()
    again.scheduler = DDIMScheduler.from_config(again.scheduler.config, prediction_type="epsilon")
    assert generate(again).isfinite().all()
