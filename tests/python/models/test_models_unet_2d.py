"""UNet2DModel beyond what every model has: older files, refusals, and how it is called."""

import inspect

import pytest

import scaffolding as sf
from scaffolding.models import UNet2DModel

SMALL = {"sample_size": 8, "block_out_channels": (4, 8), "layers_per_block": 1, "norm_num_groups": 4,
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}  # fmt: skip


def test_files_from_before_attention_had_its_names(tmp_path):
    model = UNet2DModel(**SMALL)
    model.save_pretrained(tmp_path)
    old = {
        k.replace(".to_q.", ".query.")
        .replace(".to_k.", ".key.")
        .replace(".to_v.", ".value.")
        .replace(".to_out.0.", ".proj_attn."): t
        for k, t in model.state_dict().items()
    }
    assert sum(".proj_attn." in k for k in old) == 8  # weights and biases of four
    sf.safetensors.save_file(old, tmp_path / "diffusion_pytorch_model.safetensors")
    again = UNet2DModel.from_pretrained(tmp_path)
    assert all(sf.equal(t, again.state_dict()[k]) for k, t in model.state_dict().items())


def test_timesteps_and_results():
    model, x = UNet2DModel(**SMALL).eval(), sf.randn(2, 3, 8, 8)
    with sf.no_grad():
        want = model(x, 7).sample
        for timestep in (sf.tensor(7), sf.tensor([7]), sf.tensor([7, 7])):
            assert sf.equal(model(x, timestep, return_dict=False)[0], want)
        both = model(x, sf.tensor([7, 900])).sample
    assert sf.allclose(both[:1], want[:1], atol=1e-6) and not sf.allclose(both[1:], want[1:], atol=1e-3)


def test_pictures_of_channels_last_memory_and_of_none():
    model, x = UNet2DModel(**SMALL).eval(), sf.randn(2, 3, 8, 16)
    with sf.no_grad():
        y = model(x.to(memory_format=sf.channels_last), 7).sample
        assert sf.allclose(y, model(x, 7).sample, atol=1e-5)
        assert model(x[:0], 7).sample.shape == (0, 3, 8, 16)


def test_labels():
    model, x = UNet2DModel(**SMALL, num_class_embeds=3), sf.randn(1, 3, 8, 8)
    with pytest.raises(ValueError, match="needs class_labels"):
        model(x, 1)
    with pytest.raises(ValueError, match="has no class embedding"):
        UNet2DModel(**SMALL)(x, 1, sf.tensor([2]))
    assert model(x, 1, class_labels=sf.tensor([2])).sample.shape == x.shape


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"block_out_channels": (4,)}, ValueError, "must have the same length, got 1, 2 and 2"),
        ({"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}, NotImplementedError, "'CrossAttnDownBlock2D'"),
        ({"up_block_types": ("DownBlock2D", "UpBlock2D")}, NotImplementedError, "up_block_types 'DownBlock2D'"),
        (
            {"time_embedding_type": "waves"},
            ValueError,
            "must be one of 'positional', 'fourier', 'learned', got 'waves'",
        ),
        ({"time_embedding_type": "learned"}, ValueError, "needs num_train_timesteps"),
        ({"attention_head_dim": 9}, ValueError, "attention_head_dim must be positive and at most the 8 channels"),
        ({"norm_num_groups": None}, ValueError, "norm_num_groups must be a number where levels do not skip"),
        ({"norm_num_groups": 3}, ValueError, "3"),
        ({"act_fn": "relu"}, NotImplementedError, "act_fn 'relu'"),
        ({"downsample_type": "fir"}, ValueError, "downsample_type must be one of 'conv', 'resnet'"),
        ({"resnet_time_scale_shift": "spatial"}, ValueError, "resnet_time_scale_shift"),
        ({"layers_per_block": 0}, ValueError, "layers_per_block must be positive"),
        ({"in_channels": 0}, ValueError, "in_channels"),
        ({"in_channels": 4, "down_block_types": ("SkipDownBlock2D", "DownBlock2D")}, ValueError, "of 3 channels"),
        ({"out_channels": 4, "up_block_types": ("UpBlock2D", "SkipUpBlock2D")}, ValueError, "of 3 channels"),
        ({"layers_per_block": "two"}, TypeError, "layers_per_block"),
        ({"no_such_field": 1}, TypeError, "unexpected keyword argument 'no_such_field'"),
    ],
)
def test_configs_that_cannot_be(fields, error, says):
    with pytest.raises(error, match="UNet2DModel|GroupNorm") as caught:
        UNet2DModel(**{**SMALL, **fields})
    assert says in str(caught.value)


def test_samples_that_cannot_be():
    model = UNet2DModel(**SMALL)
    for x, says in (
        (sf.randn(1, 4, 8, 8), "sample must be"),
        (sf.randn(3, 8, 8), "sample must be"),
        (sf.randn(1, 3, 9, 8), "height and width must be multiples of 2, got"),
    ):
        with pytest.raises(ValueError, match=says):
            model(x, 1)
    with pytest.raises(ValueError, match="timestep must be one number or one for each of 1 samples"):
        model(sf.randn(1, 3, 8, 8), sf.tensor([1, 2]))


def test_the_constructor_shows_its_fields():
    parameters = inspect.signature(UNet2DModel.__init__).parameters
    assert list(parameters)[:3] == ["self", "sample_size", "in_channels"]
    assert parameters["block_out_channels"].default == [224, 448, 672, 896]
    assert parameters["attention_head_dim"].default == 8 and parameters["sample_size"].default is None
    assert list(inspect.signature(UNet2DModel).parameters) == list(parameters)[1:]

    class Mine(UNet2DModel):
        def __init__(self, channels=4):
            super().__init__(**{**SMALL, "block_out_channels": (channels, 2 * channels)})

    assert list(inspect.signature(Mine.__init__).parameters) == ["self", "channels"]
    assert list(inspect.signature(Mine).parameters) == ["channels"]
    assert Mine(8).config.block_out_channels == [8, 16]
