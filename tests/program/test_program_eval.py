"""`scaffolding eval` on drawn icons: what it prints and writes, and that its figures mean something."""

import json

import pytest
from drawn_icons import refused, save_lora
from evaluations import check_sheet, draw_two_styles, evaluate, refuses_what_cannot_be, table


@pytest.fixture(scope="module")
def icons(tmp_path_factory):
    return draw_two_styles(tmp_path_factory.mktemp("icons")) / "icons.tar"


@pytest.fixture(scope="module")
def evaluated(program, model, icons, tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    save_lora(folder / "style.safetensors", 1)
    lora = ("--lora", "style:0", "--lora-dir", folder)
    return folder, evaluate(program, folder, model, "--data", icons, "--count", 4, "--steps", 2, *lora)


def test_the_report_has_every_figure(evaluated):
    report = evaluated[1]
    assert report["lora"][0]["name"] == "style" and report["lora"][0]["weight"] == 0
    assert report["icons"] == 18 and report["steps"] == 2 and report["seed"] == 0
    assert report["sets"]["train"]["pictures"] == 4 and report["sets"]["heldout_combo"]["pictures"] == 2
    assert report["pictures"] == 4 + 2 + report["background"]["pictures"] and report["background"]["pictures"] > 0
    for share in (
        report["style"],
        report["background"]["right"],
        report["white_where_none_is_named"],
        *report["sets"]["train"].values(),
    ):
        assert 0 <= share <= 4
    assert report["frechet"] > report["frechet_of_real_icons"]  # six steps of training paint noise


def test_real_icons_are_recognised_when_they_are_changed(evaluated):
    rows = {row["change"]: row for row in evaluated[1]["self_check"]["rows"]}
    assert rows["as they are"]["top1"] == 1 and rows["as they are"]["style"] == 1
    assert rows["moved by 2 pixels"]["top5"] == 1 and rows["softened (sigma 1)"]["top1"] == 1
    assert evaluated[1]["self_check"]["background"] == 1


def test_the_same_seed_gives_the_same_report(program, model, icons, evaluated):
    done = program("eval", "--model", model, "--data", icons, "--count", 4, "--steps", 2, "--json", "-q")
    again = json.loads(done.stdout)
    lora = {"lora": evaluated[1]["lora"]}  # which is on at 0
    assert {**again, **lora, "seconds": 0} == {**evaluated[1], "seconds": 0}


def test_the_sheet_shows_pictures_with_their_prompts(evaluated):
    check_sheet(evaluated[0], 8, 64)


def test_people_get_a_table_and_groups_can_be_left_out(program, model, icons):
    asked = ("--count", 2, "--steps", 1, "--splits", "train", "--left-out-groups", "red")
    shown = table(program, model, "--data", icons, *asked)
    for text in ("top-1", "background as named", "Frechet distance", "moved by 2 pixels"):
        assert text in shown


def test_one_picture_is_enough(program, model, icons):
    done = program("eval", model, "--data", icons, "--count", 1, "--steps", 1, "--splits", "train", "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["frechet"] is None


def test_evaluations_that_cannot_be_are_refused(program, model, recipe, icons, tmp_path):
    refuses_what_cannot_be(program, model, icons, "--data", icons)
    refused(program("eval", model, "--data", model / "model_index.json", "-q"), "model_index.json")
    refused(
        program("eval", model, "--data", recipe.parent / "icons.tar", "-q", "--steps", 1, "--splits", "train"),
        "two styles",
    )
    refused(program("eval", model, "--data", icons, "--sheet", tmp_path / "sheet.gif", "-q"), "--sheet: must end in")
    assert list(tmp_path.iterdir()) == []
