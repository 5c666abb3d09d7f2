"""What FLUX's pipelines and transformer have besides others: files as Black Forest Labs' program and ComfyUI have them,
LoRAs under both names, sizes, what is refused. Pictures: test_every_pipeline.py; the network: test_every_model.py.
"""

import json
import struct

import numpy as np
import pytest
from golden_pipelines import CASES, assert_is, one_thread, part, pipeline_of, run  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion, models, nn

CASE = CASES["flux_dev"]


def make(name="flux_dev", **components):
    case = CASES[name]
    return pipeline_of({**case, "components": {**case["components"], **components}}, "flux")


# ---- Black Forest Labs' names, as their program's modules nest


def of_bfl(state):
    """The tensors of a transformer with 1 + 2 blocks under the names of the program that trained it."""
    out = {}

    def take(theirs, *ours):
        for end in ("weight", "bias"):
            out[f"{theirs}.{end}"] = sf.cat([state.pop(f"{name}.{end}") for name in ours])

    for ours, theirs in {"timestep": "time_in", "guidance": "guidance_in", "text": "vector_in"}.items():
        for layer, name in ((1, "in_layer"), (2, "out_layer")):
            take(f"{theirs}.{name}", f"time_text_embed.{ours}_embedder.linear_{layer}")
    take("txt_in", "context_embedder")
    take("img_in", "x_embedder")
    take("final_layer.linear", "proj_out")
    for end in ("weight", "bias"):
        scale, shift = state.pop(f"norm_out.linear.{end}").chunk(2)
        out[f"final_layer.adaLN_modulation.1.{end}"] = sf.cat([shift, scale])
    block, theirs = "transformer_blocks.0.", "double_blocks.0."
    for name, context, added, back in (
        ("img", "", ("to_q", "to_k", "to_v"), "to_out.0"),
        ("txt", "_context", ("add_q_proj", "add_k_proj", "add_v_proj"), "to_add_out"),
    ):
        take(f"{theirs}{name}_mod.lin", f"{block}norm1{context}.linear")
        take(f"{theirs}{name}_attn.qkv", *(f"{block}attn.{layer}" for layer in added))
        take(f"{theirs}{name}_attn.proj", f"{block}attn.{back}")
        take(f"{theirs}{name}_mlp.0", f"{block}ff{context}.net.0.proj")
        take(f"{theirs}{name}_mlp.2", f"{block}ff{context}.net.2")
        for which, ours in (("query", "q"), ("key", "k")):
            norm = f"{block}attn.norm_{'added_' if context else ''}{ours}.weight"
            out[f"{theirs}{name}_attn.norm.{which}_norm.scale"] = state.pop(norm)
    for i in range(2):
        block, theirs = f"single_transformer_blocks.{i}.", f"single_blocks.{i}."
        take(f"{theirs}modulation.lin", f"{block}norm.linear")
        take(f"{theirs}linear1", *(f"{block}attn.{layer}" for layer in ("to_q", "to_k", "to_v")), f"{block}proj_mlp")
        take(f"{theirs}linear2", f"{block}proj_out")
        for which, ours in (("query", "q"), ("key", "k")):
            out[f"{theirs}norm.{which}_norm.scale"] = state.pop(f"{block}attn.norm_{ours}.weight")
    assert not state
    return out


def wide_transformer():
    """One of 64 channels, whose rows fit blocks of 32."""
    sf.manual_seed(3)
    return models.FluxTransformer2DModel(
        in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=32, num_attention_heads=2,
        joint_attention_dim=24, pooled_projection_dim=12, axes_dims_rope=[8, 12, 12], guidance_embeds=True,
    ).eval()  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_a_file_of_black_forest_labs_is_the_same_network(prefix, tmp_path):
    ours = part("flux", "dev")
    path = tmp_path / "flux1-dev.safetensors"
    theirs = of_bfl({k: t.detach() for k, t in ours.state_dict().items()})
    sf.safetensors.save_file({prefix + name: t.contiguous() for name, t in theirs.items()}, str(path))
    again = models.FluxTransformer2DModel.from_single_file(path, config=dict(ours.config))
    assert again.state_dict().keys() == ours.state_dict().keys()
    for name, t in ours.state_dict().items():
        assert sf.equal(again.state_dict()[name], t), name
    assert_is("flux_dev", run(CASE, lambda case, family: make_with(again)))
    with pytest.raises(ValueError, match="FluxTransformer2DModel.from_single_file"):
        diffusion.FluxPipeline.from_single_file(path)


