"""UNet2DConditionModel and Transformer2DModel against diffusers (tests/golden/make_golden_models_unet.py): outputs, gradients, refusals."""

import json
import math
import re

import numpy as np
import pytest
from folders import GOLDEN

import scaffolding as sf
from scaffolding.backends import cpu
from scaffolding.diffusion import Transformer2DModel, UNet2DConditionModel
from scaffolding.models import get_timestep_embedding, timestep_embedding

FILE = json.loads((GOLDEN / "models" / "unet.json").read_text())
CASES = FILE["cases"]
KINDS = {"UNet2DConditionModel": UNet2DConditionModel, "Transformer2DModel": Transformer2DModel}


@pytest.fixture(scope="module")
def golden():
    return {k: v.numpy() for k, v in sf.safetensors.load_file(GOLDEN / "models" / "unet.safetensors").items()}


def weight(number, name, shape):
    """The rule of make_golden_models_unet.py."""
    sf.manual_seed(1000 + number)
    values = sf.randn(shape)
    if len(shape) > 1:
        return values / math.sqrt(math.prod(shape[1:]))
    return values * 0.1 + (1.0 if name.endswith("weight") else 0.0)


def values(number, name, shape):
    sf.manual_seed(number)
    if shape is None:
        return None
    if shape == "integers":
        return sf.tensor([3, 7])
    if shape == "mask":
        return sf.tensor([[1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]])
    if name == "timestep":
        return sf.tensor([961.0, 3.5][: shape[0]]) if shape else sf.tensor(77)
    if name == "time_ids":
        return sf.tensor([[1024.0, 1024, 0, 0, 512, 768], [512, 640, 16, 8, 1024, 1024]])
    if isinstance(shape[0], list):
        return [sf.randn(s) for s in shape]
    return sf.randn(shape)


def model_of(case):
    model = KINDS[case["class"]](**case["config"]).eval()
    state = model.state_dict()
    model.load_state_dict({k: weight(i, k, list(state[k].shape)) for i, k in enumerate(sorted(state))})
    return model


def call(model, case, change=lambda name, value: value):
    given = {k: change(k, values(i, k, s)) for i, (k, s) in enumerate(case["inputs"].items())}
    added = {k: given.pop(k) for k in ("text_embeds", "time_ids") if k in given}
    if added:
        given["added_cond_kwargs"] = added
    return given, model(**given).sample


def distance(got, want):
    return float(np.abs(got.astype(np.float64) - want).max()) / max(float(np.abs(want).max()), 1e-3)


@pytest.mark.parametrize("name", CASES)
def test_output(name, golden):
    with sf.no_grad():
        _, sample = call(model_of(CASES[name]), CASES[name])
    want = golden[f"{name}/output"]
    assert sample.shape == want.shape
    assert distance(sample.numpy(), want) <= 1e-5


@pytest.mark.parametrize("case", FILE["timestep_embeddings"])
def test_timestep_embedding(case):
    got = timestep_embedding(sf.tensor(case["timesteps"]), **case["arguments"])
    assert got.dtype is sf.float32 and distance(got.numpy(), np.array(case["embedding"])) <= 1e-5


def test_timestep_embeddings_that_cannot_be():
    for timesteps, dim, message in ((sf.zeros(2, 2), 8, "one dimension"), (sf.zeros(2), 1, "embedding_dim must be above 1"), (sf.zeros(2), 2, "half of")):
        with pytest.raises(ValueError, match=message):
            timestep_embedding(timesteps, dim)
    assert get_timestep_embedding is timestep_embedding


def gradients_of(name, checkpointing):
    case = CASES[name]
    model = model_of(case)
    if checkpointing:
        model.enable_gradient_checkpointing()
    watched = ("sample", "hidden_states", "encoder_hidden_states")
    given, sample = call(model, case, lambda k, v: v.requires_grad_() if k in watched and v is not None else v)
    sf.manual_seed(99)
    sample.backward(sf.randn(list(sample.shape)))
    inputs = {k: given[k] for k in watched if given.get(k) is not None}
    gradients = {k: p.grad for k, p in sorted(model.named_parameters())} | {k: x.grad for k, x in inputs.items()}
    return {k: np.zeros(1, np.float32) if g is None else g.contiguous().numpy() for k, g in gradients.items()}


