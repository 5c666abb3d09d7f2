"""hires: two passes, equal to the bit to calling them by hand."""

import numpy as np
import pytest
from test_pipelines import make, one_thread  # noqa: F401

import scaffolding as sf
from scaffolding.diffusion import AutoPipelineForImage2Image, VaeImageProcessor, hires
from scaffolding.nn import functional as F

PROMPT = "a photo of the cat"
CALL = {"num_inference_steps": 4, "guidance_scale": 5.0, "negative_prompt": "dog"}


def by_hand(pipe, scale, strength, upscaler, height, width, steps=4):
    generator = sf.Generator().manual_seed(3)
    change = AutoPipelineForImage2Image.from_pipe(pipe)
    larger = [int(n * scale) // 8 * 8 for n in (height, width)]
    size, first = {"height": height, "width": width}, {**CALL, "generator": generator}
    if upscaler == "latent":
        latents = pipe(PROMPT, output_type="latent", **size, **first).images
        image = F.interpolate(latents, tuple(n // 2 for n in larger), mode="bilinear")
    else:
        image = pipe(PROMPT, output_type="pil", **size, **first).images[0]
        image = VaeImageProcessor(vae_scale_factor=2, resample=upscaler).resize(image, *larger)
    second = {**CALL, "num_inference_steps": steps, "strength": strength, "generator": generator}
    return change(PROMPT, image=image, output_type="np", **second).images


@pytest.mark.parametrize("upscaler", ["latent", "bicubic", "lanczos"])
@pytest.mark.parametrize(
    ("name", "schedule", "scale", "height", "width"),
    [
        ("StableDiffusionPipeline", "ddim", 2, 32, 32),
        ("StableDiffusionPipeline", "euler_a", 1.6, 32, 24),
        ("StableDiffusionXLPipeline", "euler", 1.5, 32, 48),
    ],
)
def test_two_passes_by_hand(upscaler, name, schedule, scale, height, width):
    if upscaler != "latent":
        pytest.importorskip("PIL")
    pipe = make(name, schedule=schedule)
    want = by_hand(pipe, scale, 0.5, upscaler, height, width, steps=6)
    options = {"scale": scale, "strength": 0.5, "steps": 6, "upscaler": upscaler}
    got = hires(pipe, PROMPT, **options, height=height, width=width, seed=3, output_type="np", **CALL).images
    assert got.shape[1:3] == tuple(int(n * scale) // 8 * 8 for n in (height, width))
    np.testing.assert_array_equal(got, want)


def test_a_function_makes_pictures_larger():
    pipe, seen = make(), []

    def twice(picture):
        seen.append((picture.shape, picture.dtype))
        return F.interpolate(picture.unsqueeze(0).float(), scale_factor=2).to(sf.uint8)[0]

    call = {**CALL, "output_type": "np", "num_images_per_prompt": 2}
    got = hires(pipe, PROMPT, scale=1.5, upscaler=twice, seed=1, **call).images
    assert got.shape == (2, 48, 48, 3) and seen == [((3, 32, 32), sf.uint8)] * 2
    other = hires(pipe, PROMPT, scale=1.5, upscaler="lanczos", seed=1, **call).images
    assert np.abs(got - other).max() > 1e-3


def test_what_is_returned_is_the_second_calls():
    pipe = make()
    assert hires(pipe, PROMPT, seed=1, output_type="latent", **CALL).images.shape == (1, 4, 32, 32)
    assert isinstance(hires(pipe, PROMPT, seed=1, return_dict=False, output_type="np", **CALL), tuple)
    steps = []
    hires(pipe, PROMPT, seed=1, callback_on_step_end=lambda p, i, t, k: steps.append(i) or k, **CALL)
    assert steps == [0, 1, 2, 3, 0, 1]  # 0.7 of 4 steps


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scale": 1}, "scale must be above 1"),
        ({"scale": float("nan")}, "scale must be above 1"),
        ({"scale": 9}, "at most 8"),
        ({"upscaler": "esrgan"}, "upscaler must be latent, bicubic, lanczos or a function"),
        ({"strength": 1.5}, "strength"),
        ({"seed": 1, "generator": sf.Generator()}, "seed or generator, not both"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(ValueError, match=text):
        hires(make(), PROMPT, num_inference_steps=2, **options)
