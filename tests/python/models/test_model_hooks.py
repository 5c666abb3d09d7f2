"""Hooks on every part of a model, however many arguments C++ gives it,
see the calls and change nothing unless they want to.
"""

import re

import pytest

import scaffolding as sf
from scaffolding.models import (
    AutoencoderKL,
    AutoencoderTiny,
    CLIPTextModel,
    DiTTransformer2DModel,
    UNet2DConditionModel,
)

# Parts whose tensors are read by the part around them, in a fused op or with an argument that their forward lacks, and
# CLIP's two that only name theirs.
READ = re.compile(
    r"linear_1$|ff\.net\.0\.proj$|position_embedding$|^up_blocks\.\d+\.upsamplers\.0$"
    r"|transformer_blocks\.\d+\.norm[13](\.emb)?$|^text_model(\.encoder)?$"
)


def unet():
    model = UNet2DConditionModel(
        block_out_channels=[16, 32], layers_per_block=1, norm_num_groups=8, cross_attention_dim=24,
        attention_head_dim=2, down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
        up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
    )  # fmt: skip
    return model, lambda: model(sf.ones(2, 4, 8, 8), 3, sf.ones(2, 5, 24)).sample


def autoencoder():
    model = AutoencoderKL(
        block_out_channels=[16, 16],
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        layers_per_block=1,
        norm_num_groups=4,
    )
    return model, lambda: model(sf.ones(1, 3, 16, 16)).sample


def tiny_autoencoder():
    model = AutoencoderTiny(encoder_block_out_channels=[16] * 4, decoder_block_out_channels=[16] * 4)
    return model, lambda: model(sf.ones(1, 3, 16, 16)).sample


def text_encoder():
    model = CLIPTextModel(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=8,
    )
    return model, lambda: model(sf.ones(2, 6, dtype=sf.int64)).last_hidden_state


def dit():
    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=10,
    )
    return model, lambda: model(sf.ones(2, 4, 8, 8), sf.tensor([3, 4]), sf.tensor([1, 2])).sample


@pytest.mark.parametrize("make", [unet, autoencoder, tiny_autoencoder, text_encoder, dit])
@pytest.mark.parametrize("gradient", [False, True])
def test_hooks_on_all_parts(make, gradient):
    sf.manual_seed(0)
    model, call = make()
    model.eval()
    with sf.set_grad_enabled(gradient):
        want = call()
        seen = set()
        handles = []
        for name, part in model.named_modules():
            handles.append(part.register_forward_pre_hook(lambda part, args, name=name: seen.add("before " + name)))
            handles.append(part.register_forward_hook(lambda part, args, output, name=name: seen.add("after " + name)))
        got = call()
    # parts that are fused otherwise run one by one
    assert (got - want).abs().max().item() <= 2e-5 * want.abs().max().item()
    missed = [
        name
        for name, part in model.named_modules()
        if type(part).__name__ not in ("ModuleList", "Dropout") and "after " + name not in seen
    ]
    assert not [name for name in missed if not READ.search(name)]
    assert {name.split(" ", 1)[1] for name in seen if name.startswith("before")} == {
        name.split(" ", 1)[1] for name in seen if name.startswith("after")
    }
    for handle in handles:
        handle.remove()
    with sf.set_grad_enabled(gradient):
        assert (call() - want).abs().max().item() == 0


def test_a_hook_on_a_block_changes_its_output():
    model, call = unet()
    model.eval()
    with sf.no_grad():
        want = call()
        handle = model.mid_block.register_forward_hook(lambda part, args, output: output * 0)
        assert (call() - want).abs().max().item() > 0
        handle.remove()
        assert (call() - want).abs().max().item() == 0