@pytest.mark.parametrize("name", [k for k, case in CASES.items() if case["gradients"]])
def test_gradients(name, golden):
    """The norm of every parameter's gradient, and four of its values, relative to the gradient's own size."""
    plain = gradients_of(name, False)
    norms, kept = golden[f"{name}/norms"], golden[f"{name}/kept"]
    assert len(plain) == len(norms)
    at = 0
    typical = float(np.median(norms))
    for (key, g), norm in zip(plain.items(), norms):
        flat = g.reshape(-1)
        some = flat[:: max(1, flat.size // FILE["kept"])][: FILE["kept"]]
        want, at = kept[at : at + some.size], at + some.size
        # What is zero in exact arithmetic, such as the gradient of a bias behind which a norm takes the mean out, is rounding on both sides.
        scale = max(float(norm), (1e-3 if norm < 1e-6 * typical else 1e-4) * typical)
        assert abs(float(np.linalg.norm(flat.astype(np.float64))) - norm) <= 1e-4 * scale, key
        assert float(np.abs(some - want).max()) <= 1e-4 * scale, key


@pytest.mark.parametrize("name", ["sd15", "sdxl", "transformer"])
def test_checkpointed_gradients_are_equal(name):
    plain, again = gradients_of(name, False), gradients_of(name, True)
    for key in plain:
        np.testing.assert_array_equal(plain[key], again[key], key)


SMALL = CASES["inpainting"]["config"] | {"in_channels": 4}


@pytest.mark.parametrize(
    "field, value",
    [
        ("act_fn", "mish"),
        ("down_block_types", ["CrossAttnDownBlock2D", "KDownBlock2D"]),
        ("up_block_types", ["UpBlock2D", "SimpleCrossAttnUpBlock2D"]),
        ("mid_block_type", "UNetMidBlock2DSimpleCrossAttn"),
        ("class_embed_type", "hashed"),
        ("addition_embed_type", "text_image"),
        ("encoder_hid_dim_type", "image_proj"),
        ("resnet_time_scale_shift", "spatial"),
        ("time_embedding_type", "fourier"),
        ("time_embedding_act_fn", "silu"),
        ("timestep_post_act", "gelu"),
        ("cross_attention_norm", "layer_norm"),
        ("attention_type", "gated"),
        ("dual_cross_attention", True),
        ("resnet_skip_time_act", True),
        ("resnet_out_scale_factor", 1.5),
        ("mid_block_only_cross_attention", True),
        ("norm_num_groups", None),
    ],
)
def test_unsupported_fields_are_named(field, value):
    word = value[1] if isinstance(value, list) else "true" if value is True else str(value)
    with pytest.raises(NotImplementedError, match=f"UNet2DConditionModel: {field}.*{word}"):
        UNet2DConditionModel(**{**SMALL, field: value})


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"block_out_channels": [16]}, "must have the same length, got 1, 2 and 2"),
        ({"block_out_channels": [16, 20]}, "multiples of norm_num_groups=8, got 20"),
        ({"attention_head_dim": [3, 4]}, "multiples of the number of heads, got 16 and 3"),
        ({"layers_per_block": [1, 1, 1]}, "layers_per_block must have one entry for each of the 2 blocks, got 3"),
        ({"transformer_layers_per_block": [[1], 1]}, "needs reverse_transformer_layers_per_block"),
        ({"transformer_layers_per_block": 100000}, "from 0 to 1000 over all layers of a block, got 100000"),
        ({"layers_per_block": 10**12}, "at most 1000 over all blocks, got 1000000000000"),
        ({"layers_per_block": [600, 600]}, "at most 1000 over all blocks, got 600"),
        ({"block_out_channels": [16] * 17, "down_block_types": ["DownBlock2D"] * 17, "up_block_types": ["UpBlock2D"] * 17}, "at most 16 entries, got 17"),
        ({"block_out_channels": [16, 2**40]}, "got 1099511627776"),
        ({"norm_num_groups": 0}, "norm_num_groups must be positive, got 0"),
        ({"addition_embed_type": "text_time"}, "need projection_class_embeddings_input_dim"),
        ({"encoder_hid_dim_type": "text_proj"}, "needs encoder_hid_dim"),
    ],
)
def test_impossible_fields(change, sentence):
    with pytest.raises(ValueError, match="UNet2DConditionModel: .*" + re.escape(sentence)):
        UNet2DConditionModel(**{**SMALL, **change})


