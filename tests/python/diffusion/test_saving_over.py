"""save_pretrained over a model that is there: a full disk leaves the old one, whole."""

import contextlib
import json
import pathlib
import resource
import signal

import pytest
from test_pipelines import make, one_thread  # noqa: F401

import scaffolding as sf
from scaffolding import nn
from scaffolding.diffusion import StableDiffusionPipeline
from scaffolding.models import UNet2DConditionModel
from scaffolding.nn import video as nv

NETWORKS = ("vae", "text_encoder", "unet")


@contextlib.contextmanager
def files_of_at_most(size):
    """A disk that is full after so many bytes of a file."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def other_unet():
    return UNet2DConditionModel.from_config(make().unet.config)


def other_pipeline():
    """Of the same sizes, with other weights."""
    parts = {name: part for name, part in make().components.items() if part is not None}
    for name in NETWORKS:
        parts[name] = type(parts[name]).from_config(parts[name].config)
    return StableDiffusionPipeline(**parts)


def test_a_full_disk_leaves_the_old_pipeline(tmp_path):
    make().save_pretrained(tmp_path / "sd")
    old = contents(tmp_path / "sd")
    sizes = sorted(len(b) for name, b in old.items() if name.endswith(".safetensors"))
    pipe = other_pipeline()
    for size in (sizes[-1] - 1, sizes[0] - 1, 50):
        with files_of_at_most(size), pytest.raises(RuntimeError, match="cannot write"):
            pipe.save_pretrained(tmp_path / "sd")
        assert contents(tmp_path / "sd") == old
    with files_of_at_most(50), pytest.raises(RuntimeError, match="cannot write"):
        pipe.save_pretrained(tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()
    pipe.save_pretrained(tmp_path / "sd")
    new = contents(tmp_path / "sd")
    assert new.keys() == old.keys()
    again = StableDiffusionPipeline.from_pretrained(tmp_path / "sd")
    for name in NETWORKS:
        for a, b in zip(getattr(again, name).parameters(), getattr(pipe, name).parameters()):
            assert sf.equal(a, b)


def test_an_interrupt_leaves_the_old_pipeline(tmp_path, monkeypatch):
    make().save_pretrained(tmp_path)
    old = contents(tmp_path)
    pipe = other_pipeline()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sf._core._pipelines, "save_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipe.save_pretrained(tmp_path)
    assert contents(tmp_path) == old


def test_a_full_disk_leaves_the_old_model_quantised_or_not(tmp_path):
    unet = make().unet
    unet.save_pretrained(tmp_path)
    old = contents(tmp_path)
    assert set(old) == {"config.json", "diffusion_pytorch_model.safetensors"}
    other = nn.quantize_(other_unet(), "float8_e4m3fn")
    for model, size in ((other_unet(), len(old["diffusion_pytorch_model.safetensors"]) - 1), (other, 2000)):
        with files_of_at_most(size), pytest.raises(RuntimeError, match="cannot write"):
            model.save_pretrained(tmp_path)
        assert contents(tmp_path) == old
    other.save_pretrained(tmp_path)
    assert "quantization_config" in json.loads((tmp_path / "config.json").read_text())
    make().unet.save_pretrained(tmp_path, safe_serialization=False)
    again = UNet2DConditionModel.from_pretrained(tmp_path)  # what was saved last, though safetensors come first
    assert all(sf.equal(a, b) for a, b in zip(again.parameters(), unet.parameters()))


def test_a_part_that_the_new_pipeline_has_not_stays_out_of_it(tmp_path):
    small = {"num_frames": 2, "frame_height": 8, "frame_width": 16, "text_embed_dim": 16, "model_channels": 8}
    sizes = {"latent_channels": 2, "model_channels": 8, "channel_mult": [1, 2], "num_heads": 2}
    latents = nv.TextToVideoPipeline(
        **small, num_heads=2, encoder=nv.VideoEncoder(**sizes), decoder=nv.VideoDecoder(**sizes)
    )
    latents.save_pretrained(tmp_path)
    nv.TextToVideoPipeline(**small, num_heads=2).save_pretrained(tmp_path)
    assert (tmp_path / "decoder").is_dir()
    assert nv.TextToVideoPipeline.from_pretrained(tmp_path).decoder is None
