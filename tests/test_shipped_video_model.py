"""The model of clips that ships: a clip of a fixed seed is the stored one, whatever the instruction set; it shows what
was asked for, where it was asked for; and it is as small as was promised.

When the weights change: python tests/test_shipped_video_model.py build    writes tests/golden/shipped_clip.png again
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
from folders import ROOT, SHARED

import scaffolding as sf

MODEL = ROOT / "models/emoji-video"
REFERENCE = ROOT / "tests/golden/shipped_clip.png"  # five frames side by side
ICONS = SHARED / "emoji128/emoji128.tar"
CALL = ("rocket, noto", "--trajectory", "10,54 32,20 54,10", "--seed", "7")
SHOWN = (0, 4, 8, 12, 16)


def make_clip(build, folder, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "SF_VIDEO_MODEL"}
    command = [build / "scaffolding", "txt2vid", *CALL, "--quiet", "--output", folder / "%04d.png"]
    subprocess.run(command, check=True, env=clean | environment, stdout=subprocess.DEVNULL)
    return [folder / f"{i:04d}.png" for i in range(len(list(folder.glob("*.png"))))]


def side_by_side(frames):
    return sf.cat([sf.io.read_image(str(frames[i])) for i in SHOWN], 2)


@pytest.mark.parametrize("isa", ["avx2", "avx512", "avx512bf16"])
def test_the_clip_is_the_stored_one(build_dir, tmp_path, isa, needs_isa):
    needs_isa(isa)
    frames = make_clip(build_dir, tmp_path, SF_ISA=isa)
    assert len(frames) == 17
    ours, expected = side_by_side(frames).float(), sf.io.read_image(str(REFERENCE)).float()
    assert tuple(ours.shape) == (3, 64, 5 * 64) and ours.std().item() > 10, "the clip is one colour"
    difference = (ours - expected).abs()
    assert difference.mean().item() < 1, f"differs by {difference.mean().item():.2f} on average"


def judge(build_dir, clips):
    if not ICONS.exists():
        pytest.skip("the icons that the model is judged by are not here")
    command = [build_dir / "scaffolding", "eval", MODEL, "--config", MODEL / "train.json", "--data", ICONS]
    command += ["--splits", "train", "--count", str(clips), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["sets"]["train"]
    assert figures["distance"] <= 4 < figures["distance_by_chance"]  # pixels, medians
    assert figures["top5"] >= 0.6
    assert figures["found"] > 0.9


def test_it_shows_what_was_asked_for_where_it_was_asked_for(build_dir):
    judge(build_dir, 10)  # of more: tests/long


def test_it_is_small(build_dir):
    assert sum(path.stat().st_size for path in MODEL.rglob("*") if path.is_file()) <= 6e6


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sf.io.write_image(str(REFERENCE), side_by_side(make_clip(pathlib.Path(sys.argv[1]), pathlib.Path(made))))
    print(REFERENCE)
