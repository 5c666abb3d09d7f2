"""Diffusion transformers: DiTTransformer2DModel against diffusers (tests/golden/make_golden_models_dit.py), and DiTModel."""

import json

import numpy as np
import pytest
from folders import GOLDEN
from hashed_weights import hashed, hashed_weight, places

import scaffolding as sf
from scaffolding.models import DiTModel, DiTTransformer2DModel
from scaffolding.safetensors.torch import load_file

CASES = json.loads((GOLDEN / "models/dit.json").read_text())["cases"]
TINY = CASES[0][0]
SMALL = {"patch_size": 2, "in_channels": 4, "hidden_size": 32, "depth": 2, "num_heads": 4, "context_dim": 12}


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def close(got, want, what, tolerance):
    scale = max(float(np.abs(want).max()), 1e-6)
    worst = float(np.abs(np.asarray(got, np.float64) - want).max())
    assert worst <= tolerance * scale, f"{what}: off by {worst:.2e} at a scale of {scale:.2e}"


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_outputs_and_gradients_are_those_of_diffusers(number, checkpointing):
    numbers = {k: v.numpy() for k, v in load_file(GOLDEN / "models/dit.safetensors").items()}
    config, sizes, timesteps, labels = CASES[number]
    model = filled(DiTTransformer2DModel(**config))
    if checkpointing:
        model.enable_gradient_checkpointing()
    x = sf.tensor(hashed(f"latents {number}", tuple(sizes))).requires_grad_()
    with sf.no_grad():
        close(model(x, sf.tensor(timesteps), sf.tensor(labels)).sample.numpy(), numbers[f"{number}.sample"], "without a tape", 1e-5)
    y = model(x, timestep=sf.tensor(timesteps), class_labels=sf.tensor(labels)).sample
    close(y.detach().numpy(), numbers[f"{number}.sample"], "sample", 1e-5)
    (y * sf.tensor(hashed("cotangent", tuple(y.shape)))).sum().backward()
    close(x.grad.numpy(), numbers[f"{number}.input"], "gradient of the input", 1e-4)
    for (name, p), norm in zip(sorted(model.named_parameters()), numbers[f"{number}.norms"]):
        if name.endswith("attn1.to_k.bias"):  # adds one number to all scores of a row
            assert float(p.grad.norm()) < 1e-3
        elif norm == 0:
            assert float(p.grad.norm()) == 0
        else:
            close(p.grad.reshape(-1).numpy()[places(name, p.numel())], numbers[f"{number}.gradient.{name}"], f"gradient of {name}", 1e-4)
            assert abs(float(p.grad.double().norm()) - norm) <= 1e-4 * norm, name


def test_keys_and_shapes_at_full_size():
    _, config, *want = (GOLDEN / "keys/dit_xl_2.txt").read_text().splitlines()
    with sf.device("meta"):
        model = DiTTransformer2DModel(**json.loads(config[1:]))
    assert sorted(f"{k} {list(v.shape)}" for k, v in model.state_dict().items()) == want


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


def test_gradients_are_those_of_finite_differences():
    model = filled(DiTModel(**{**SMALL, "hidden_size": 16, "num_heads": 2, "depth": 1, "in_channels": 2, "context_dim": 3})).double()
    x, text = sf.randn(1, 2, 2, 2, 4, dtype=sf.float64), sf.randn(1, 2, 3, dtype=sf.float64)
    x.requires_grad_(), text.requires_grad_()
    assert sf.autograd.gradcheck(lambda x, text: model(x, 3.0, text).sample, (x, text), eps=1e-5, atol=1e-4, rtol=1e-3)
    parameters = dict(model.named_parameters())
    loss = lambda: (model(x, 3.0, text).sample ** 2).sum()  # noqa: E731
    loss().backward()
    for name, p in parameters.items():
        assert p.grad is not None, name
        direction = sf.tensor(hashed(name, tuple(p.shape))).double()
        step = 1e-6
        with sf.no_grad():
            p.add_(direction * step)
            above = loss().item()
            p.sub_(direction * (2 * step))
            below = loss().item()
            p.add_(direction * step)
        want, got = (above - below) / (2 * step), (p.grad * direction).sum().item()
        assert abs(want - got) <= 1e-5 * max(1, abs(want)), name


def test_gradient_checkpointing_changes_no_gradient():
    x, text = sf.randn(2, 4, 3, 4, 4), sf.randn(2, 5, 12)
    found = []
    for checkpointing in (False, True):
        model = filled(DiTModel(**SMALL))
        if checkpointing:
            model.enable_gradient_checkpointing()
        model(x, 10, text).sample.square().sum().backward()
        found.append({k: p.grad.numpy() for k, p in model.named_parameters()})
    assert all(np.array_equal(found[0][k], found[1][k]) for k in found[0])


def test_a_folder_and_half_precision(tmp_path):
    model = filled(DiTModel(**SMALL))
    model.save_pretrained(tmp_path)
    x, text = sf.randn(1, 4, 8, 6), sf.randn(1, 5, 12)
    with sf.no_grad():
        want = model(x, 10, text).sample
        assert sf.equal(DiTModel.from_pretrained(tmp_path)(x, 10, text).sample, want)
        half = DiTModel.from_pretrained(tmp_path, torch_dtype=sf.bfloat16)(x.bfloat16(), 10, text.bfloat16()).sample
    assert half.dtype is sf.bfloat16 and float((half.float() - want).abs().max()) < 0.1 * float(want.abs().max())


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
