"""What Gemma 3's layers have of their own as a text encoder: states of prompts as LTX-2 takes them, folders of larger
classes, older configs, other programs' names, refusals. Their numbers, keys and folders: test_every_model.py.

Golden values of the stacked states are written by tests/golden/make_golden_models_gemma3.py.
"""

import json
import struct

import numpy as np
import pytest
from gguf_writer import save_gguf
from hashed_weights import hashed, hashed_weight
from model_cases import FOLDER, away, families
from packed import unpacked

import scaffolding as sf
from scaffolding.models import Gemma3TextModel

FILE = families()["gemma3"]
TINY, FOLDER_OF_ALL = FILE["cases"][0]["config"], FILE["extra"]["folder"]
IDS, MASK = (sf.tensor(FILE["cases"][0]["arguments"][name]) for name in ("input_ids", "attention_mask"))
GOLDEN = sf.safetensors.load(unpacked(FOLDER / "models" / "gemma3.safetensors.xz"))
TEXT = "language_model.model."  # before the text's tensors in files of the whole


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


@pytest.fixture
def model():
    return filled(Gemma3TextModel(**TINY))


def assert_same_tensors(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert a.keys() == b.keys()
    for key, t in a.items():
        np.testing.assert_array_equal(t.numpy(), b[key].numpy(), key)


# ---- states of prompts


def test_stacked_states_are_what_ltx2_takes_from_the_whole_model(model):
    states = model.stacked_hidden_states(IDS, MASK)
    assert list(states.shape) == FILE["extra"]["stacked"]
    assert away("stacked", (states * MASK.unsqueeze(-1)).numpy(), GOLDEN["stacked"].numpy()) <= 1e-5


def test_stacked_states_are_those_of_a_call(model):
    with sf.no_grad():
        hidden = model(IDS, MASK, output_hidden_states=True).hidden_states
    want = sf.stack(list(hidden), -1).flatten(2).numpy()
    np.testing.assert_array_equal(model.stacked_hidden_states(IDS, MASK).numpy(), want)


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_that_all_texts_have_changes_nothing_and_is_zeros(model, side):
    before, behind = {"left": (4, 0), "right": (0, 4), "both": (3, 2)}[side]
    ids = sf.cat([sf.zeros(2, before, dtype=sf.int64), IDS, sf.zeros(2, behind, dtype=sf.int64)], 1)
    mask = sf.cat([sf.zeros(2, before, dtype=sf.int64), MASK, sf.zeros(2, behind, dtype=sf.int64)], 1)
    got = model.stacked_hidden_states(ids, mask).numpy()
    with sf.no_grad():
        whole = model(ids, mask, output_hidden_states=True).hidden_states
    seen = mask.numpy().astype(bool)
    np.testing.assert_allclose(got[seen], sf.stack(list(whole), -1).flatten(2).numpy()[seen], atol=2e-5)
    end = got.shape[1] - behind
    assert not got[:, :before].any() and not got[:, end:].any() and got[:, before:end].any()
    assert np.isfinite(sf.stack(list(whole), -1).numpy()).all()


def test_a_text_alone_is_what_it_is_among_others(model):
    alone = model.stacked_hidden_states(IDS[1:, 3:], None)
    padded = model.stacked_hidden_states(IDS[1:], MASK[1:])
    among = model.stacked_hidden_states(IDS, MASK)[1:]
    # positions are others, and what tokens see of each other depends on their distance
    np.testing.assert_allclose(padded[:, 3:].numpy(), alone.numpy(), atol=2e-5)
    np.testing.assert_allclose(padded[:, 3:].numpy(), among[:, 3:].numpy(), atol=2e-5)


def test_a_mask_of_nothing_but_padding_gives_numbers(model):
    assert np.isfinite(model.stacked_hidden_states(IDS, sf.zeros(2, 7)).numpy()).all()


def test_embeddings_are_scaled_in_their_dtype():
    model = filled(Gemma3TextModel(**{**TINY, "hidden_size": 24}))  # whose root no 16 bits hold
    ids = sf.tensor([[5, 7]])
    for dtype, scale in ((sf.float32, np.float32(24**0.5)), (sf.bfloat16, np.float32(4.90625))):
        model = model.to(dtype)
        with sf.no_grad():
            got, rows = model.embed_tokens(ids), sf.nn.functional.embedding(ids, model.embed_tokens.weight)
        np.testing.assert_array_equal(got.float().numpy(), (rows * float(scale)).float().numpy())


def test_norms_add_one_in_float32():
    model = Gemma3TextModel(**TINY).to(sf.bfloat16)
    x, w = sf.tensor(hashed("x", (3, 16))).to(sf.bfloat16), sf.tensor(hashed("w", (16,)) * 1e-3).to(sf.bfloat16)
    model.norm.load_state_dict({"weight": w})
    wide = x.float()
    want = wide / ((wide * wide).mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + w.float())
    with sf.no_grad():
        got = model.norm(x)
    assert got.dtype == sf.bfloat16
    np.testing.assert_allclose(got.float().numpy(), want.numpy(), rtol=2**-8)


# ---- files of larger classes


def write_whole(folder, model, rename=lambda name: name):
    """A folder as transformers writes it of texts and pictures, whose pictures' tensors are NaN."""
    config = json.loads(FOLDER_OF_ALL["config.json"])
    (folder / "config.json").write_text(json.dumps(config))
    state = model.state_dict()
    tensors = {}
    for name, shape in FOLDER_OF_ALL["shapes"].items():
        ours = state.get(name.removeprefix(TEXT))
        tensors[rename(name)] = sf.full(shape, float("nan")) if ours is None else ours.clone()
    tensors[rename("language_model.lm_head.weight")] = sf.full((61, 16), float("nan"))
    sf.safetensors.save_file(tensors, folder / "model.safetensors")
    return config


def renamed(prefix):
    def rename(name):
        if name.startswith(TEXT):
            return prefix + name.removeprefix(TEXT)
        return "lm_head.weight" if "lm_head" in name else name.replace("vision_tower.", "vision_tower.vision_model.")

    return rename


@pytest.mark.parametrize("prefix", [TEXT, "model.language_model.", "language_model.", "model.", ""])
def test_folders_of_the_whole_model_are_read(model, prefix, tmp_path):
    write_whole(tmp_path, model, renamed(prefix))
    again = Gemma3TextModel.from_pretrained(tmp_path)
    assert_same_tensors(again, model)
    assert again.config.sliding_window == 3 and again.config.num_hidden_layers == 3
    again.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert saved["architectures"] == ["Gemma3TextModel"] and saved["model_type"] == "gemma3_text"
    assert "text_config" not in saved and "vision_config" not in saved
    assert_same_tensors(Gemma3TextModel.from_pretrained(tmp_path / "saved"), model)


def test_fields_given_beside_the_folder_count(model, tmp_path):
    write_whole(tmp_path, model)
    again = Gemma3TextModel.from_pretrained(tmp_path, sliding_window=5)
    assert again.config.sliding_window == 5 and again.config.query_pre_attn_scalar == 10


def test_a_folder_that_lacks_a_tensor_of_the_text_says_so(model, tmp_path):
    write_whole(tmp_path, model, lambda name: name.replace("1.mlp.up_proj", "1.mlp.other"))
    with pytest.raises(RuntimeError, match=r"layers\.1\.mlp\.up_proj\.weight"):
        Gemma3TextModel.from_pretrained(tmp_path)


def test_configs_from_before_transformers_5(model, tmp_path):
    config = write_whole(tmp_path, model)
    text = config["text_config"]
    ropes = text.pop("rope_parameters")
    text.pop("layer_types")
    text.pop("_sliding_window_pattern")
    text |= {"rope_theta": ropes["full_attention"]["rope_theta"], "rope_local_base_freq": 10000.0,
             "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window_pattern": 2}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = Gemma3TextModel.from_pretrained(tmp_path)  # every second layer is full, as in the newer config
    np.testing.assert_array_equal(
        again.stacked_hidden_states(IDS, MASK).numpy(), model.stacked_hidden_states(IDS, MASK).numpy()
    )
    assert again.config.layer_types == TINY["layer_types"]
    text["rope_scaling"] = {"rope_type": "yarn", "factor": 8.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotImplementedError, match="rope_type 'default' or 'linear', got 'yarn'"):
        Gemma3TextModel.from_pretrained(tmp_path)


def test_a_pattern_of_layers_that_is_absent_is_gemmas():
    config = {k: v for k, v in TINY.items() if k not in ("layer_types", "rope_parameters")} | {"num_hidden_layers": 6}
    plain = filled(Gemma3TextModel(**config))
    said = filled(Gemma3TextModel(**config, layer_types=["sliding_attention"] * 5 + ["full_attention"]))
    older = filled(Gemma3TextModel.from_config({**config, "rope_theta": 1e6, "sliding_window_pattern": 6}))
    want = plain.stacked_hidden_states(IDS, MASK).numpy()
    for other in (said, older):
        np.testing.assert_array_equal(other.stacked_hidden_states(IDS, MASK).numpy(), want)


# ---- files of other programs

LLAMA = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip


def as_llama_cpp(key):
    if not key.startswith("layers."):
        return key.replace("embed_tokens", "token_embd").replace("norm", "output_norm")
    _, number, part = key.split(".", 2)
    part, end = part.rsplit(".", 1)
    return f"blk.{number}.{LLAMA[part]}.{end}"


def test_a_gguf_file_whose_norms_are_one_more(tmp_path):
    config = {**TINY, "hidden_size": 32, "intermediate_size": 64}
    state = filled(Gemma3TextModel(**config)).state_dict()
    theirs = {as_llama_cpp(k): t + 1 if k.endswith("norm.weight") else t for k, t in state.items()}
    read = save_gguf(theirs, tmp_path / "gemma.gguf")
    again = Gemma3TextModel.from_single_file(tmp_path / "gemma.gguf", config=config)
    for key, t in again.state_dict().items():
        want = read[as_llama_cpp(key)] - np.float32(key.endswith("norm.weight"))
        np.testing.assert_array_equal(t.numpy(), want, key)
    kept = Gemma3TextModel.from_single_file(
        tmp_path / "gemma.gguf", config=config, quantization_config=sf.models.GGUFQuantizationConfig()
    )
    assert type(kept.layers[0].mlp.up_proj).__name__ != "Linear"
    want, got = (m.stacked_hidden_states(IDS, MASK).numpy() for m in (again, kept))
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_comfyuis_file_with_pictures_and_a_vocabulary_in_it(model, prefix, tmp_path):
    tensors = {prefix + k: t.clone() for k, t in model.state_dict().items()}
    tensors |= {"vision_model.encoder.layers.0.self_attn.q_proj.weight": sf.ones(4, 4),
                "multi_modal_projector.mm_soft_emb_norm.weight": sf.ones(4),
                "spiece_model": sf.ones(5).to(sf.uint8)}  # fmt: skip
    sf.safetensors.save_file(tensors, tmp_path / "gemma.safetensors")
    assert_same_tensors(Gemma3TextModel.from_single_file(tmp_path / "gemma.safetensors", config=TINY), model)


def write_shapes(path, tensors):
    """A safetensors file of zeros in bfloat16."""
    header, at = {}, 0
    for name, shape in tensors.items():
        size = int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * size]}
        at += 2 * size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


