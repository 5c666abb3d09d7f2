"""What T5's encoder has besides other models: names in older files, float16, dropout. Its outputs:
test_every_model.py.
"""

import json

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.models import T5EncoderModel
from scaffolding.safetensors.torch import load_file, save_file

TINY = {
    "vocab_size": 30,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 20,
    "num_layers": 2,
    "num_heads": 3,
    "feed_forward_proj": "gated-gelu",
}
SHARED, EMBED = "shared.weight", "encoder.embed_tokens.weight"
IDS = sf.tensor([[4, 9, 2, 17, 1]])


@pytest.mark.parametrize("names", [(EMBED,), (SHARED, EMBED)])
def test_older_files_have_another_name_for_the_embedding(names, tmp_path):
    model = T5EncoderModel(**TINY).eval()
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    save_file(
        {k: v for k, v in saved.items() if k != SHARED} | {name: saved[SHARED] for name in names},
        tmp_path / "model.safetensors",
    )
    assert sf.equal(T5EncoderModel.from_pretrained(tmp_path)(IDS).last_hidden_state, model(IDS).last_hidden_state)


def test_the_decoder_of_a_whole_model_is_left_out(tmp_path):
    model = T5EncoderModel(**TINY).eval()
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    save_file(
        {**saved, "decoder.block.0.layer.0.SelfAttention.q.weight": sf.ones(2, 2), "lm_head.weight": sf.ones(2, 2)},
        tmp_path / "model.safetensors",
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert (
        config["architectures"] == ["T5EncoderModel"]
        and config["model_type"] == "t5"
        and config["dense_act_fn"] == "gelu_new"
    )
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["T5ForConditionalGeneration"]}))
    assert sf.equal(T5EncoderModel.from_pretrained(tmp_path)(IDS).last_hidden_state, model(IDS).last_hidden_state)


def test_in_float16_the_outputs_of_feed_forward_layers_stay_in_float32(tmp_path):
    model = T5EncoderModel(**TINY).eval()
    model.save_pretrained(tmp_path)
    half = T5EncoderModel.from_pretrained(tmp_path, torch_dtype=sf.float16)
    assert {n.split(".")[-2] for n, p in half.named_parameters() if p.dtype is sf.float32} == {
        "wo"
    } and half.dtype is sf.float16
    out = half(IDS, output_hidden_states=True)
    assert out.last_hidden_state.dtype is sf.float16 and out.hidden_states[1].dtype is sf.float32
    assert (
        np.abs(out.last_hidden_state.detach().float().numpy() - model(IDS).last_hidden_state.detach().numpy()).max()
        < 0.02
    )
    other = T5EncoderModel.from_pretrained(tmp_path, torch_dtype=sf.bfloat16)
    assert {p.dtype for p in other.parameters()} == {sf.bfloat16}


def test_what_is_infinite_in_float16_is_brought_back():
    model = T5EncoderModel(**TINY).eval().half()
    with sf.no_grad():
        model.encoder.block[0].layer[1].DenseReluDense.wo.weight.copy_(sf.full((16, 20), 60000.0))
        model.encoder.block[0].layer[1].DenseReluDense.wi_1.weight.mul_(1000)
        out = model(IDS, output_hidden_states=True)
    # 65504 - 1000, rounded
    assert float(out.hidden_states[1].float().abs().max()) == 64512 and bool(sf.isfinite(out.last_hidden_state).all())


def test_padding_is_not_seen():
    model = T5EncoderModel(**TINY).eval()
    padded, mask = sf.cat([IDS, sf.tensor([[0, 0, 0]])], 1), sf.tensor([[1] * 5 + [0] * 3])
    with sf.no_grad():
        want = model(IDS).last_hidden_state
        assert sf.allclose(model(padded, attention_mask=mask).last_hidden_state[:, :5], want, atol=1e-6)
        assert not sf.allclose(model(padded).last_hidden_state[:, :5], want, atol=1e-4)


def test_dropout_is_for_training():
    model = T5EncoderModel(**TINY)
    with sf.no_grad():
        assert not sf.equal(model(IDS).last_hidden_state, model(IDS).last_hidden_state)
        model.eval()
        assert sf.equal(model(IDS).last_hidden_state, model(IDS).last_hidden_state)


def test_what_is_refused():
    for config, match in [
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj must be relu, gelu, gelu_new or silu"),
        ({"num_layers": 0}, "num_layers must be between 1 and 1000, got 0"),
        ({"d_ff": 2**40}, "d_ff must be between 1 and"),
        ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets must be at least 4"),
        ({"relative_attention_max_distance": 8}, "above a quarter of it, got 32 and 8"),
        ({"dropout_rate": 1.5}, "dropout_rate must be between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=match):
            T5EncoderModel(**{**TINY, **config})
    model = T5EncoderModel(**TINY).eval()
    for arguments, match in [
        ({}, "either input_ids or inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": sf.zeros(1, 5, 16)}, "either input_ids or inputs_embeds"),
        ({"input_ids": sf.tensor([1])}, r"input_ids must be \[batch, tokens\], got \[1\]"),
        ({"inputs_embeds": sf.zeros(1, 5, 15)}, r"inputs_embeds must be \[batch, tokens, 16\], got \[1, 5, 15\]"),
        ({"input_ids": IDS, "attention_mask": sf.ones(1, 4)}, "attention_mask"),
    ]:
        with pytest.raises(ValueError, match=match):
            model(**arguments)
    with pytest.raises(IndexError):
        model(sf.tensor([[30]]))
    with pytest.raises(NotImplementedError, match="output_attentions"):
        model(IDS, output_attentions=True)
