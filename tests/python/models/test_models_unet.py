"""What UNet2DConditionModel and Transformer2DModel have of their own: timesteps, refusals, memory. Their numbers,
keys and files: test_every_model.py.
"""

import re

import numpy as np
import pytest
from model_cases import families

import scaffolding as sf
from scaffolding.backends import cpu
from scaffolding.diffusion import Transformer2DModel, UNet2DConditionModel
from scaffolding.models import get_timestep_embedding, timestep_embedding

SMALL = {
    "sample_size": 16, "block_out_channels": [16, 32], "layers_per_block": 1, "cross_attention_dim": 24,
    "norm_num_groups": 8, "attention_head_dim": 4, "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}  # fmt: skip


@pytest.mark.parametrize("case", families()["unet"]["extra"]["timestep_embeddings"])
def test_timestep_embedding(case):
    got = timestep_embedding(sf.tensor(case["timesteps"]), **case["arguments"])
    assert got.dtype is sf.float32 and np.abs(got.numpy() - np.array(case["embedding"])).max() <= 1e-5


def test_timestep_embeddings_that_cannot_be():
    for timesteps, dim, message in (
        (sf.zeros(2, 2), 8, "one dimension"),
        (sf.zeros(2), 1, "embedding_dim must be above 1"),
        (sf.zeros(2), 2, "half of"),
    ):
        with pytest.raises(ValueError, match=message):
            timestep_embedding(timesteps, dim)
    assert get_timestep_embedding is timestep_embedding


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
        (
            {
                "block_out_channels": [16] * 17,
                "down_block_types": ["DownBlock2D"] * 17,
                "up_block_types": ["UpBlock2D"] * 17,
            },
            "at most 16 entries, got 17",
        ),
        ({"block_out_channels": [16, 2**40]}, "got 1099511627776"),
        ({"norm_num_groups": 0}, "norm_num_groups must be positive, got 0"),
        ({"addition_embed_type": "text_time"}, "need projection_class_embeddings_input_dim"),
        ({"encoder_hid_dim_type": "text_proj"}, "needs encoder_hid_dim"),
    ],
)
def test_impossible_fields(change, sentence):
    with pytest.raises(ValueError, match="UNet2DConditionModel: .*" + re.escape(sentence)):
        UNet2DConditionModel(**{**SMALL, **change})


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"num_layers": 10**9}, "num_layers must be at most 1000, got 1000000000"),
        ({"num_layers": -1}, "num_layers must not be negative, got -1"),
        ({"in_channels": 0}, "in_channels must be between 1 and 1048576, got 0"),
        (
            {"num_attention_heads": 2**40, "attention_head_dim": 2**40},
            "num_attention_heads must be between 1 and 1048576, got 1099511627776",
        ),
    ],
)
def test_an_impossible_transformer(change, sentence):
    with pytest.raises(ValueError, match="Transformer2DModel: " + sentence):
        Transformer2DModel(
            **{"in_channels": 8, "num_attention_heads": 1, "attention_head_dim": 8, "norm_num_groups": 4, **change}
        )


def test_gradient_checkpointing_takes_less_memory():
    def peak(checkpointing):
        sf.manual_seed(0)
        model = UNet2DConditionModel(**{**SMALL, "block_out_channels": [32, 32, 32], "layers_per_block": 3,
                                        "down_block_types": ["CrossAttnDownBlock2D"] * 3,
                                        "up_block_types": ["CrossAttnUpBlock2D"] * 3,
                                        "attention_head_dim": 2})  # fmt: skip
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


def test_fields_that_are_a_number_or_a_list_come_back(tmp_path):
    model = UNet2DConditionModel(**{**SMALL, "sample_size": [8, 16]})
    model.save_pretrained(tmp_path)
    again = UNet2DConditionModel.from_pretrained(tmp_path)
    assert (
        again.config["block_out_channels"] == [16, 32]
        and again.config["sample_size"] == [8, 16]
        and again.config["attention_head_dim"] == 4
    )
    assert all(again.config[k] == v for k, v in model.config.items() if k != "_use_default_values")
