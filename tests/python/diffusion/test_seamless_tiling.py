"""Pictures without a seam: circular padding, set as diffusers' users set it, and by the pipeline's switch."""

import pathlib

import golden_pipelines as golden
import numpy as np
import pytest
import test_pipelines as sd
from golden_pipelines import one_thread  # noqa: F401

import scaffolding as sf
from scaffolding import nn

FILE = pathlib.Path(__file__).parents[2] / "golden/seamless.safetensors"


pipes = golden.borrowed(sd.make, lambda pipe: pipe.disable_seamless_tiling())


def recipe(*networks, mode="circular"):
    for network in networks:
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module.padding_mode = mode


def pictures(pipe, **changes):
    call = {"num_inference_steps": 3, "output_type": "np", "seed": 0, **changes}
    return pipe("a photo of the cat", **call).images


@pytest.mark.parametrize("name", ["t2i_ddim", "i2i_euler"])
def test_the_recipe_of_diffusers_gives_its_pictures(name, pipes):
    case, want = golden.CASES[name], sf.io.load_checkpoint(FILE)[name]
    pipe = pipes(case["pipeline"], schedule=case["components"]["scheduler"])
    assert golden.levels_off(pipe, case, want) > 20
    recipe(pipe.unet, pipe.vae)
    assert golden.levels_off(pipe, case, want) <= 1


def test_rolled_noise_gives_the_rolled_picture(pipes):
    pipe, noise = pipes(), sf.randn(1, 4, 16, 24)

    def far(down, right):
        picture = pictures(pipe, latents=noise)
        rolled = pictures(pipe, latents=sf.tensor(np.roll(noise.numpy(), (down, right), (2, 3))))
        return np.abs(np.roll(picture, (2 * down, 2 * right), (1, 2)) - rolled).max()

    assert far(2, 6) > 0.05  # zeros beyond the borders
    pipe.enable_seamless_tiling()
    assert far(2, 6) < 1e-3
    pipe.enable_seamless_tiling("x")
    assert far(0, 6) < 1e-3 and far(2, 0) > 0.02
    pipe.enable_seamless_tiling("y")
    assert far(2, 0) < 1e-3 and far(0, 6) > 0.02
    before = pictures(pipe)
    pipe.disable_seamless_tiling()
    assert np.abs(before - pictures(pipe)).max() > 0.02
    np.testing.assert_array_equal(pictures(pipe), pictures(sd.make()))


def test_the_switch_is_the_recipe_and_the_padding_of_the_encoder(pipes):
    pipe = pipes()
    recipe(pipe.unet, pipe.vae)
    by_recipe = pictures(pipe)
    pipe.enable_seamless_tiling()
    np.testing.assert_array_equal(pictures(pipe), by_recipe)
    picture, far = sf.randn(1, 3, 32, 48), {}
    for name in ("switch", "recipe"):
        if name == "recipe":
            pipe.disable_seamless_tiling()
            recipe(pipe.vae)
        with sf.no_grad():
            of, of_rolled = (
                pipe.vae.encode(sf.tensor(np.roll(picture.numpy(), by, (2, 3)))).latent_dist.mean.numpy()
                for by in ((0, 0), (4, 8))
            )
        far[name] = np.abs(np.roll(of, (2, 4), (2, 3)) - of_rolled).max()
    assert far["switch"] < 1e-4 and far["recipe"] > 1e-3


def test_a_lora_sees_the_same_padding(pipes, tmp_path):
    pipe = pipes()
    stem = "unet.down_blocks.0.resnets.0.conv1"
    rank, channels = 2, pipe.unet.down_blocks[0].resnets[0].conv1.in_channels
    state = {f"{stem}.lora_A.weight": sf.randn(rank, channels, 3, 3), f"{stem}.lora_B.weight": sf.randn(16, rank, 1, 1)}
    pipe.load_lora_weights(state)
    try:
        beside_zeros = pictures(pipe)
        pipe.enable_seamless_tiling()
        beside = pictures(pipe)
        assert np.abs(beside - beside_zeros).max() > 0.01
        pipe.fuse_lora()
        assert np.abs(beside - pictures(pipe)).max() < 1e-2
        pipe.unfuse_lora()
    finally:
        pipe.unload_lora_weights()


def test_a_padding_that_there_is_not(pipes):
    pipe = pipes()
    with pytest.raises(ValueError, match="axes must be x, y or xy, got 'z'"):
        pipe.enable_seamless_tiling("z")
    conv = nn.Conv2d(2, 2, 3, padding=1)
    conv.padding_mode = "mirror"
    with pytest.raises(ValueError, match="padding_mode must be one of zeros, reflect, replicate, circular"):
        conv(sf.randn(1, 2, 4, 4))
    with pytest.raises(ValueError, match="padding_mode must be one of"):
        nn.Conv1d(2, 2, 3, padding_mode="circular_x")
    dit = golden.pipeline_of(next(c for c in golden.CASES.values() if c["family"] == "dit"), "dit")
    with pytest.raises(NotImplementedError, match="needs a UNet"):
        dit.enable_seamless_tiling()


@pytest.mark.skipif(not sf.cuda.is_available(), reason="needs a GPU")
def test_captured_calls_see_another_padding(pipes):
    pipe = pipes().to("cuda")
    try:
        zeros, call = pictures(pipe), {"capture": False}
        pipe.enable_seamless_tiling()
        seamless = pictures(pipe)
        assert np.abs(zeros - seamless).max() > 0.02
        np.testing.assert_array_equal(seamless, pictures(pipe, **call))
        recipe(pipe.unet, pipe.vae, mode="zeros")
        np.testing.assert_array_equal(zeros, pictures(pipe))
    finally:
        pipe.to("cpu")