def test_a_transformer_of_too_many_layers():
    with pytest.raises(ValueError, match="Transformer2DModel: num_layers must be at most 1000, got 1000000000"):
        Transformer2DModel(in_channels=8, num_attention_heads=1, attention_head_dim=8, norm_num_groups=4, num_layers=10**9)


def test_gradient_checkpointing_takes_less_memory():
    def peak(checkpointing):
        sf.manual_seed(0)
        model = UNet2DConditionModel(**{**SMALL, "block_out_channels": [32, 32, 32], "layers_per_block": 3, "down_block_types": ["CrossAttnDownBlock2D"] * 3,
                                        "up_block_types": ["CrossAttnUpBlock2D"] * 3, "attention_head_dim": 2})  # fmt: skip
        if checkpointing:
            model.enable_gradient_checkpointing()
        before = cpu.memory_allocated()
        cpu.reset_peak_memory_stats()
        loss = model(sf.randn(2, 4, 32, 32), 3, sf.randn(2, 5, 24)).sample.square().sum()
        kept = cpu.memory_allocated() - before
        loss.backward()
        return kept, cpu.max_memory_allocated() - before

    (kept, most), (kept_again, most_again) = peak(False), peak(True)
    assert kept_again < kept / 4 and most_again < most / 2


def test_bad_calls():
    model = UNet2DConditionModel(**SMALL).eval()
    x, text = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 24)
    with pytest.raises(ValueError, match=r"sample must be \[B, 4, H, W\], got \[2, 3, 8, 8\]"):
        model(sf.randn(2, 3, 8, 8), 1, text)
    with pytest.raises(ValueError, match=r"encoder_hidden_states must be \[2, tokens, channels\], got \[3, 5, 24\]"):
        model(x, 1, sf.randn(3, 5, 24))
    with pytest.raises(ValueError, match="timestep must be one number or one for each of 2 samples"):
        model(x, sf.tensor([1, 2, 3]), text)
    with pytest.raises(ValueError, match="class_labels are given"):
        model(x, 1, text, class_labels=sf.tensor([1, 2]))
    with pytest.raises(ValueError, match="come together"):
        model(x, 1, text, mid_block_additional_residual=sf.randn(2, 32, 4, 4))
    with pytest.raises(ValueError, match="needs 4 down_block_additional_residuals, got 1"):
        model(x, 1, text, mid_block_additional_residual=sf.randn(2, 32, 4, 4), down_block_additional_residuals=[x])
    with pytest.raises(NotImplementedError, match="added_cond_kwargs has no use for image_embeds"):
        model(x, 1, text, added_cond_kwargs={"image_embeds": text})
    with pytest.raises(NotImplementedError, match="patches are not supported here, got patch_size=2"):
        Transformer2DModel(in_channels=4, patch_size=2)


def test_numbers_as_timesteps_and_tuples():
    model = UNet2DConditionModel(**SMALL).eval()
    x, text = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 24)
    with sf.no_grad():
        outputs = [model(x, t, text, return_dict=False)[0].numpy() for t in (7, 7.0, sf.tensor(7), sf.tensor([7, 7]))]
        last = model(x.contiguous(memory_format=sf.channels_last), 7, text).sample
    for y in outputs[1:]:
        np.testing.assert_array_equal(y, outputs[0])
    np.testing.assert_array_equal(last.contiguous().numpy(), outputs[0])
    assert last.is_contiguous(memory_format=sf.channels_last)


def test_folder_and_back(tmp_path):
    model = UNet2DConditionModel(**{**SMALL, "sample_size": [8, 16]})
    model.save_pretrained(tmp_path)
    again = UNet2DConditionModel.from_pretrained(tmp_path)
    assert again.config["block_out_channels"] == [16, 32] and again.config["sample_size"] == [8, 16] and again.config["attention_head_dim"] == 4
    assert all(again.config[k] == v for k, v in model.config.items() if k != "_use_default_values")
    for (k, a), (_, b) in zip(sorted(model.state_dict().items()), sorted(again.state_dict().items())):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), k)


def test_half_precision():
    case = CASES["sdxl"]
    model = model_of(case)
    with sf.no_grad():
        _, want = call(model, case)
        model.to(sf.bfloat16)
        half = {"sample", "encoder_hidden_states", "text_embeds"}
        _, got = call(model, case, lambda k, v: v.to(sf.bfloat16) if k in half else v)
    assert got.dtype == sf.bfloat16
    assert distance(got.float().numpy(), want.numpy()) < 0.05
