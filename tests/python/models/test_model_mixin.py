"""ModelMixin: making, saving, loading and pickling models, and models among other modules. Their numbers:
test_every_model.py.
"""

import json
import pickle

import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.models import AutoencoderTiny

SMALL = {
    "encoder_block_out_channels": [8, 8],
    "decoder_block_out_channels": [8, 8],
    "num_encoder_blocks": [1, 1],
    "num_decoder_blocks": [1, 1],
}


@pytest.fixture
def model():
    sf.manual_seed(0)
    return AutoencoderTiny(**SMALL)


def same(a, b):
    return (a - b).abs().max().item() == 0


def test_construction_checks_its_arguments():
    with pytest.raises(TypeError, match="unexpected keyword argument 'channels'"):
        AutoencoderTiny(channels=3)
    with pytest.raises(TypeError, match="in_channels must be an integer, got a string"):
        AutoencoderTiny(in_channels="three")
    with pytest.raises(TypeError, match="got several values for 'in_channels'"):
        AutoencoderTiny(3, in_channels=3)
    with pytest.raises(ValueError, match="must have the same length, got 3 and 4"):
        AutoencoderTiny(encoder_block_out_channels=[8, 8, 8])


def test_the_config_is_a_frozen_dict(model):
    assert model.config.scaling_factor == model.config["scaling_factor"] == 1.0
    with pytest.raises(TypeError):
        model.config.scaling_factor = 2
    again = AutoencoderTiny.from_config(model.config, latent_channels=8)
    assert again.config.latent_channels == 8 and again.config.num_encoder_blocks == [1, 1]
    with pytest.warns(UserWarning, match="colour"):
        assert AutoencoderTiny.from_config({**SMALL, "colour": "blue"}).config.colour == "blue"


def test_outputs_are_tuples_and_dicts(model):
    x = sf.randn(1, 3, 16, 16)
    out = model(x)
    assert out.sample is out[0] is out["sample"] and tuple(out.keys()) == ("sample",)
    assert isinstance(model(x, return_dict=False), tuple)
    assert model.encode(x).latents.shape == (1, 4, 8, 8)


def test_from_and_to_folders(model, tmp_path):
    x = sf.randn(1, 3, 16, 16)
    model.save_pretrained(tmp_path / "a")
    loaded = AutoencoderTiny.from_pretrained(tmp_path / "a")
    assert not loaded.training and same(loaded.encode(x)[0], model.encode(x)[0])
    assert json.loads((tmp_path / "a/config.json").read_text())["_class_name"] == "AutoencoderTiny"
    (tmp_path / "top").mkdir()
    model.save_pretrained(tmp_path / "top/vae", variant="fp16")
    half = AutoencoderTiny.from_pretrained(tmp_path / "top", subfolder="vae", variant="fp16", torch_dtype=sf.float16)
    assert half.dtype == sf.float16
    with pytest.raises(ValueError, match="there is no file"):
        AutoencoderTiny.from_pretrained(tmp_path)


def test_pickling(model):
    again = pickle.loads(pickle.dumps(model))
    x = sf.randn(1, 3, 16, 16)
    assert (
        type(again) is AutoencoderTiny and same(again.encode(x)[0], model.encode(x)[0]) and again.config == model.config
    )


def test_a_subclass_may_override_forward():
    class Twice(AutoencoderTiny):
        def forward(self, sample, return_dict=True):
            return super().forward(sample).sample * 2

    x = sf.randn(1, 3, 16, 16)
    model = Twice(**SMALL)
    assert same(model(x), AutoencoderTiny.forward(model, x).sample * 2)


def test_hooks_see_outputs(model):
    x = sf.randn(1, 3, 16, 16)
    seen = []
    handle = model.register_forward_hook(lambda m, args, out: seen.append(type(out).__name__))
    model(x)
    handle.remove()
    model(x)
    assert seen == ["DecoderOutput"]


def test_parts_can_be_called(model):
    x = sf.randn(1, 3, 16, 16)
    assert same(model.encoder(x), model.encode(x)[0])
    with pytest.raises(NotImplementedError):
        model.encoder(x, 3)


def test_gradient_checkpointing(model):
    assert not model.is_gradient_checkpointing
    model.enable_gradient_checkpointing()
    assert model.is_gradient_checkpointing
    model.encode(sf.randn(1, 3, 16, 16))[0].sum().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())
    model.disable_gradient_checkpointing()
    assert not model.is_gradient_checkpointing


def test_it_is_a_module(model):
    holder = nn.Module()
    holder.vae = model
    assert "vae.encoder.layers.0.weight" in holder.state_dict()
    assert model.num_parameters() == sum(p.numel() for p in model.parameters())
    assert repr(model).startswith("AutoencoderTiny(\n  (encoder): EncoderTiny(")
