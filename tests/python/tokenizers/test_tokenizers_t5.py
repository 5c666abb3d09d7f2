"""T5Tokenizer's call and files in Python. Ids themselves are compared in C++ (t5_tokenizer_test.cpp)."""

import json
import shutil

import folders
import pytest

from scaffolding.tokenizers import T5Tokenizer

GOLDEN = folders.GOLDEN / "tokenizers"


@pytest.fixture
def folder(tmp_path):
    """As PixArt-Sigma's: a model and a config, and no tokenizer.json."""
    shutil.copy(GOLDEN / "t5_small.model", tmp_path / "spiece.model")
    extra = [f"<extra_id_{i}>" for i in range(100)]
    config = {
        "tokenizer_class": "T5Tokenizer",
        "model_max_length": 20,
        "extra_ids": 100,
        "legacy": True,
        "additional_special_tokens": extra,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_the_call_of_pixart(folder):
    tokenizer = T5Tokenizer.from_pretrained(folder)
    out = tokenizer(
        ["a photo of a cat", "dogs"],
        padding="max_length",
        max_length=30,
        truncation=True,
        add_special_tokens=True,
        return_tensors="pt",
    )
    assert out.input_ids.shape == (2, 30) and out.attention_mask.sum().item() == sum(
        len(tokenizer(t).input_ids) for t in ("a photo of a cat", "dogs")
    )
    assert (
        out.input_ids[1, -1].item() == tokenizer.pad_token_id == 0
        and tokenizer.eos_token_id == 1
        and tokenizer.unk_token_id == 2
    )
    long = tokenizer("the cat " * 20, truncation=True).input_ids
    assert len(long) == tokenizer.model_max_length == 20 and long[-1] == 1
    assert tokenizer.decode(tokenizer("a photo of <extra_id_0>").input_ids) == "a photo of<extra_id_0></s>"
    assert len(tokenizer) == tokenizer.vocab_size == 235 and tokenizer.convert_tokens_to_ids("<extra_id_0>") == 234
    assert isinstance(tokenizer.batch_decode(out.input_ids, skip_special_tokens=True)[0], str)


def test_a_model_alone(folder, tmp_path):
    tokenizer = T5Tokenizer(folder / "spiece.model", extra_ids=3)
    assert len(tokenizer) == 138 and tokenizer.model_max_length == int(1e30)
    assert T5Tokenizer.from_file(folder / "spiece.model")("a cat") == tokenizer("a cat")
    tokenizer.save_pretrained(tmp_path / "saved")
    assert {p.name for p in (tmp_path / "saved").iterdir()} == {
        "spiece.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }
    again = T5Tokenizer.from_pretrained(tmp_path, subfolder="saved")
    assert again.get_vocab() == tokenizer.get_vocab() and again("a <extra_id_2> cat") == tokenizer("a <extra_id_2> cat")


def test_files_that_are_missing_or_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        T5Tokenizer.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match="neither tokenizer.json nor spiece.model"):
        T5Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(ValueError, match="spiece.model: is no SentencePiece model"):
        T5Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes((GOLDEN / "t5_small.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"extra_ids": -1}')
    with pytest.raises(ValueError, match="extra_ids: must be between 0 and 100000, got -1"):
        T5Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"5": {"content": "<extra_id_0>"}}}')
    with pytest.raises(ValueError, match="'<extra_id_0>' has the ids 234 and 5"):
        T5Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(TypeError):
        T5Tokenizer(GOLDEN / "t5_small.model", extra_ids=1.5)
