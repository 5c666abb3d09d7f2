"""`scaffolding eval` of a model of clips: what it prints and writes, and that its figures mean something."""

import json

import pytest
from drawn_icons import refused
from evaluations import check_sheet, draw_two_styles, evaluate, refuses_what_cannot_be, table
from tiny_video import save_cogvideox, save_tora

ICONS = {"smallest_icon": 10, "largest_icon": 12, "margin": 6, "background_probability": 0, "gradient_probability": 0}
SMALL = {"num_frames": 9, "height": 32, "width": 32, "icons": ICONS}


@pytest.fixture(scope="module")
def tora(tmp_path_factory):
    return save_tora(tmp_path_factory.mktemp("tora"))


@pytest.fixture(scope="module")
def icons(tmp_path_factory):
    folder = draw_two_styles(tmp_path_factory.mktemp("icons"))
    (folder / "clips.json").write_text(json.dumps({"data": {"path": "icons.tar", **SMALL}}))
    return folder


@pytest.fixture(scope="module")
def evaluated(program, tora, icons, tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    asked = ("--config", icons / "clips.json", "--count", 3, "--steps", 1)
    return folder, evaluate(program, folder, tora, *asked)


def test_the_report_has_every_figure(evaluated):
    report = evaluated[1]
    assert report["icons"] == 18 and report["steps"] == 1 and report["seed"] == 0
    assert report["frames"] == 9 and report["size"] == 32
    assert report["sets"]["train"]["clips"] == 3 and report["sets"]["heldout_combo"]["clips"] == 2
    assert report["clips"] == len(report["prompts"]) == 5 and report["seconds_of_a_clip"] > 0
    for row in report["sets"].values():
        assert row["distance"] >= 0 and row["distance_by_chance"] > 0
        assert all(0 <= row[name] <= 1 for name in ("top1", "top5", "found", "change"))


def test_real_clips_are_tracked_and_recognised(evaluated):
    real = evaluated[1]["self_check"]["rows"]["as they are"]
    assert real["distance"] < 1 < real["distance_by_chance"]
    assert real["top5"] == 1 and real["found"] == 1 and real["change"] < 0.05
    assert evaluated[1]["self_check"]["chance_top5"] == pytest.approx(5 / 9, abs=1e-3)
    assert set(evaluated[1]["self_check"]["rows"]) == {"as they are", "through the autoencoder"}


def test_the_sheet_shows_clips_with_their_prompts(evaluated):
    check_sheet(evaluated[0], 2, 5 * 32)


def test_people_get_a_table_and_styles_can_be_chosen(program, tora, icons):
    asked = ("--styles", "flat", "--splits", "train", "--count", 1, "--steps", 1)
    shown = table(program, tora, "--config", icons / "clips.json", *asked)
    for text in ("distance by chance     top-1", "top-5", "the same of real clips", "through the autoencoder"):
        assert text in shown


def test_evaluations_that_cannot_be_are_refused(program, tora, icons, tmp_path):
    refuses_what_cannot_be(program, tora, icons / "icons.tar", "--config", icons / "clips.json")
    (tmp_path / "list.json").write_text("[1]")
    refused(program("eval", tora, "--config", tmp_path / "list.json", "-q"), "must be a recipe")
    (tmp_path / "words.json").write_text('{"data": {"path": "a.tar", "num_frames": "many"}}')
    refused(program("eval", tora, "--config", tmp_path / "words.json", "-q"), "words.json: data: ")
    wrong = {"data": {"path": str(icons / "icons.tar"), **SMALL, "num_frames": 8}}
    (tmp_path / "eight.json").write_text(json.dumps(wrong))
    refused(program("eval", tora, "--config", tmp_path / "eight.json", "--steps", 1, "-q"), "num_frames must be")
    other = save_cogvideox(tmp_path / "cogvideox")
    refused(program("eval", other, "--data", icons / "icons.tar", "-q"), "is a CogVideoXPipeline, which this command")
