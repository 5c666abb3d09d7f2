"""scaffolding.tokenizers: transformers' call interface. Ids themselves are compared in C++ (clip_tokenizer_test.cpp,
tokenizer_test.cpp).
"""

import json

import folders
import numpy
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding.tokenizers import CLIPTokenizer, Tokenizer, train_bpe

GOLDEN = folders.GOLDEN / "tokenizers"
SMALL = GOLDEN / "clip_small"


@pytest.fixture
def clip():
    return CLIPTokenizer.from_pretrained(SMALL)


def test_the_call_of_diffusers_gives_77_tokens(clip):
    out = clip(
        "A photo of a cat", padding="max_length", max_length=clip.model_max_length, truncation=True, return_tensors="pt"
    )
    assert out.input_ids.shape == (1, 77) and out.input_ids.dtype == sf.int64
    assert out.attention_mask.sum().item() == len(clip("A photo of a cat").input_ids)
    assert out["input_ids"][0, 0].item() == clip.bos_token_id and out.input_ids[0, -1].item() == clip.pad_token_id
    assert isinstance(out.to("cpu").input_ids, sf.Tensor)
    with pytest.raises(AttributeError, match="BatchEncoding has no 'token_type_ids'"):
        out.token_type_ids


def test_ids_are_transformers(clip):
    golden = read_json(GOLDEN / "clip.json.xz")
    for text, (ids, kept, without, decoded) in zip(golden["strings"], golden["results"]["small/plain"]["rows"]):
        assert clip(text)["input_ids"] == ids == clip.encode(text)
        assert clip.decode(ids, skip_special_tokens=True) == without and clip.decode(sf.tensor(ids)) == decoded
        assert sum(clip(text, padding="max_length", max_length=77, truncation=True).attention_mask) == kept


def test_lists_arrays_and_tensors(clip):
    assert clip("cat")["input_ids"] == clip(["cat"])["input_ids"][0]
    assert clip([]) == {"input_ids": [], "attention_mask": []}
    both = clip(["a cat", "a photo of a very long cat"], padding=True, return_tensors="np")
    assert both.input_ids.dtype == numpy.int64 and both.input_ids.shape == both.attention_mask.shape
    assert both.attention_mask[0].sum() < both.attention_mask[1].sum() == both.input_ids.shape[1]
    assert clip(["a", "b"], padding="longest", return_tensors="sf", return_attention_mask=False).keys() == {"input_ids"}
    assert clip([], padding=True, return_tensors="np").input_ids.shape == (0, 0)
    left = clip(["a cat", "a photo of a cat"], padding=True, padding_side="left", pad_to_multiple_of=8)
    assert left.attention_mask[0][0] == 0 and len(left.input_ids[0]) % 8 == 0
    assert len(clip("a photo of a cat", max_length=4).input_ids) == 4, "max_length alone cuts"
    assert (
        clip("a photo of a cat", truncation=True, max_length=3, truncation_side="left").input_ids[1]
        == clip("cat").input_ids[-2]
    )
    assert clip("a cat", add_special_tokens=False).input_ids == clip("a cat").input_ids[1:-1]


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda t: t(3), TypeError, "not iterable"),
        (lambda t: t(["a", 3]), TypeError, "a str or a list of str, got int at 1"),
        (lambda t: t("a", padding="most"), ValueError, "padding must be"),
        (lambda t: t("a", truncation="most"), ValueError, "truncation must be"),
        (lambda t: t("a", return_tensors="tf"), ValueError, "return_tensors must be"),
        (lambda t: t(["a", "a photo of a cat"], return_tensors="sf"), ValueError, "different lengths make no tensor"),
        (lambda t: t("a", truncation=True, max_length=1), ValueError, "room for 2 special tokens, got 1"),
        (lambda t: t("a", padding=True, padding_side="up"), ValueError, "padding_side must be 'left' or 'right'"),
        (lambda t: t("\ud800"), UnicodeEncodeError, "surrogates"),
        (lambda t: t("a", padding="max_length", max_length=10**12), ValueError, "padded length must be"),
    ],
)
def test_wrong_calls_are_refused(clip, call, error, words):
    with pytest.raises(error, match=words):
        call(clip)


