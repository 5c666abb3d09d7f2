"""What is there stays: names get a number, --force replaces, and two commands at a time never write one file."""

import json
import os
import subprocess

import pytest
from drawn_icons import refused
from tiny_video import save_tora

import scaffolding as sf


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def draw(program, model, tmp_path):
    def run(*arguments, command="txt2img", ok=True):
        done = program(command, "square", "-m", model, "--steps", 2, *arguments, cwd=tmp_path)
        assert not ok or done.returncode == 0, done.stderr
        return done

    return run


def test_a_picture_that_is_there_stays(draw, tmp_path):
    said = [draw("-o", "cat.png", "--seed", seed, "-q").stdout for seed in (1, 2, 3)]
    assert said == ["cat.png\n", "cat-1.png\n", "cat-2.png\n"] and listing(tmp_path) == sorted(s.strip() for s in said)
    text = [sf.io.image_info(str(tmp_path / s.strip()))["text"]["scaffolding"] for s in said]
    assert [json.loads(t)["seed"] for t in text] == [1, 2, 3]
    done = draw("-o", "cat.png", "--seed", 4)
    assert done.stdout.splitlines()[-1] == "cat-3.png" and "'cat.png' is there already" in done.stderr
    assert json.loads(draw("-o", "cat.png", "--json").stdout)["path"] == "cat-4.png"


def test_force_replaces(draw, tmp_path):
    draw("-o", "cat.png", "--seed", 1, "-q")
    assert draw("-o", "cat.png", "--seed", 2, "-q", "--force").stdout == "cat.png\n"
    assert listing(tmp_path) == ["cat.png"]
    assert json.loads(sf.io.image_info(str(tmp_path / "cat.png"))["text"]["scaffolding"])["seed"] == 2


def test_names_that_lead_nowhere_are_names_too(draw, tmp_path):
    (tmp_path / "cat.png").symlink_to("nowhere.png")
    assert draw("-o", "cat.png", "-q").stdout == "cat-1.png\n"
    assert listing(tmp_path) == ["cat-1.png", "cat.png"]


def test_a_percent_sign_is_a_letter(draw):
    assert [draw("-o", "100%.png", "-q").stdout for _ in range(2)] == ["100%.png\n", "100%-1.png\n"]


def test_the_longest_names_get_numbers(draw, tmp_path):
    name = "c" * 251 + ".png"
    assert draw("-o", name, "-q").stdout == name + "\n"
    assert draw("-o", name, "-q").stdout == "c" * 249 + "-1.png\n"


def test_other_commands(draw, program, model, tmp_path):
    sf.io.write_image(tmp_path / "a.png", sf.full((3, 64, 64), 90, dtype=sf.uint8))
    before = (tmp_path / "a.png").read_bytes()
    given = ("--image", "a.png", "-o", "a.png", "-q")
    assert draw(*given, command="img2img").stdout == "a-1.png\n"
    assert draw(*given, "--mask", "a.png", command="inpaint").stdout == "a-2.png\n"
    assert (tmp_path / "a.png").read_bytes() == before
    walk = ("interpolate", "a", "b", "-m", model, "--steps", 1, "--frames", 2, "-q", "-o", "walk.webp")
    said = [program(*walk, *more, cwd=tmp_path).stdout for more in ((), (), ("--force",))]
    assert said == ["walk.webp\n", "walk-1.webp\n", "walk.webp\n"]
    forming = ("--save-steps", "forming.webp", "-o", "b.png", "-q")
    assert draw(*forming).stdout == "b.png\nforming.webp\n" and draw(*forming).stdout == "b-1.png\nforming-1.webp\n"


def test_clips(program, tmp_path):
    tora = save_tora(tmp_path / "tora")
    places = tmp_path / "clips"
    places.mkdir()

    def clip(output, *more):
        call = ("txt2vid", "a", "-m", tora, "--steps", 1, "--num-frames", 9, "-q", "-o", output)
        done = program(*call, *more, cwd=places)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert [clip("a.webp"), clip("a.webp"), clip("a.webp", "--force")] == ["a.webp\n", "a-1.webp\n", "a.webp\n"]
    assert [clip("frames/%04d.png"), clip("frames/%04d.png")] == ["frames/%04d.png\n", "frames-1/%04d.png\n"]
    (places / "full").mkdir()
    (places / "full/notes.txt").write_text("kept")
    assert clip("full/%04d.png") == "full-1/%04d.png\n" and listing(places / "full") == ["notes.txt"]
    assert len(listing(places / "frames")) == len(listing(places / "frames-1")) == len(listing(places / "full-1")) == 9
    assert listing(places) == ["a-1.webp", "a.webp", "frames", "frames-1", "full", "full-1"]


def test_of_commands_at_a_time_each_has_its_file(build_dir, model, tmp_path):
    call = [build_dir / "scaffolding", "txt2img", "square", "-m", model, "--steps", "1", "-q", "-o", "cat.png"]
    running = [
        subprocess.Popen([*call, "--seed", str(seed)], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for seed in range(6)
    ]
    said = {seed: run.communicate(timeout=120)[0].strip() for seed, run in enumerate(running)}
    assert sorted(said.values()) == listing(tmp_path) == ["cat-1.png", "cat-2.png", "cat-3.png", "cat-4.png",
                                                          "cat-5.png", "cat.png"]  # fmt: skip
    for seed, name in said.items():
        assert json.loads(sf.io.image_info(str(tmp_path / name))["text"]["scaffolding"])["seed"] == seed


def test_demo_makes_its_sheet_anew(program, model, tmp_path):
    (tmp_path / "prompts.txt").write_text("square\nbox\n")
    call = ("demo", "--prompts", "prompts.txt", "-m", model, "--steps", 1, "-q", "-o", "sheet")
    assert [program(*call, cwd=tmp_path).returncode for _ in range(2)] == [0, 0]
    assert listing(tmp_path / "sheet") == ["01-square.png", "02-box.png", "grid.png"]


def test_training_takes_no_folder_of_other_things(program, recipe, run_folder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("kept")
    call = ("train", "--config", recipe, "-q", "--output")
    refused(program(*call, tmp_path / "other"), "is there already and holds no run that could go on")
    refused(program(*call, run_folder / "pipeline"), "is there already and holds no run that could go on")
    assert listing(tmp_path / "other") == ["letter.txt"]
    (tmp_path / "empty").mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for folder, more in ((tmp_path / "empty", ()), (tmp_path / "other", ("--force",)), (tmp_path / "other", ())):
        done = program(*call, folder, *more, env=environment)  # the last one goes on, which takes no --force
        assert done.returncode == 0 and (folder / "pipeline/model_index.json").exists(), done.stderr
