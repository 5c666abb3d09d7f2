"""What diffusion transformers have of their own: labels, texts, videos, refusals. Their numbers, keys and files:
test_every_model.py.
"""

import pytest
from hashed_weights import hashed_weight

import scaffolding as sf
from scaffolding.models import DiTModel, DiTTransformer2DModel

TINY = {"num_attention_heads": 2, "attention_head_dim": 10, "num_layers": 2, "sample_size": 8, "num_embeds_ada_norm": 7}
SMALL = {"patch_size": 2, "in_channels": 4, "hidden_size": 32, "depth": 2, "num_heads": 4, "context_dim": 12}


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def test_pictures_that_are_not_square():
    model = filled(DiTTransformer2DModel(**TINY))
    wide = model(sf.randn(1, 4, 4, 12), 10, sf.tensor([1])).sample
    assert wide.shape == (1, 4, 4, 12)


def test_labels_are_dropped_in_training_only():
    model = filled(DiTTransformer2DModel(**TINY))
    x, t, none = sf.randn(64, 4, 8, 8), sf.zeros(64, dtype=sf.int64), sf.full((64,), 7)
    labels = sf.full((64,), 2)
    with sf.no_grad():
        assert sf.equal(model(x, t, labels).sample, model(x, t, labels).sample)
        assert not sf.equal(model(x, t, labels).sample, model(x, t, none).sample)
        model.train()
        assert not sf.equal(model(x, t, labels).sample, model(x, t, labels).sample)


def test_what_the_label_model_refuses():
    with pytest.raises(NotImplementedError, match="norm_type must be ada_norm_zero"):
        DiTTransformer2DModel(**TINY, norm_type="layer_norm")
    with pytest.raises(ValueError, match="num_embeds_ada_norm, the number of classes"):
        DiTTransformer2DModel(**{**TINY, "num_embeds_ada_norm": None})
    with pytest.raises(ValueError, match="attention_head_dim must be between 1 and 1048576"):
        DiTTransformer2DModel(**{**TINY, "attention_head_dim": 2**62})
    with pytest.raises(ValueError, match="num_layers must be between 1 and 1000"):
        DiTTransformer2DModel(**{**TINY, "num_layers": 10**9})
    with pytest.raises(ValueError, match="multiple of 4"):
        DiTTransformer2DModel(**{**TINY, "attention_head_dim": 9})
    model = DiTTransformer2DModel(**TINY)
    with pytest.raises(ValueError, match=r"patch_size 2 must divide height and width, got \[1, 4, 7, 8\]"):
        model(sf.zeros(1, 4, 7, 8), 0, sf.tensor([0]))
    with pytest.raises(ValueError, match=r"must be \[B, 4, H, W\]"):
        model(sf.zeros(1, 3, 8, 8), 0, sf.tensor([0]))
    with pytest.raises(ValueError, match="one for each of the 2 samples"):
        model(sf.zeros(2, 4, 8, 8), sf.tensor([1, 2, 3]), sf.tensor([0, 1]))
    with pytest.raises(TypeError, match="class_labels must be a tensor, got None"):
        model(sf.zeros(1, 4, 8, 8), 0)
    with pytest.raises(TypeError, match="timestep must be a tensor, got None"):
        model(sf.zeros(1, 4, 8, 8), None, sf.tensor([0]))
    with pytest.raises(IndexError):
        model(sf.zeros(1, 4, 8, 8), 0, sf.tensor([8]))


# ---- DiTModel


def test_pictures_and_videos_keep_their_shape():
    model = DiTModel(**SMALL)
    text = sf.randn(2, 5, 12)
    assert model(sf.randn(2, 4, 8, 6), 10, text).sample.shape == (2, 4, 8, 6)
    assert model(sf.randn(2, 4, 3, 8, 6), sf.tensor([10, 20]), text).sample.shape == (2, 4, 3, 8, 6)
    assert model(sf.randn(2, 4, 8, 6), 0.5, return_dict=False)[0].shape == (2, 4, 8, 6)
    assert DiTModel(**SMALL, out_channels=8)(sf.randn(1, 4, 2, 8, 6), 0).sample.shape == (1, 8, 2, 8, 6)
    with sf.device("meta"):
        whole = DiTModel(patch_size=2, in_channels=16, hidden_size=1152, depth=28)
        video = whole(sf.zeros(1, 16, 13, 60, 90), sf.zeros(1), sf.zeros(1, 226, 4096)).sample
    assert video.shape == (1, 16, 13, 60, 90) and len(whole.blocks) == 28