@pytest.mark.parametrize("names", [lambda key: "model." + key, as_llama_cpp])
def test_the_config_of_a_known_size_is_told_by_the_tensors(names, tmp_path):
    sizes = {**TINY, "hidden_size": 640, "head_dim": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes.pop("layer_types")
    with sf.device("meta"):
        shapes = {names(k): t.shape for k, t in Gemma3TextModel(**sizes).state_dict().items()}
    write_shapes(tmp_path / "gemma.safetensors", shapes)
    config = Gemma3TextModel.from_single_file(tmp_path / "gemma.safetensors").config
    for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                 "num_key_value_heads", "head_dim"):  # fmt: skip
        assert config[name] == sizes[name], name
    assert config.sliding_window == 512 and config.rope_parameters is None
    shapes = {k: [24 if n == 640 else n for n in shape] for k, shape in shapes.items()}
    write_shapes(tmp_path / "gemma.safetensors", shapes)
    with pytest.raises(ValueError, match="hidden_size of 640, 1152, 2560, 3840 or 5376, got 24; give a config"):
        Gemma3TextModel.from_single_file(tmp_path / "gemma.safetensors")


def test_the_table_of_tokens_may_grow(model):
    assert model.get_input_embeddings() is model.embed_tokens
    model.resize_token_embeddings(63)
    assert model.embed_tokens.weight.shape == (63, 16) and model.config.vocab_size == 63


