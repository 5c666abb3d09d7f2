"""What Z-Image's networks have of their own: batches beside lists, other programs' names, LoRAs under them, older
configs, refusals. Their numbers, keys and folders: test_every_model.py.
"""

import json

import numpy as np
import pytest
from gguf_writer import save_gguf
from hashed_weights import hashed, hashed_weight
from model_cases import families

import scaffolding as sf
from scaffolding.models import Qwen3Model, ZImageTransformer2DModel

TINY = families()["z_image"]["cases"][0]["config"]
TEXT = families()["qwen3"]["cases"][0]["config"]


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


@pytest.fixture
def model():
    return filled(ZImageTransformer2DModel(**TINY))


def floats(name, *shape):
    return sf.tensor(hashed(name, shape))


X, T = [floats("a", 4, 1, 4, 4), floats("b", 4, 1, 4, 4)], sf.tensor([0.25, 0.5])
CAPTIONS = [floats("c", 3, 10), floats("d", 35, 10)]


def test_a_batch_is_what_a_list_of_its_samples_is(model):
    with sf.no_grad():
        want = sf.stack(model(X, T, CAPTIONS).sample)
        feats = sf.zeros(2, 35, 10)
        feats[0, :3], feats[1] = CAPTIONS
        feats[0, 3:] = 1e6  # what is behind a caption is not looked at
        mask = sf.tensor([[1] * 3 + [0] * 32, [1] * 35])
        batch = sf.stack(X)
        got = model(batch, T, feats, cap_mask=mask, return_dict=False)[0]
        pictures = model(batch[:, :, 0], T, feats, cap_mask=mask).sample
        alone = model([X[0]], T[:1], [CAPTIONS[0]]).sample[0]
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    np.testing.assert_array_equal(pictures.numpy(), want[:, :, 0].numpy())
    np.testing.assert_allclose(alone.numpy(), want[0].numpy(), atol=1e-5)


def test_a_mask_of_one_length_changes_nothing(model):
    feats = sf.stack([floats("e", 40, 10), floats("f", 40, 10)])
    with sf.no_grad():
        want = model(sf.stack(X), T, feats).sample
        got = model(sf.stack(X), T, feats, cap_mask=sf.ones(2, 40)).sample
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-5)


# ---- files of other programs


def theirs(model):
    """As ComfyUI's files have the tensors: one product for queries, keys and values."""
    out, names = {}, [("all_final_layer.2-1.", "final_layer."), ("all_x_embedder.2-1.", "x_embedder."),
                      (".attention.to_out.0.", ".attention.out."), (".attention.norm_k.", ".attention.k_norm."),
                      (".attention.norm_q.", ".attention.q_norm.")]  # fmt: skip
    state = dict(model.state_dict())
    for key in [k for k in state if k.endswith("attention.to_q.weight")]:
        parts = [state.pop(key.replace("to_q", part)) for part in ("to_q", "to_k", "to_v")]
        out[key.replace("to_q", "qkv")] = sf.cat(parts)
    for key, t in state.items():
        for ours, other in names:
            key = key.replace(ours, other)
        out[key] = t
    return out


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_a_file_with_the_names_it_was_trained_under(model, prefix, tmp_path):
    path = tmp_path / "z_image.safetensors"
    tensors = {prefix + k: t.contiguous().clone() for k, t in theirs(model).items()}
    tensors[prefix + "norm_final.weight"] = sf.ones(16)  # which nothing reads
    sf.safetensors.save_file(tensors, path)
    again = ZImageTransformer2DModel.from_single_file(path, config=TINY)
    state = again.state_dict()
    for key, t in model.state_dict().items():
        np.testing.assert_array_equal(state[key].numpy(), t.numpy(), key)
    del tensors[prefix + "layers.0.attention.qkv.weight"]
    sf.safetensors.save_file(tensors, path)
    with pytest.raises(ValueError, match="attention.qkv.weight"):
        ZImageTransformer2DModel.from_single_file(path, config=TINY)


