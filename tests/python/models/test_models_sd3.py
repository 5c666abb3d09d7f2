"""What Stable Diffusion 3's transformer has besides other models: a table of positions of which a picture takes the
middle, blocks that are left out, and configs that cannot be."""

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.models import SD3Transformer2DModel

TINY = {
    "sample_size": 8,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 3,
    "num_attention_heads": 2,
    "attention_head_dim": 8,
    "joint_attention_dim": 12,
    "caption_projection_dim": 16,
    "pooled_projection_dim": 10,
    "pos_embed_max_size": 6,
}


def told(height=8, width=8, batch=1):
    draw = sf.Generator().manual_seed(3)
    return {
        "hidden_states": sf.randn(batch, 4, height, width, generator=draw),
        "encoder_hidden_states": sf.randn(batch, 5, 12, generator=draw),
        "pooled_projections": sf.randn(batch, 10, generator=draw),
        "timestep": 500,
    }


def test_a_picture_takes_the_middle_of_the_table():
    model = SD3Transformer2DModel(**TINY).eval()
    table = model.pos_embed.pos_embed
    assert table.shape == (1, 36, 16) and not table.requires_grad
    latents = sf.zeros(1, 4, 4, 8)
    with sf.no_grad():
        tokens = model.pos_embed(latents) - model.pos_embed.proj(latents).flatten(2).transpose(1, 2)
    want = table.reshape(6, 6, 16)[2:4, 1:5].reshape(1, 8, 16)
    np.testing.assert_allclose(tokens.numpy(), want.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="at most pos_embed_max_size 6 patches of 2, got"):
        model(**told(14, 8))


def test_blocks_that_are_left_out():
    sf.manual_seed(0)
    model = SD3Transformer2DModel(**TINY).eval()
    with sf.no_grad():
        whole, without = model(**told()).sample, model(**told(), skip_layers=[1]).sample
        assert (whole - without).abs().max().item() > 1e-4
        assert sf.equal(model(**told(), skip_layers=[]).sample, whole)
        assert sf.equal(model(**told(), skip_layers=sf.tensor([1])).sample, without)


def test_a_call_with_loras_of_another_strength():
    model = SD3Transformer2DModel(**TINY).eval()
    with sf.no_grad():
        bare = model(**told()).sample
        state = {
            f"transformer_blocks.0.attn.{name}.lora_{side}.weight": sf.randn(*shape)
            for name in ("to_q", "add_k_proj", "to_add_out")
            for side, shape in (("A", (2, 16)), ("B", (16, 2)))
        }
        model.load_lora_adapter(state, prefix=None)
        assert (model(**told()).sample - bare).abs().max().item() > 1e-3
        off = model(**told(), joint_attention_kwargs={"scale": 0.0}).sample
        np.testing.assert_allclose(off.numpy(), bare.numpy(), atol=1e-6)
    with pytest.raises(NotImplementedError, match="has no use for ip_adapter_image_embeds"):
        model(**told(), joint_attention_kwargs={"ip_adapter_image_embeds": sf.zeros(1)})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"caption_projection_dim": 20}, "caption_projection_dim must be num_attention_heads . attention_head_dim, 16"),
        ({"pos_embed_max_size": 0}, "pos_embed_max_size must be from 1 to 4096, got 0"),
        ({"dual_attention_layers": [-1]}, "dual_attention_layers must be numbers of blocks, got -1"),
        ({"num_layers": 0}, "num_layers"),
        ({"attention_head_dim": 5, "caption_projection_dim": 10}, "must be a multiple of 4, got 10"),
        ({"pooled_projection_dim": 0}, "pooled_projection_dim"),
    ],
)
def test_configs_that_cannot_be(config, message):
    with pytest.raises(ValueError, match=message):
        SD3Transformer2DModel(**{**TINY, **config})


def test_what_is_refused():
    with pytest.raises(NotImplementedError, match="qk_norm must be absent or rms_norm, got 'layer_norm'"):
        SD3Transformer2DModel(**TINY, qk_norm="layer_norm")
    model = SD3Transformer2DModel(**TINY)
    for change, message in [
        ({"encoder_hidden_states": sf.zeros(1, 5, 13)}, r"encoder_hidden_states must be \[1, M, 12\]"),
        ({"pooled_projections": sf.zeros(1, 11)}, "pooled_projections"),
        ({"hidden_states": sf.zeros(1, 4, 7, 8)}, "patch_size 2 must divide"),
        ({"block_controlnet_hidden_states": [sf.zeros(1, 16, 16)] * 4}, "must be at most 3, one for each block, got 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            model(**{**told(), **change})
    with pytest.raises(TypeError, match="pooled_projections must be a tensor, got None"):
        model(**{**told(), "pooled_projections": None})
