"""`scaffolding eval` on drawn icons: the data, and a report with everything that can be asked for."""

import json

from drawn_icons import draw_icons, refused

import scaffolding as sf

HELDOUT = ("flat/red16.png", "striped/blue48.png")


def draw_two_styles(folder):
    """icons.tar: 18 icons in two styles, of which two are held out."""
    draw_icons(folder, styles=("flat", "striped"), heldout=HELDOUT)
    return folder


def evaluate(program, folder, model, *arguments):
    """The report of `eval model arguments`, which lies in the folder too, beside the sheet."""
    written = ("--sheet", folder / "sheet.png", "-o", folder / "report.json")
    done = program("eval", model, *arguments, "--json", "-q", *written)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert json.loads((folder / "report.json").read_text()) == report
    return report


def table(program, model, *arguments):
    """What people are shown."""
    done = program("eval", model, *arguments, "-q")
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_sheet(folder, columns, width):
    """That many pictures in a row, with letters under them."""
    sheet = sf.io.read_image(folder / "sheet.png")
    assert sheet.shape[2] == columns * (width + 8) + 8
    assert (sheet == 40).any().item()


def refuses_what_cannot_be(program, model, icons, *arguments):
    """Of a model of either kind: no data, and a split that the icons do not have."""
    refused(program("eval", model, "-q"), "eval: needs --data")
    refused(program("eval", model, *arguments, "--splits", "test", "-q"), "of the split 'test'")
    refused(program("eval", model, "--data", icons.parent / "none.tar", "-q"), "--data: there is no file")
