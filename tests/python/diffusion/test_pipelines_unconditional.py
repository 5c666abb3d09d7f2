"""DDPMPipeline and DDIMPipeline beyond diffusers' pictures, which test_every_pipeline.py has."""

import numpy as np
import pytest
from golden_pipelines import CASES, images_of, one_thread, part, pipeline_of  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import DDIMPipeline, DDIMScheduler, DDPMPipeline, DDPMScheduler, DiffusionPipeline

QUICK = {"num_inference_steps": 2, "seed": 3, "output_type": "np"}


def make(cls=DDPMPipeline, unet="unet", scheduler=None):
    return cls(unet=part("unconditional", unet), scheduler=scheduler or DDPMScheduler())


def test_ddim_makes_its_sampler_of_any(tmp_path):
    pipe = make(DDIMPipeline, scheduler=DDPMScheduler(beta_end=0.01, variance_type="fixed_large"))
    assert type(pipe.scheduler) is DDIMScheduler and pipe.scheduler.config.beta_end == 0.01
    own = DDIMScheduler()
    assert make(DDIMPipeline, scheduler=own).scheduler is own
    make(scheduler=DDPMScheduler(beta_end=0.01)).save_pretrained(tmp_path)
    again = DDIMPipeline.from_pretrained(tmp_path)
    assert type(again.scheduler) is DDIMScheduler and again.scheduler.config.beta_end == 0.01
    np.testing.assert_array_equal(again(**QUICK).images, make(DDIMPipeline, scheduler=again.scheduler)(**QUICK).images)


def test_defaults_are_diffusers():
    pipe = make()
    run = pipe.start(seed=0)
    assert run.steps == 1000 and run.latents.shape == (1, 3, 16, 16)
    assert make(DDIMPipeline).start().steps == 50


def test_a_batch_is_its_pictures_one_by_one():
    pipe = make()
    both = pipe(
        batch_size=2, **{**QUICK, "seed": None}, generator=[sf.Generator().manual_seed(s) for s in (3, 4)]
    ).images
    for picture, seed in zip(both, (3, 4)):
        np.testing.assert_allclose(picture, pipe(**{**QUICK, "seed": seed}).images[0], atol=2e-3)


def test_noise_of_ones_own():
    pipe = make()
    noise = sf.randn(2, 3, 16, 16, generator=sf.Generator().manual_seed(3))
    got = pipe(batch_size=2, latents=noise, **{**QUICK, "output_type": "latent"}).images
    assert got.shape == (2, 3, 16, 16) and not sf.equal(got, noise)
    with pytest.raises(ValueError, match=r"latents must be \[1, 3, h, w\], got"):
        pipe(latents=noise, **QUICK)


def test_grey_pictures():
    image = pytest.importorskip("PIL.Image")
    (picture,) = make(unet="wide")(**{**QUICK, "output_type": "pil"}).images
    assert isinstance(picture, image.Image) and picture.mode == "L" and picture.size == (12, 8)


def test_a_run_step_by_step():
    pipe = make()
    run = pipe.start(batch_size=2, **QUICK)
    run.step()
    run.keep_samples([1])
    assert run.preview(output_type="np").shape == (1, 16, 16, 3)
    while not run.done:
        run.step()
    assert run.finish().images.shape == (1, 16, 16, 3)


def test_a_denoiser_written_in_python():
    class Half(sf.nn.Module):
        config = {"in_channels": 3, "sample_size": [4, 8]}
        dtype, device = sf.float32, sf.device("cpu")

        def forward(self, sample, timestep):
            return sample * 0.5

    images = DDPMPipeline(unet=Half(), scheduler=DDPMScheduler())(**QUICK).images
    assert images.shape == (1, 4, 8, 3) and np.isfinite(images).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"batch_size": 2, "generator": [sf.Generator()] * 3}, "one for each picture, got 3 for 2"),
        ({"eta": float("inf")}, "eta must be finite"),
        ({"output_type": "jpeg"}, "output_type must be"),
        ({"num_inference_steps": 0}, "num_inference_steps"),
    ],
)
def test_calls_that_cannot_be(call, says):
    with pytest.raises(ValueError, match=says):
        make(DDIMPipeline)(**{"num_inference_steps": 2, **call})


def test_parts_that_cannot_be():
    with pytest.raises(ValueError, match="has no unet"):
        DDPMPipeline(scheduler=DDPMScheduler())()
    with pytest.raises(TypeError, match="unet: must be a UNet2DModel, got DiTTransformer2DModel"):
        DDPMPipeline(unet=part("dit", "transformer"), scheduler=DDPMScheduler())
    small = dict(part("unconditional", "unet").config) | {"sample_size": None}
    with pytest.raises(ValueError, match="config needs a sample_size"):
        DDPMPipeline(unet=sf.models.UNet2DModel.from_config(small), scheduler=DDPMScheduler())()


def test_memory_plans_know_them(tmp_path):
    plan = make().memory_plan(max_vram="8GB")
    assert plan is not None
    make().save_pretrained(tmp_path)
    assert type(DiffusionPipeline.from_pretrained(tmp_path)) is DDPMPipeline


def test_files_of_diffusers_first_version(tmp_path):
    """Attention has its first names in google/ddpm-*, whose weights lie beside model_index.json's parts."""
    pipe = pipeline_of(CASES["ddpm"], "unconditional")
    pipe.save_pretrained(tmp_path)
    path = tmp_path / "unet" / "diffusion_pytorch_model.safetensors"
    names = ((".to_q.", ".query."), (".to_k.", ".key."), (".to_v.", ".value."), (".to_out.0.", ".proj_attn."))
    old = {}
    for key, t in sf.safetensors.load_file(path).items():
        for now, before in names:
            key = key.replace(now, before)
        old[key] = t
    sf.safetensors.save_file(old, path)
    again = DDPMPipeline.from_pretrained(tmp_path)
    np.testing.assert_array_equal(images_of(again, CASES["ddpm"]), images_of(pipe, CASES["ddpm"]))


def test_they_are_among_the_names():
    assert {"DDPMPipeline", "DDIMPipeline"} <= set(diffusion.pipelines.__all__)