def test_vocabulary(clip):
    assert len(clip) == clip.vocab_size == len(clip.get_vocab()) == 1014
    assert clip.convert_tokens_to_ids("<|endoftext|>") == clip.eos_token_id == clip.pad_token_id == 1013
    assert clip.convert_tokens_to_ids(["a</w>", "nothing like it"]) == [clip.get_vocab()["a</w>"], clip.unk_token_id]
    assert clip.convert_ids_to_tokens([1013, 5000]) == ["<|endoftext|>", None]
    assert clip.tokenize("a Cat")[0] == "a</w>"
    assert clip.all_special_ids == [1012, 1013] and clip.all_special_tokens == ["<|startoftext|>", "<|endoftext|>"]
    assert clip.add_tokens(["<cat-toy>", "<cat-toy>"]) == 1 and len(clip) == 1015 and clip.vocab_size == 1014
    assert 1014 in clip("a <cat-toy>").input_ids
    assert clip.batch_decode([clip("a cat").input_ids], skip_special_tokens=True) == ["a cat"]
    assert "model_max_length=77" in repr(clip)


def test_clips_own_vocabulary_needs_no_file(tmp_path):
    clip = CLIPTokenizer.built_in()
    assert len(clip) == clip.vocab_size == 49408 and clip.model_max_length == 77
    assert clip("a photo of a cat").input_ids == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert clip.pad_token_id == 49407 and CLIPTokenizer.built_in(pad_token="!").pad_token_id == 0
    openai = CLIPTokenizer.built_in(text_cleaning="openai")
    assert openai("&lt;").input_ids == clip("<").input_ids != clip("&lt;").input_ids
    clip.save_pretrained(tmp_path)
    assert CLIPTokenizer.from_pretrained(tmp_path).get_vocab() == clip.get_vocab()
    golden = read_json(GOLDEN / "clip.json.xz")
    for text, (ids, *_) in zip(golden["strings"], golden["results"]["full/plain"]["rows"]):
        assert clip(text).input_ids == ids


def test_saved_files_are_read_back(clip, tmp_path):
    clip.add_tokens("<cat-toy>")
    clip.save_pretrained(tmp_path / "tokenizer")
    assert {p.name for p in (tmp_path / "tokenizer").iterdir()} == {
        "vocab.json",
        "merges.txt",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }
    again = CLIPTokenizer.from_pretrained(tmp_path, subfolder="tokenizer")
    assert again.get_vocab() == clip.get_vocab() and again("A <cat-toy>!") == clip("A <cat-toy>!")
    assert CLIPTokenizer(tmp_path / "tokenizer/vocab.json", tmp_path / "tokenizer/merges.txt")("a cat") == clip("a cat")


def test_the_pad_token_of_the_config_is_used(tmp_path):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((SMALL / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "!", "model_max_length": 16}')
    tok = CLIPTokenizer.from_pretrained(tmp_path)
    assert (
        tok.pad_token_id == 0
        and tok("a", padding="max_length").input_ids[-1] == 0
        and len(tok("a", padding="max_length").input_ids) == 16
    )


def test_files_that_are_missing_or_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        CLIPTokenizer.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):
        Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="neither vocab.json and merges.txt nor tokenizer.json"):
        CLIPTokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 1, "b": 1}, "merges": []}}')
    with pytest.raises(ValueError, match="'a' and 'b' both have id 1"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_a_tokenizer_json_with_its_config(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((GOLDEN / "llama.json").read_bytes())
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "</s>",
        "padding_side": "left",
        "model_max_length": int(1e30),
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tok = Tokenizer.from_pretrained(tmp_path)
    assert tok.model_max_length == int(1e30) and tok.padding_side == "left" and tok.eos_token_id == 2
    out = tok(["the quick fox", "the"], padding=True, return_tensors="np")
    assert out.input_ids[1][0] == 2 and out.input_ids[0][0] == 1
    assert tok.decode(out.input_ids[0], skip_special_tokens=True) == "the quick fox"
    with pytest.raises(ValueError, match="needs max_length"):
        tok("a", padding="max_length")
    plain = Tokenizer.from_file(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="needs a pad token"):
        plain("a", padding=True)


def test_a_vocabulary_of_ones_own(tmp_path):
    texts = ["a photo of a cat", "a painting of a dog", "photos of cats"] * 5
    tok = train_bpe(iter(texts), vocab_size=530)
    assert len(tok) == 530 and tok.eos_token_id == 529
    assert tok.decode(tok.encode("A photo of cats"), skip_special_tokens=True) == "a photo of cats"
    assert train_bpe(reversed(texts), vocab_size=530).get_vocab() == tok.get_vocab()
    with pytest.raises(ValueError, match="vocab_size must be between 514"):
        train_bpe(texts, vocab_size=100)