def test_a_picture_is_a_video_of_one_frame():
    model = filled(DiTModel(**SMALL))
    x, text = sf.randn(2, 4, 8, 6), sf.randn(2, 5, 12)
    with sf.no_grad():
        assert sf.allclose(model(x, 10, text).sample, model(x.unsqueeze(2), 10, text).sample.squeeze(2), atol=1e-6)


@pytest.mark.parametrize("sizes", [(2, 4, 8, 6), (2, 4, 3, 4, 4)])
def test_everything_that_it_is_told_matters(sizes):
    model = DiTModel(**SMALL)
    x, text = sf.randn(*sizes), sf.randn(2, 5, 12)
    with sf.no_grad():
        y = model(x, 10, text).sample

        def differs(other):
            return float((other.sample - y).abs().mean()) > 1e-3 * float(y.abs().mean())

        assert differs(model(x, 10, sf.randn(2, 5, 12))) and differs(model(x, 10)) and differs(model(x, 500, text))
        changed = text.clone()
        changed[1] += 1
        one = model(x, 10, changed).sample
        assert sf.allclose(one[0], y[0], atol=1e-6) and not sf.allclose(one[1], y[1], atol=1e-4)
        padded = sf.cat([text, sf.randn(2, 3, 12)], 1)
        mask = sf.tensor([[1] * 5 + [0] * 3] * 2)
        assert sf.allclose(model(x, 10, padded, mask).sample, y, atol=1e-5) and differs(model(x, 10, padded))
        # the order of rows, columns and frames
        flat = x.clone()
        flat[:] = x.mean()
        for dim in range(2, len(sizes)):
            out = model(flat, 10, text).sample
            assert not sf.allclose(out, out.flip(dim), atol=1e-4)


def test_what_the_text_model_refuses():
    for config, match in [
        ({"num_heads": 5}, "num_heads must divide hidden_size, got 5 and 32"),
        ({"depth": 0}, "depth must be between 1 and"),
        ({"depth": 1001}, "depth must be at most 1000"),
        ({"hidden_size": 2**62}, "hidden_size must be between 1 and 1048576"),
        ({"hidden_size": 33, "num_heads": 3}, "hidden_size must be even"),
        ({"mlp_ratio": 0}, "mlp_ratio must be above 0"),
    ]:
        with pytest.raises(ValueError, match=match):
            DiTModel(**{**SMALL, **config})
    model = DiTModel(**SMALL)
    x = sf.zeros(1, 4, 8, 6)
    for arguments, match in [
        ((sf.zeros(1, 4, 8), 0), r"must be \[B, 4, H, W\] or \[B, 4, F, H, W\]"),
        ((sf.zeros(1, 4, 8, 5), 0), r"patch_size 2 must divide height and width, got \[1, 4, 8, 5\]"),
        ((x, 0, sf.zeros(1, 5, 13)), r"encoder_hidden_states must be \[1, M, context_dim=12\], got \[1, 5, 13\]"),
        ((x, 0, sf.zeros(2, 5, 12)), "encoder_hidden_states must be"),
        ((x, 0, None, sf.ones(1, 5)), "goes with encoder_hidden_states"),
        ((x, 0, sf.zeros(1, 5, 12), sf.ones(1, 4)), "encoder_attention_mask"),
        ((x, sf.tensor([1, 2])), "timestep must be one number"),
    ]:
        with pytest.raises(ValueError, match=match):
            model(*arguments)


@pytest.mark.parametrize("name", ["labels", "text"])
def test_autocast_is_near_float32(name):
    with_labels = filled(DiTTransformer2DModel(**TINY))
    with_text = filled(DiTModel(**SMALL))
    x, text, labels = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 12), sf.tensor([1, 2])

    def run():
        return (with_labels(x, 10, labels) if name == "labels" else with_text(x, 10, text)).sample

    want = run().detach()
    with sf.autocast("cpu", dtype=sf.bfloat16):
        y = run()
    assert float((y.float() - want).abs().max()) < 0.05 * float(want.abs().max())
    y.float().sum().backward()
    assert with_labels.pos_embed.proj.weight.grad is not None or with_text.x_embedder.weight.grad is not None
