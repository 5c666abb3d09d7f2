"""`--embedding`: a concept's file draws what its vectors are, is said in the picture, and is repeated by --like."""

import json
import pathlib

import pytest
from PIL import Image

import scaffolding as sf
from scaffolding.safetensors.torch import save_file

MODEL = pathlib.Path(__file__).parents[2] / "models/emoji-128"
DRAWN = ["--model", MODEL, "--steps", "2", "--seed", "3", "--output"]


@pytest.fixture(scope="module")
def concept(tmp_path_factory):
    pipe = sf.diffusion.StableDiffusionPipeline.from_pretrained(str(MODEL))
    ids = pipe.tokenizer("red apple", add_special_tokens=False)["input_ids"]
    file = tmp_path_factory.mktemp("concept") / "qq-fruit.safetensors"
    save_file({"emb_params": pipe.text_encoder.get_input_embeddings().weight[ids].detach().clone()}, str(file))
    return file


def pixels(path):
    return Image.open(path).convert("RGB").tobytes()


@pytest.mark.parametrize("syntax, word", [("plain", "zz-9"), ("a1111", "QQ-Fruit")])
def test_a_concept_is_drawn_by_its_name(program, concept, tmp_path, syntax, word):
    ordinary, made = tmp_path / "a.png", tmp_path / "b.png"
    done = program("txt2img", "a red apple, noto", *DRAWN, ordinary, "--prompt-syntax", syntax)
    assert done.returncode == 0, done.stderr
    named = concept if word.lower() == concept.stem else f"{concept}:{word}"
    done = program("txt2img", "--embedding", named, f"a {word}, noto", *DRAWN, made, "--prompt-syntax", syntax)
    assert done.returncode == 0, done.stderr
    assert pixels(made) == pixels(ordinary)
    said = json.loads(Image.open(made).text["scaffolding"])
    assert said["embedding"] == [str(named)]
    again = program("txt2img", "--like", made, "--output", tmp_path / "again.png")
    assert again.returncode == 0 and pixels(tmp_path / "again.png") == pixels(made), again.stderr
    other = program("txt2img", f"a {word}, noto", *DRAWN, tmp_path / "c.png", "--prompt-syntax", syntax)
    assert other.returncode == 0 and pixels(tmp_path / "c.png") != pixels(made)


def test_what_is_no_concept_is_refused(program, concept, tmp_path):
    def refused(*arguments):
        done = program("txt2img", "a cat", *DRAWN, tmp_path / "no.png", *arguments)
        assert done.returncode == 2 and not (tmp_path / "no.png").exists(), done.stderr
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "--embedding: there is no file 'gone.pt'" in refused("--embedding", "gone.pt")
    save_file({"<x>": sf.zeros(2, 7)}, str(tmp_path / "small.safetensors"))
    assert "the vectors of 'small' are [2, 7], and the text encoder reads [*, " in refused(
        "--embedding", tmp_path / "small.safetensors"
    )
    assert "has a token 'qq-fruit' already" in refused("--embedding", concept, "--embedding", concept)
    assert "--embedding FILE takes a concept" in refused("--embd-dir", tmp_path)
    (tmp_path / "lines.jsonl").write_text(json.dumps({"prompt": "a", "embedding": "x.pt"}) + "\n")
    assert "--embedding is of the whole run" in refused("--prompts", tmp_path / "lines.jsonl")
