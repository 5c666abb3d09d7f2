"""Textual inversion against diffusers' (tests/golden/make_golden_textual_inversion.py), its files, and what is refused.
In pictures a concept that has another word's vector draws what that word draws, to the bit.
"""

import pathlib

import numpy as np
import pytest
from hashed_weights import hashed, hashed_weight, places
from packed import read_json

import scaffolding as sf
from scaffolding.diffusion import DiffusionPipeline, StableDiffusionPipeline
from scaffolding.safetensors.torch import save_file

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = read_json(ROOT / "tests/golden/textual_inversion.json.xz")
WIDTH = GOLDEN["config"]["hidden_size"]


class Texts(DiffusionPipeline):
    """A tokenizer and a tiny text encoder alone."""

    _components = ()

    def __init__(self, tokenizer, text_encoder):
        self.tokenizer, self.text_encoder = tokenizer, text_encoder

    def _text_parts(self, tokenizer, text_encoder):
        return [(tokenizer or self.tokenizer, text_encoder or self.text_encoder)]


def texts(dtype=None, **config):
    encoder = sf.models.CLIPTextModel(**{**GOLDEN["config"], **config})
    encoder.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in encoder.state_dict().items()})
    return Texts(sf.tokenizers.CLIPTokenizer.built_in(), encoder.to(dtype or sf.float32).eval())


def table(pipe):
    return pipe.text_encoder.get_input_embeddings().weight.detach().numpy().copy()


def vectors(name, n, width=WIDTH):
    return sf.tensor(hashed(name, (n, width)))


def concept(stage):
    found = vectors(stage["load"], stage["vectors"])
    if stage["format"] == "webui":
        return {"string_to_token": {"*": 265}, "string_to_param": {"*": found}, "name": stage["load"], "step": 9}
    return found if stage["format"] == "tensor" else {stage["load"]: found}


def test_concepts_come_and_go_as_in_diffusers():
    pipe = texts()
    for stage in GOLDEN["stages"]:
        if "load" in stage:
            token = stage["load"] if stage["format"] == "tensor" else None
            pipe.load_textual_inversion(concept(stage), token=token)
        else:
            pipe.unload_textual_inversion(stage["unload"])
        assert pipe.text_encoder.get_input_embeddings().weight.shape == (stage["rows"], WIDTH)
        assert pipe.text_encoder.config.vocab_size == stage["rows"] == len(pipe.tokenizer)
        for row in stage["prompts"]:
            text = pipe.maybe_convert_prompt(row["prompt"], pipe.tokenizer)
            assert text == row["converted"]
            ids = pipe.tokenizer(text, padding="max_length", max_length=77, truncation=True)["input_ids"]
            assert ids[: len(row["ids"])] == row["ids"]
            with sf.no_grad():
                hidden = pipe.text_encoder(sf.tensor([ids])).last_hidden_state.numpy().ravel()
            np.testing.assert_allclose(
                hidden[places(row["prompt"], hidden.size, 8)], row["hidden"], atol=2e-5, rtol=1e-5
            )


def test_a_token_in_other_letters_has_all_its_vectors():
    """diffusers with transformers 5 reads the first alone."""
    pipe = texts()
    pipe.load_textual_inversion(vectors("x", 3), token="EasyThing")
    for word in ("EasyThing", "easything"):
        text = pipe.maybe_convert_prompt(f"a {word}, b", pipe.tokenizer)
        assert pipe.tokenizer(text, add_special_tokens=False)["input_ids"] == [320, 49408, 49409, 49410, 267, 321]
    pipe.load_textual_inversion(vectors("y", 2), token="EasyThings")  # the longer name is another concept
    assert pipe.maybe_convert_prompt("easythings", pipe.tokenizer) == "easythings EasyThings_1"
    assert pipe.maybe_convert_prompt(["no"], pipe.tokenizer) == ["no"]


def test_files_of_diffusers_the_web_ui_and_xl(tmp_path):
    found = vectors("x", 2)
    save_file({"<x>": found}, str(tmp_path / "learned_embeds.safetensors"))
    save_file({"emb_params": found}, str(tmp_path / "neat-1.safetensors"))
    save_file({"clip_l": found, "clip_g": vectors("g", 2, 20)}, str(tmp_path / "both-xl.safetensors"))
    sf.save({"string_to_token": {"*": 265}, "string_to_param": {"*": found}, "name": "strong-1"}, tmp_path / "a.pt")
    sf.save({"<bin>": found[0]}, tmp_path / "b.bin")
    for source, token in (
        (tmp_path, "<x>"),
        (tmp_path / "neat-1.safetensors", "neat-1"),
        (tmp_path / "both-xl.safetensors", "both-xl"),
        (tmp_path / "a.pt", "strong-1"),
        (tmp_path / "b.bin", "<bin>"),
    ):
        pipe = texts()
        pipe.load_textual_inversion(str(source))
        row = pipe.tokenizer.convert_tokens_to_ids(token)
        assert row == 49408, token
        np.testing.assert_array_equal(table(pipe)[row], found[0].numpy())
    wide = texts(hidden_size=20)
    wide.load_textual_inversion(str(tmp_path / "both-xl.safetensors"), token="wide-1")
    np.testing.assert_array_equal(table(wide)[49408:], vectors("g", 2, 20).numpy())


