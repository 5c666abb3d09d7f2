"""GemmaTokenizer's call and files in Python. Ids themselves are compared in C++ (gemma_tokenizer_test.cpp)."""

import json

import pytest
from model_cases import FOLDER
from packed import read_json

from scaffolding.tokenizers import GemmaTokenizer

GOLDEN = read_json(FOLDER / "tokenizers" / "gemma_cases.json.xz")


@pytest.fixture
def folder(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(json.dumps(GOLDEN[name]))
    return tmp_path


def test_prompts_are_padded_at_the_left(folder):
    tokenizer = GemmaTokenizer.from_pretrained(folder)
    assert tokenizer.padding_side == "left" and tokenizer.pad_token_id == 0 and tokenizer.bos_token_id == 2
    asked = {"padding": "max_length", "max_length": 24, "truncation": True}
    for side in ("left", "right"):
        tokenizer.padding_side = side
        out = tokenizer(GOLDEN["prompts"], return_tensors="np", **asked)
        assert out.input_ids.tolist() == [ids for ids, _ in GOLDEN["padded"][side]]
        assert out.attention_mask.tolist() == [mask for _, mask in GOLDEN["padded"][side]]


def test_what_is_saved_is_read_back(folder):
    tokenizer = GemmaTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder / "saved")
    again = GemmaTokenizer.from_pretrained(folder, subfolder="saved")
    for text, (ids, decoded, without) in zip(GOLDEN["strings"], GOLDEN["rows"]):
        assert again(text).input_ids == ids
        assert again.decode(ids) == decoded and again.decode(ids, skip_special_tokens=True) == without
    with pytest.raises(NotImplementedError, match="from_pretrained reads a folder"):
        GemmaTokenizer.from_file(folder / "tokenizer.json")
