"""A picture of the shipped model for a fixed seed is the stored one, whatever the instruction set.

When the weights change: python tests/test_shipped_model.py build      writes tests/golden/shipped_model.png again
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests/golden/shipped_model.png"
PROMPT = ("red apple, fluent 3d, on a blue background", "--steps", "20", "--seed", "7")

pytestmark = pytest.mark.skipif(
    not (ROOT / "models/emoji-128/model_index.json").exists(), reason="models/emoji-128 has no weights yet"
)


def make_picture(build, path, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "SF_MODEL"}
    subprocess.run(
        [build / "scaffolding", "txt2img", *PROMPT, "--output", path, "--force", "--quiet"],
        check=True,
        env=clean | environment,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("isa", ["avx2", "avx512", "avx512bf16"])
def test_the_picture_is_the_stored_one(build_dir, tmp_path, isa, needs_isa):
    sf = pytest.importorskip("scaffolding")
    needs_isa(isa)
    assert REFERENCE.exists(), f"{REFERENCE} is missing: python tests/test_shipped_model.py {build_dir}"
    make_picture(build_dir, tmp_path / "a.png", SF_ISA=isa)
    picture, expected = (sf.io.read_image(str(path)).float() for path in (tmp_path / "a.png", REFERENCE))
    assert tuple(picture.shape) == (3, 128, 128) and picture.std().item() > 10, "the picture is one colour"
    difference = (picture - expected).abs()
    assert (
        difference.mean().item() < 1 and difference.max().item() <= 32
    ), f"differs by {difference.mean().item():.2f} on average"


def test_as_one_file_it_draws_the_same(build_dir, tmp_path):
    """convert puts configs and tokenizer into the file, and nothing else is needed."""
    sf = pytest.importorskip("scaffolding")
    one = tmp_path / "one.safetensors"
    subprocess.run([build_dir / "scaffolding", "convert", ROOT / "models/emoji-128", one], check=True)
    pictures = []
    for model in (ROOT / "models/emoji-128", one):
        command = [build_dir / "scaffolding", "txt2img", PROMPT[0], "--steps", "2", "--seed", "7", "--quiet"]
        path = tmp_path / f"{len(pictures)}.png"
        subprocess.run([*command, "-m", model, "-o", path], check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        pictures.append(sf.io.read_image(str(path)))
    assert (pictures[0] == pictures[1]).all().item()


if __name__ == "__main__":
    make_picture(pathlib.Path(sys.argv[1]).resolve(), REFERENCE)
    print(REFERENCE)