# ---- refusals


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"num_key_value_heads": 3}, ValueError, "num_key_value_heads must divide num_attention_heads, got 3 and 4"),
        ({"head_dim": 5}, ValueError, "head_dim must be even, got 5"),
        ({"hidden_activation": "silu"}, NotImplementedError, "must be gelu_pytorch_tanh, got 'silu'"),
        ({"attn_logit_softcapping": 50.0}, NotImplementedError, "attn_logit_softcapping and final_logit_softcapping"),
        ({"final_logit_softcapping": 30.0}, NotImplementedError, "are of Gemma 2"),
        ({"use_bidirectional_attention": True}, NotImplementedError, "use_bidirectional_attention is not supported"),
        ({"sliding_window": None}, ValueError, "need a sliding_window above 0, got 0"),
        ({"layer_types": ["full_attention"]}, ValueError, "one for each of the 3 layers"),
        ({"layer_types": ["full_attention"] * 2 + ["other"]}, NotImplementedError, "got 'other'"),
        ({"query_pre_attn_scalar": 0}, ValueError, "query_pre_attn_scalar"),
        ({"pad_token_id": 61}, ValueError, "pad_token_id must be below vocab_size, got 61 and 61"),
        ({"rope_parameters": {"rope_theta": 1e6}}, ValueError, "one for 'sliding_attention', got 'rope_theta'"),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, ValueError, "'linear' need a factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 0.0}}}, ValueError, "above 0"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, NotImplementedError, "got 'yarn'"),
        ({"layer_types": None, "sliding_window_pattern": 0}, ValueError, "_pattern must be above 0, got 0 of 3 layers"),
    ],
)
def test_impossible_text_encoders_are_refused(fields, error, words):
    with pytest.raises(error, match=words):
        Gemma3TextModel.from_config({**TINY, **fields})


def test_nothing_is_generated(model):
    with pytest.raises(NotImplementedError, match="nothing is generated here"):
        model(sf.tensor([[1, 2]]), use_cache=True)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model()
    with pytest.raises(ValueError, match=r"input_ids must be \[batch, tokens\]"):
        model.stacked_hidden_states(sf.tensor([1, 2]))