def make_with(transformer):
    pipe = make()
    return type(pipe)(**{**pipe.components, "transformer": transformer})


def test_a_file_tells_its_size(tmp_path):
    """schnell's and Fill's sizes but for the number of blocks, without a number in memory."""
    for name, fields in {
        "schnell": {},
        "fill": {"in_channels": 384, "out_channels": 64, "guidance_embeds": True},
    }.items():
        with sf.device("meta"):
            config = {"num_layers": 2, "num_single_layers": 3, **fields}
            model = models.FluxTransformer2DModel(**config)
        path = tmp_path / f"{name}.safetensors"
        write_sparse({k: t.shape for k, t in model.state_dict().items()}, path)
        again = models.FluxTransformer2DModel.from_single_file(path, torch_dtype=sf.bfloat16)
        assert {k: v for k, v in again.config.items() if not k.startswith("_")} == {
            k: v for k, v in model.config.items() if not k.startswith("_")
        }


def write_sparse(shapes, path):
    """A safetensors file of bfloat16 zeros that takes no place on the disk."""
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def test_blocks_of_a_gguf_file_stay(tmp_path, program):
    """As the files that people have: the program's own, of Black Forest Labs' names, whose joined rows are cut."""
    dense = wide_transformer()
    theirs = of_bfl({k: t.detach() for k, t in dense.state_dict().items()})
    sf.safetensors.save_file({k: t.contiguous() for k, t in theirs.items()}, str(tmp_path / "flux.safetensors"))
    program("convert", "flux.safetensors", "flux.gguf", "--type", "q8_0", cwd=tmp_path)
    blocks = models.FluxTransformer2DModel.from_single_file(
        tmp_path / "flux.gguf",
        config=dict(dense.config),
        quantization_config=models.GGUFQuantizationConfig(compute_dtype=sf.float32),
        torch_dtype=sf.float32,
    )
    kinds = {name: type(m).__name__ for name, m in blocks.named_modules()}
    for name in ("transformer_blocks.0.attn.to_k", "transformer_blocks.0.ff_context.net.0.proj",
                 "single_transformer_blocks.1.attn.to_v", "single_transformer_blocks.0.proj_mlp"):  # fmt: skip
        assert kinds[name] == "LinearGGUF", name
    for name in ("x_embedder", "proj_out", "time_text_embed.guidance_embedder.linear_1"):
        assert kinds[name] == "Linear", name
    pictures = [make_with(model)(**CASE["call"], seed=1, output_type="np").images for model in (dense, blocks)]
    assert 0 < np.abs(pictures[0] - pictures[1]).max() < 0.05
    widened = models.FluxTransformer2DModel.from_single_file(tmp_path / "flux.gguf", config=dict(dense.config))
    again = make_with(widened)(**CASE["call"], seed=1, output_type="np").images
    assert np.abs(again - pictures[1]).max() < 2e-3


# ---- LoRA


def loras():
    """{name of a file: its tensors}: one of rank 2 beside two layers, under the names of diffusers, and of kohya's
    scripts for Black Forest Labs' layers, of which one has rows for queries, values and the feed-forward layer too.
    """
    g = sf.Generator().manual_seed(5)
    keys_down, keys_up = 0.3 * sf.randn(2, 16, generator=g), 0.3 * sf.randn(16, 2, generator=g)
    out_down, out_up = 0.3 * sf.randn(2, 80, generator=g), 0.3 * sf.randn(16, 2, generator=g)
    joined = sf.cat([sf.zeros(16, 2), keys_up, sf.zeros(112 - 32, 2)])
    ours, theirs = "transformer.single_transformer_blocks.0.", "lora_unet_single_blocks_0_"
    return {
        "diffusers.safetensors": {
            f"{ours}attn.to_k.lora_A.weight": keys_down,
            f"{ours}attn.to_k.lora_B.weight": keys_up,
            f"{ours}proj_out.lora_A.weight": out_down,
            f"{ours}proj_out.lora_B.weight": out_up,
        },
        "kohya.safetensors": {
            f"{theirs}linear1.lora_down.weight": keys_down,
            f"{theirs}linear1.lora_up.weight": joined,
            f"{theirs}linear2.lora_down.weight": out_down,
            f"{theirs}linear2.lora_up.weight": out_up,
        },
    }