def test_a_gguf_file_in_blocks(tmp_path):
    config = {**TINY, "dim": 32, "axes_dims": [8, 4, 4], "cap_feat_dim": 32}
    model = filled(ZImageTransformer2DModel(**config))
    read = save_gguf(theirs(model), tmp_path / "z_image.gguf")
    rounded = model.state_dict()
    for key, t in theirs(model).items():  # the same rows under our names
        if key.endswith("qkv.weight"):
            for part, rows in zip("qkv", np.split(read[key], 3)):
                rounded[key.replace("qkv", f"to_{part}")] = sf.tensor(rows.copy())
    plain = ZImageTransformer2DModel.from_single_file(tmp_path / "z_image.gguf", config=config)
    for key in ("layers.0.attention.to_k.weight", "noise_refiner.0.attention.to_v.weight"):
        np.testing.assert_array_equal(plain.state_dict()[key].numpy(), rounded[key].numpy())
    kept = ZImageTransformer2DModel.from_single_file(
        tmp_path / "z_image.gguf", config=config, quantization_config=sf.models.GGUFQuantizationConfig()
    )
    captions = [floats("g", 3, 32), floats("h", 35, 32)]
    with sf.no_grad():
        want, got = (sf.stack(m(X, T, captions).sample).numpy() for m in (plain, kept))
    assert type(kept.layers[0].attention.to_q).__name__ != "Linear"
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def lora(rank, rows, columns, name):
    return floats(name + " down", rank, columns), floats(name + " up", rows, rank)


def with_lora(model, state, **options):
    model.load_lora_adapter(state, adapter_name="one", **options)
    with sf.no_grad():
        out = sf.stack(model(X, T, CAPTIONS).sample).numpy()
    model.delete_adapters("one")
    return out


def test_loras_under_diffusers_and_comfyuis_names(model):
    down, up = lora(2, 16, 16, "to_q")
    key = "layers.0.attention.to_q"
    ours = {f"transformer.{key}.lora_A.weight": down, f"transformer.{key}.lora_B.weight": up}
    want = with_lora(model, ours, prefix="transformer")
    with sf.no_grad():
        assert np.abs(want - sf.stack(model(X, T, CAPTIONS).sample).numpy()).max() > 1e-3
    comfy = {f"diffusion_model.{key}.lora_A.weight": down, f"diffusion_model.{key}.lora_B.weight": up}
    np.testing.assert_array_equal(with_lora(model, comfy, prefix="transformer"), want)
    # of the product that is one in the files: queries' rows first
    whole = sf.cat([up, sf.zeros(32, 2)])
    joined = {"diffusion_model.layers.0.attention.qkv.lora_A.weight": down,
              "diffusion_model.layers.0.attention.qkv.lora_B.weight": whole}  # fmt: skip
    np.testing.assert_allclose(with_lora(model, joined, prefix="transformer"), want, atol=1e-6)
    down, up = lora(2, 16, 16, "out")
    outs = []
    for name in ("out", "to_out.0"):
        key = f"diffusion_model.layers.0.attention.{name}"
        outs.append(with_lora(model, {f"{key}.lora_A.weight": down, f"{key}.lora_B.weight": up}, prefix="transformer"))
    np.testing.assert_array_equal(*outs)


def test_files_and_configs_from_before_transformers_5(tmp_path):
    model = filled(Qwen3Model(**TEXT))
    model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = {"model." + k: t.clone() for k, t in sf.safetensors.load_file(weights).items()}
    tensors["lm_head.weight"] = sf.ones(61, 16)
    sf.safetensors.save_file(tensors, weights)
    config = json.loads((tmp_path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": None, "architectures": ["Qwen3ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = Qwen3Model.from_pretrained(tmp_path)
    ids = sf.tensor([[5, 7, 9, 11]])
    with sf.no_grad():
        np.testing.assert_array_equal(again(ids)[0].numpy(), model(ids)[0].numpy())
    config["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotImplementedError, match="rope_parameters must have the rope_type 'default', got 'yarn'"):
        Qwen3Model.from_pretrained(tmp_path)


LLAMA = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "post_attention_layernorm": "ffn_norm", "input_layernorm": "attn_norm"}  # fmt: skip


def as_llama_cpp(key):
    if not key.startswith("layers."):
        return key.replace("embed_tokens", "token_embd").replace("norm", "output_norm")
    _, number, part = key.split(".", 2)
    part, end = part.rsplit(".", 1)
    return f"blk.{number}.{LLAMA[part]}.{end}"


def test_a_text_encoder_in_one_file(tmp_path):
    """As ComfyUI has it, and in GGUF as programs of language models have it."""
    config = {**TEXT, "hidden_size": 32, "intermediate_size": 64}
    model = filled(Qwen3Model(**config))
    state = model.state_dict()
    path = tmp_path / "qwen_3_4b.safetensors"
    sf.safetensors.save_file({"model." + k: t.clone() for k, t in state.items()}, path)
    again = Qwen3Model.from_single_file(path, config=config).state_dict()
    for key, t in state.items():
        np.testing.assert_array_equal(again[key].numpy(), t.numpy(), key)
    read = save_gguf({as_llama_cpp(k): t for k, t in state.items()}, tmp_path / "qwen.gguf")
    again = Qwen3Model.from_single_file(tmp_path / "qwen.gguf", config=config)
    for key, t in again.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), read[as_llama_cpp(key)], key)