def test_several_at_once():
    pipe = texts()
    pipe.load_textual_inversion([vectors("a", 1), {"<b>": vectors("b", 2)}], token=["<a>", "<c>"])
    pipe.load_textual_inversion(vectors("s", 2), token=["<s0>", "<s1>"])
    names = ["<a>", "<c>", "<c>_1", "<s0>", "<s1>"]
    assert pipe.tokenizer.convert_tokens_to_ids(names) == list(range(49408, 49413))
    before = table(pipe)
    with pytest.raises(ValueError, match="has a token '<s1>' already"):
        pipe.load_textual_inversion([vectors("n", 1), vectors("s", 1)], token=["<new>", "<s1>"])
    assert len(pipe.tokenizer) == 49413  # the first of the two is gone again
    np.testing.assert_array_equal(table(pipe), before)


def test_a_table_with_room_keeps_its_size():
    """T5's has more rows than its tokenizer has tokens."""
    pipe = texts(vocab_size=49420)
    before, found = table(pipe), vectors("x", 2)
    pipe.load_textual_inversion(found, token="in-there")
    np.testing.assert_array_equal(table(pipe), np.concatenate([before[:49408], found.numpy(), before[49410:]]))
    pipe.load_textual_inversion(vectors("y", 1), token="<y>")
    pipe.unload_textual_inversion("in-there")
    assert pipe.tokenizer.convert_tokens_to_ids("<y>") == 49408 and table(pipe).shape == (49420, WIDTH)
    np.testing.assert_array_equal(table(pipe)[49408], vectors("y", 1)[0].numpy())
    np.testing.assert_array_equal(table(pipe)[49411:], before[49411:])


def test_what_would_be_rounded_widens_the_table():
    pipe = texts(sf.float16)
    exact = vectors("x", 1).to(sf.float16)
    pipe.load_textual_inversion(exact, token="x-exact")
    assert pipe.text_encoder.get_input_embeddings().weight.dtype == sf.float16
    np.testing.assert_array_equal(table(pipe)[-1], exact[0].numpy())


@pytest.mark.parametrize(
    "given, options, error",
    [
        ("missing.pt", {}, RuntimeError),
        (
            {"<x>": vectors("x", 1, 8)},
            {},
            r"vectors of '<x>' are \[1, 8\], and the text encoder reads \[\*, 16\].*another model",
        ),
        (vectors("x", 1), {}, "pass token="),
        (vectors("x", 1), {"token": "photo</w>"}, "has a token 'photo</w>' already"),
        (vectors("x", 2), {"token": ["a1", "a2", "a3"]}, "a vector for each of 3 tokens"),
        ([vectors("x", 1)] * 3, {"token": ["a1", "a2"]}, "3 concepts and 2 tokens"),
        ({"a": 1}, {}, "must have tensors"),
        (vectors("x", 1), {"token": "y", "weight": 3}, TypeError),
    ],
)
def test_what_is_refused_changes_nothing(given, options, error):
    pipe = texts()
    if isinstance(error, str):
        with pytest.raises(ValueError, match=error):
            pipe.load_textual_inversion(given, **options)
    else:
        with pytest.raises(error):
            pipe.load_textual_inversion(given, **options)
    assert len(pipe.tokenizer) == pipe.text_encoder.get_input_embeddings().weight.size(0) == 49408
    with pytest.raises(ValueError, match="'never' is no token that was added"):
        pipe.unload_textual_inversion("never")


@pytest.mark.parametrize(
    "tensors, why",
    [
        ({"a": np.zeros((2, 3, 4), np.float32)}, "where \\[vectors, features\\] was expected"),
        ({"a": np.full((1, WIDTH), np.nan, np.float32)}, "NaN or infinity"),
        ({"a": np.zeros((1, WIDTH), np.int32)}, "a floating dtype"),
        ({c: np.zeros((1, WIDTH), np.float32) for c in "abcd"}, "it has 4 tensors"),
    ],
)
def test_files_that_are_none_are_named(tmp_path, tensors, why):
    save_file({k: sf.tensor(v) for k, v in tensors.items()}, str(tmp_path / "it.safetensors"))
    with pytest.raises(ValueError, match="it.safetensors: .*" + why):
        texts().load_textual_inversion(str(tmp_path / "it.safetensors"))


@pytest.mark.parametrize("syntax", ["plain", "a1111"])
def test_a_concept_draws_what_its_vectors_are(syntax):
    pipe = StableDiffusionPipeline.from_pretrained(str(ROOT / "models/emoji-128"))
    words = pipe.tokenizer("red apple", add_special_tokens=False)["input_ids"]
    table = pipe.text_encoder.get_input_embeddings().weight
    drawn = {"num_inference_steps": 2, "output_type": "np", "seed": 1, "prompt_syntax": syntax}
    expected = pipe("a red apple, noto", **drawn).images
    pipe.load_textual_inversion(table[words].detach().clone(), token="qq-fruit")
    assert pipe.tokenizer("a qq-fruit, noto", add_special_tokens=False)["input_ids"][1] == len(pipe.tokenizer) - len(
        words
    )
    np.testing.assert_array_equal(pipe("a qq-fruit, noto", **drawn).images, expected)
    pipe.unload_textual_inversion("qq-fruit")
    assert (pipe("a qq-fruit, noto", **drawn).images != expected).any()


def test_tables_of_tokens_grow_and_shrink():
    pipe = texts()
    encoder, old = pipe.text_encoder, table(pipe)
    assert encoder.resize_token_embeddings(49410).weight.shape == (49410, WIDTH)
    np.testing.assert_array_equal(table(pipe)[:49408], old)
    np.testing.assert_allclose(table(pipe)[49409], old.mean(0), atol=1e-5)
    assert encoder.resize_token_embeddings(100).num_embeddings == encoder.config.vocab_size == 100
    assert encoder.resize_token_embeddings().num_embeddings == 100
    with pytest.raises(ValueError, match="needs one row at least, got 0"):
        encoder.resize_token_embeddings(0)