def test_loras_of_both_names_are_the_same(tmp_path):
    pictures = []
    for name, tensors in loras().items():
        sf.safetensors.save_file(tensors, str(tmp_path / name))
        pipe = make_with(fresh())
        pipe.load_lora_weights(str(tmp_path / name))
        pictures.append(pipe(**CASE["call"], seed=1, output_type="np").images)
    plain = make()(**CASE["call"], seed=1, output_type="np").images
    assert np.abs(pictures[0] - plain).max() > 0.02
    assert np.abs(pictures[0] - pictures[1]).max() < 1e-4


def fresh():
    """The transformer in tensors that no other test has."""
    other = models.FluxTransformer2DModel.from_config(dict(part("flux", "dev").config))
    other.load_state_dict(part("flux", "dev").state_dict())
    return other.eval()


# ---- calls


def test_the_usual_size_is_128_latents():
    pipe = make()
    start = pipe.start("a cat", num_inference_steps=1, max_sequence_length=4, output_type="latent")
    assert tuple(start.latents.shape) == (1, 64 * 64, 16)


def test_what_does_not_fit_is_refused():
    pipe, call = make(), {**CASE["call"]}
    for change, message in {
        "a side": ({"height": 40, "width": 30}, "divisible by"),
        "no steps": ({"num_inference_steps": 0}, "num_inference_steps"),
        "long": ({"max_sequence_length": 513}, "max_sequence_length must be from 1 to 512"),
        "two texts": ({"prompt_2": ["a", "b"]}, "prompt_2 must be one text"),
        "adapters": ({"negative_ip_adapter_image": 1}, "no IP adapters"),
        "latents": ({"latents": sf.zeros(1, 4, 16, 12)}, r"latents .*\(1, 48, 16\)|latents.*\[1, 48, 16\]"),
    }.values():
        with pytest.raises((ValueError, NotImplementedError), match=message):
            pipe(**{**call, **change})
    with pytest.raises(ValueError, match="prompt_embeds need pooled_prompt_embeds"):
        pipe(prompt_embeds=sf.zeros(1, 5, 24), num_inference_steps=1)
    with pytest.raises(ValueError, match="not both text encoders"):
        make(text_encoder_2=None, tokenizer_2=None)("a cat", num_inference_steps=1)


def test_the_network_refuses_what_does_not_fit():
    model = part("flux", "dev")
    good = {"hidden_states": sf.zeros(1, 6, 16), "encoder_hidden_states": sf.zeros(1, 4, 24),
            "pooled_projections": sf.zeros(1, 12), "timestep": sf.tensor([0.5]), "img_ids": sf.zeros(6, 3),
            "txt_ids": sf.zeros(4, 3), "guidance": sf.tensor([3.5])}  # fmt: skip
    with sf.no_grad():
        model(**good)
        for change, message in (
            ({"hidden_states": sf.zeros(1, 6, 8)}, "hidden_states must be"),
            ({"img_ids": sf.zeros(5, 3)}, "img_ids must be"),
            ({"guidance": None}, "needs guidance"),
            ({"pooled_projections": sf.zeros(2, 12)}, "pooled_projections"),
        ):
            with pytest.raises(ValueError, match=message):
                model(**{**good, **change})
        with pytest.raises(ValueError, match="has no embedding of guidance"):
            part("flux", "schnell")(**good)
    for field, value in {"axes_dims_rope": [2, 2, 2], "num_layers": 0, "attention_head_dim": 7}.items():
        with pytest.raises(ValueError, match="axes_dims_rope|num_layers"):
            models.FluxTransformer2DModel(**{"axes_dims_rope": [2, 2, 4], "attention_head_dim": 8, field: value})


def test_modulations_of_the_full_size_become_few_bits():
    """They are a quarter of its weights: wide ones would take more memory than all others in four bits."""
    with sf.device("meta"):
        model = models.FluxTransformer2DModel(guidance_embeds=True, num_layers=1, num_single_layers=1)
    wide = {n for n, m in model.named_modules() if type(m) is nn.Linear and not formats(n, m)}
    assert wide == {"context_embedder", "x_embedder", "proj_out", "norm_out.linear",
                    *(f"time_text_embed.{what}_embedder.linear_{i}" for what in ("guidance", "timestep", "text")
                      for i in (1, 2))}  # fmt: skip


def formats(name, module):
    return sf._core._quantized_format(name, module.weight.numel(), "Q4_K", [])
