"""What PixArt's transformer has besides other models: files that name Transformer2DModel, micro-conditions, masks.
Its outputs: test_every_model.py.
"""

import json
import warnings

import pytest

import scaffolding as sf
from scaffolding.models import DiTTransformer2DModel, PixArtTransformer2DModel

TINY = {
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "num_layers": 2,
    "sample_size": 8,
    "cross_attention_dim": 24,
    "caption_channels": 10,
}
# What the first published files have besides the fields of today's class.
OLD_FIELDS = {
    "double_self_attention": False,
    "num_vector_embeds": None,
    "only_cross_attention": False,
    "use_linear_projection": False,
}


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (PixArtTransformer2DModel, {**TINY, **OLD_FIELDS, "norm_type": "ada_norm_single"}),
        (DiTTransformer2DModel, {"num_attention_heads": 2, "attention_head_dim": 10, "num_layers": 1, "sample_size": 8,
                                 "num_embeds_ada_norm": 7, **OLD_FIELDS, "norm_type": "ada_norm_zero",
                                 "cross_attention_dim": None, "attention_type": "default",
                                 "interpolation_scale": None}),
    ],
)  # fmt: skip
def test_files_that_name_the_class_of_before(cls, config, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of fields that are not known
        model = cls.from_config(config)
    assert not set(OLD_FIELDS) & set(model.config)
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config, "_class_name": "Transformer2DModel"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = cls.from_pretrained(tmp_path)
    assert loaded.config.norm_type == config["norm_type"] and all(
        sf.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters())
    )
    with pytest.warns(UserWarning, match="only_cross_attention"):
        cls.from_config({**config, "only_cross_attention": True})


def test_what_it_is_told_matters_and_padding_does_not():
    model = PixArtTransformer2DModel(**TINY).eval()
    x, text = sf.randn(2, 4, 8, 6), sf.randn(2, 5, 10)
    with sf.no_grad():
        y = model(x, text, 10).sample
        assert y.shape == (2, 8, 8, 6)
        assert not sf.allclose(model(x, sf.randn(2, 5, 10), 10).sample, y, atol=1e-4) and not sf.allclose(
            model(x, text, 500).sample, y, atol=1e-4
        )
        padded, mask = sf.cat([text, sf.randn(2, 3, 10)], 1), sf.tensor([[1] * 5 + [0] * 3] * 2)
        assert sf.allclose(model(x, padded, 10, encoder_attention_mask=mask).sample, y, atol=1e-5)
        assert sf.equal(model(x, text, sf.tensor([10, 10]), return_dict=False)[0], y)


def test_sizes_of_the_picture_are_told_where_the_model_wants_them():
    model = PixArtTransformer2DModel(**{**TINY, "use_additional_conditions": True}).eval()
    x, text = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 10)
    sizes = {"resolution": sf.tensor([[64.0, 64.0]] * 2), "aspect_ratio": sf.tensor([[1.0]] * 2)}
    with sf.no_grad():
        y = model(x, text, 10, added_cond_kwargs=sizes).sample
        assert not sf.allclose(
            model(x, text, 10, added_cond_kwargs={**sizes, "aspect_ratio": sf.tensor([[2.0]] * 2)}).sample, y, atol=1e-4
        )
    with pytest.raises(TypeError, match="resolution must be a tensor, got None"):
        model(x, text, 10)
    with pytest.raises(ValueError, match="aspect_ratio"):
        model(x, text, 10, added_cond_kwargs={**sizes, "aspect_ratio": sf.ones(2)})
    with sf.device("meta"):
        assert PixArtTransformer2DModel(sample_size=128).adaln_single.emb.resolution_embedder is not None


def test_what_is_refused():
    for config, match in [
        ({"attention_head_dim": 11}, "must be a multiple of 4, got 22"),
        (
            {"attention_head_dim": 2, "cross_attention_dim": 4, "use_additional_conditions": True},
            "a multiple of 3 with use_additional_conditions, got 4",
        ),
        ({"cross_attention_dim": 20}, "cross_attention_dim must be .* with caption_channels, got 20 and 24"),
        ({"num_layers": 0}, "num_layers must be between 1 and 1000, got 0"),
        ({"patch_size": 9}, "patch_size must be at most sample_size"),
        ({"caption_channels": 2**40}, "caption_channels must be between 1 and"),
        ({"interpolation_scale": 0}, "interpolation_scale must be above 0"),
        ({"activation_fn": "tanh"}, "activation_fn must be"),
    ]:  # fmt: skip
        with pytest.raises((ValueError, NotImplementedError), match=match):
            PixArtTransformer2DModel(**{**TINY, **config})
    with pytest.raises(NotImplementedError, match="norm_type must be ada_norm_single, got 'layer_norm'"):
        PixArtTransformer2DModel(**TINY, norm_type="layer_norm")
    model = PixArtTransformer2DModel(**TINY)
    x, text = sf.zeros(1, 4, 8, 8), sf.zeros(1, 5, 10)
    for arguments, match in [
        ((sf.zeros(1, 4, 7, 8), text, 0), "patch_size 2 must divide height and width"),
        ((sf.zeros(1, 3, 8, 8), text, 0), r"must be \[B, 4, H, W\]"),
        ((x, sf.zeros(1, 5, 11), 0), r"encoder_hidden_states must be \[1, M, 10\], got \[1, 5, 11\]"),
        ((x, text, sf.tensor([1, 2])), "timestep must be one number"),
    ]:
        with pytest.raises(ValueError, match=match):
            model(*arguments)
    with pytest.raises(TypeError, match="encoder_hidden_states must be a tensor, got None"):
        model(x, timestep=0)