def test_the_text_encoders_table_of_tokens_may_grow():
    model = filled(Qwen3Model(**TEXT))
    assert model.get_input_embeddings() is model.embed_tokens
    model.resize_token_embeddings(63)
    assert model.embed_tokens.weight.shape == (63, 16) and model.config.vocab_size == 63


# ---- refusals


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"axes_dims": [4, 2, 4]}, ValueError, "axes_dims must add up to dim / n_heads, 8, got 10"),
        ({"axes_dims": [3, 3, 2]}, ValueError, "axes_dims must be even numbers, got 3"),
        ({"axes_lens": [64, 8]}, ValueError, "must have 3 numbers each, got 3 and 2"),
        ({"n_heads": 3}, ValueError, "n_heads must divide dim, got 3 and 16"),
        ({"all_patch_size": [2, 4]}, ValueError, "lists of one length, got 2 and 1"),
        ({"all_patch_size": [2, 2], "all_f_patch_size": [1, 1]}, ValueError, "have the pair 2, 1 twice"),
        ({"siglip_feat_dim": 8}, NotImplementedError, "siglip_feat_dim is of models that are shown pictures"),
    ],
)
def test_impossible_transformers_are_refused(fields, error, words):
    with pytest.raises(error, match=words):
        ZImageTransformer2DModel(**{**TINY, **fields})


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"num_key_value_heads": 3}, ValueError, "num_key_value_heads must divide num_attention_heads, got 3 and 4"),
        ({"head_dim": 5}, ValueError, "head_dim must be even, got 5"),
        ({"hidden_act": "gelu"}, NotImplementedError, "hidden_act must be silu, got 'gelu'"),
        ({"use_sliding_window": True}, NotImplementedError, "use_sliding_window is not supported"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, NotImplementedError, "got 'sliding_attention'"),
        ({"layer_types": ["full_attention"]}, ValueError, "one for each of the 2 layers"),
        ({"pad_token_id": 61}, ValueError, "pad_token_id must be below vocab_size, got 61 and 61"),
    ],
)
def test_impossible_text_encoders_are_refused(fields, error, words):
    with pytest.raises(error, match=words):
        Qwen3Model(**{**TEXT, **fields})


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"patch_size": 4}, ValueError, "must be a pair of its config, got 4 and 1"),
        ({"x": X[:1]}, ValueError, "as many cap_feats as x, got 2 and 1"),
        ({"x": [X]}, NotImplementedError, "lists of lists"),
        ({"t": sf.tensor([1.0, 1.0, 1.0])}, ValueError, "one for each of the 2 samples, got 3"),
        ({"cap_feats": [sf.zeros(3, 9)] * 2}, ValueError, r"cap_feats must be \[2, M, 10\], got"),
        ({"x": [sf.zeros(4, 1, 3, 4)] * 2}, ValueError, "patch_size 2 must divide height and width"),
        ({"x": [sf.zeros(4, 1, 18, 4)] * 2}, ValueError, "8 rows and 16 columns of patches, got 65, 9 and 2"),
        ({"cap_feats": [sf.zeros(70, 10)] * 2}, ValueError, "95 tokens and frames.*got 97"),
        ({"siglip_feats": [[None]]}, NotImplementedError, "siglip_feats is not supported"),
        ({"controlnet_block_samples": {0: None}}, NotImplementedError, "controlnet_block_samples is not supported"),
    ],
)
def test_impossible_calls_are_refused(model, change, error, words):
    with pytest.raises(error, match=words), sf.no_grad():
        model(**{"x": X, "t": T, "cap_feats": CAPTIONS, **change})


def test_nothing_is_generated():
    model = Qwen3Model(**TEXT)
    with pytest.raises(NotImplementedError, match="nothing is generated here"):
        model(sf.tensor([[1, 2]]), use_cache=True)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model()
