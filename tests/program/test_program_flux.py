"""The program with FLUX's pipelines: pictures of prompts as Python makes them, and Kontext's, whose picture is brought
to a size of its own.
"""

import numpy as np
import pytest
from golden_pipelines import one_thread, part  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion, models


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Of a model of either kind, with an autoencoder of 8 pixels a latent as the published ones."""
    sf.manual_seed(5)
    vae = models.AutoencoderKL(
        block_out_channels=[8, 8, 8, 8], down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4, latent_channels=4, norm_num_groups=4, layers_per_block=1,
        scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False,
        mid_block_add_attention=False,
    ).eval()  # fmt: skip
    names = {"text_encoder": "clip", "tokenizer": "tokenizer", "text_encoder_2": "t5", "transformer": "dev",
             "tokenizer_2": "pixart_tokenizer", "scheduler": "dynamic"}  # fmt: skip
    place = tmp_path_factory.mktemp("flux")
    for name in ("FluxPipeline", "FluxKontextPipeline"):
        parts = {component: part("flux", which) for component, which in names.items()}
        getattr(diffusion, name)(vae=vae, **parts).save_pretrained(place / name)
    return place


def drawn(program, folder, *options):
    """The picture that the program draws, uint8 [3, H, W]."""
    done = program(*options, "--steps", 2, "--seed", 7, "-o", "out.png", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    return sf.io.read_image(str(folder / "out.png"))


def pictures_of(pipe, **call):
    pixels = pipe(prompt="a photo of a cat", num_inference_steps=2, seed=7, output_type="sf_tensor", **call).images
    return pixels[0].permute(2, 0, 1)


def assert_same(got, want):
    assert tuple(got.shape) == tuple(want.shape)
    assert np.abs(got.numpy().astype(int) - want.numpy().astype(int)).max() <= 1


def test_text_to_picture(program, folders):
    sizes = {"height": 64, "width": 48, "max_sequence_length": 16}
    options = ("--height", 64, "--width", 48, "--max-sequence-length", 16)
    got = drawn(program, folders, "txt2img", "a photo of a cat", "--model", "FluxPipeline", *options)
    pipe = diffusion.FluxPipeline.from_pretrained(folders / "FluxPipeline")
    assert_same(got, pictures_of(pipe, **sizes))
    again = drawn(program, folders, "txt2img", "--like", "out.png", "--model", "FluxPipeline")
    assert sf.equal(again, got)
    done = program("txt2img", "a cat", "--model", "FluxPipeline", "--width", 40, cwd=folders)
    assert done.returncode != 0 and "must be divisible by 16" in done.stderr


def test_a_picture_changed_as_it_says(program, folders):
    picture = (255 * sf.rand(3, 60, 100, generator=sf.Generator().manual_seed(1))).to(sf.uint8)
    (folders / "in.png").write_bytes(sf.io.encode_image(picture, "png"))
    options = ("--image", "in.png", "--height", 64, "--width", 32, "--max-area", 2048, "--max-sequence-length", 16)
    got = drawn(program, folders, "img2img", "a photo of a cat", "--model", "FluxKontextPipeline", *options)
    pipe = diffusion.FluxKontextPipeline.from_pretrained(folders / "FluxKontextPipeline")
    call = {"height": 64, "width": 32, "max_area": 2048, "max_sequence_length": 16}
    assert_same(got, pictures_of(pipe, image=picture, **call))
    assert tuple(got.shape) == (3, 64, 32)
    assert sf._core._pipelines.picture_size("FluxKontextPipeline", pipe._parts(), 60, 100) == (800, 1328)
