"""FreeU: diffusers' pictures, and what switches it on and off."""

import math
import pathlib

import golden_pipelines as golden
import pytest
import test_pipelines as sd
from golden_pipelines import one_thread  # noqa: F401

import scaffolding as sf

FILE = pathlib.Path(__file__).parents[2] / "golden/freeu.safetensors"
FACTORS = {"s1": 0.9, "s2": 0.2, "b1": 1.5, "b2": 1.6}


pipes = golden.borrowed(sd.make, lambda pipe: pipe.disable_freeu())


@pytest.mark.parametrize("name", ["t2i_ddim", "i2i_euler"])
def test_pictures_are_those_of_diffusers(name, pipes):
    case, want = golden.CASES[name], sf.io.load_checkpoint(FILE)[name]
    pipe = pipes(case["pipeline"], schedule=case["components"]["scheduler"])
    without = golden.levels_off(pipe, case, want)
    assert without > 5
    pipe.enable_freeu(**FACTORS)
    assert golden.levels_off(pipe, case, want) <= 1
    pipe.disable_freeu()
    assert golden.levels_off(pipe, case, want) == without
    pipe.enable_freeu(0.9, 0.2, 0, 1.6)  # as in diffusers, 0 is off
    assert golden.levels_off(pipe, case, want) == without


def test_its_gradients_reach_what_it_changes(pipes):
    unet = pipes().unet
    unet.enable_freeu(**FACTORS)
    sample, text = sf.randn(1, 4, 16, 16, requires_grad=True), sf.randn(1, 7, unet.config.cross_attention_dim)
    unet(sample, 5, text).sample.sum().backward()
    with_it = sample.grad.clone()
    unet.disable_freeu()
    sample.grad = None
    unet(sample, 5, text).sample.sum().backward()
    assert with_it.isfinite().all().item() and (with_it - sample.grad).abs().max().item() > 1e-3


def test_what_is_refused(pipes):
    pipe = pipes()
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="FreeU: s1, s2, b1 and b2 must be finite numbers"):
            pipe.enable_freeu(0.9, bad, 1.5, 1.6)
    with pytest.raises(TypeError):
        pipe.enable_freeu("0.9", 0.2, 1.5, 1.6)
    small = {"layers_per_block": 1, "block_out_channels": (32,), "down_block_types": ("DownBlock2D",)}
    unet = sf.models.UNet2DModel(sample_size=8, up_block_types=("UpBlock2D",), **small)
    other = sf.diffusion.DDPMPipeline(unet=unet, scheduler=sf.diffusion.DDPMScheduler())
    with pytest.raises(ValueError, match="DDPMPipeline: FreeU needs a UNet with text, which this has not"):
        other.enable_freeu(0.9, 0.2, 1.5, 1.6)
