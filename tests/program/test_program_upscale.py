"""`scaffolding upscale`: files in, larger pictures out, and what cannot be."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from drawn_icons import refused

import scaffolding as sf

TEXT = {"parameters": "a red apple\nSteps: 20", "scaffolding": '{"seed": 7}', "Überschrift": "größer"}


def upscaler(**config):
    sf.manual_seed(3)
    return sf.models.RRDBNet(**({"num_feat": 16, "num_block": 1, "num_grow_ch": 16} | config)).eval()


@pytest.fixture
def folder(tmp_path):
    """A file of Real-ESRGAN's kind, and pictures."""
    sf.save({"params_ema": dict(upscaler().state_dict())}, tmp_path / "x4.pth")
    rng = np.random.default_rng(1)
    for name, channels in (("colour.png", 3), ("alpha.png", 4), ("grey.png", 1)):
        pixels = sf.tensor(rng.integers(0, 256, (channels, 20, 30)).astype(np.uint8))
        sf.io.write_image(tmp_path / name, pixels, text=TEXT)
    sf.io.write_image(tmp_path / "photo.jpg", sf.io.read_image(tmp_path / "colour.png"))
    return tmp_path


def test_pictures_lie_beside_with_what_they_say(program, folder):
    done = program(
        "upscale", *(folder / name for name in ("colour.png", "alpha.png", "photo.jpg")), "-m", folder / "x4.pth"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(folder / f"{name}_x4.png") for name in ("colour", "alpha", "photo")]
    assert "3 pictures in" in done.stderr
    model = upscaler()
    for name in ("colour", "alpha"):
        want = sf.models.upscale(model, sf.io.read_image(folder / f"{name}.png"))
        got = sf.io.read_image(folder / f"{name}_x4.png")
        assert got.shape == (4 if name == "alpha" else 3, 80, 120) and sf.equal(got, want)
        assert sf.io.image_info(folder / f"{name}_x4.png")["text"] == TEXT
    assert sf.io.image_info(folder / "photo_x4.png")["text"] == {}


def test_tiles_scale_and_other_formats(program, folder):
    common = ("-m", folder / "x4.pth", "--json")
    done = program(
        "upscale", folder / "alpha.png", *common, "-o", folder / "new/{name}-{scale}.jpg", "--scale", 3, "--tile", 16,
        "--tile-overlap", 24,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    row = json.loads(done.stdout)
    assert row["path"] == str(folder / "new/alpha-3.jpg") and (row["width"], row["height"]) == (90, 60)
    assert sf.io.read_image(row["path"]).shape == (3, 60, 90)
    tiled = program("upscale", folder / "grey.png", *common, "-o", folder / "a.png", "--tile", 16, "--tile-overlap", 24)
    whole = program("upscale", folder / "grey.png", *common, "-o", folder / "b.png", "--tile", 0)
    assert tiled.returncode == whole.returncode == 0
    a, b = (sf.io.read_image(folder / f"{name}.png") for name in "ab")
    assert a.shape == (1, 80, 120) and (a.int() - b.int()).abs().max().item() <= 1


def test_what_is_there_stays(program, folder):
    command = ("upscale", folder / "colour.png", "-m", folder / "x4.pth")
    assert program(*command).stdout.split() == [str(folder / "colour_x4.png")]
    (folder / "colour_x4.png").write_bytes(b"mine")
    assert program(*command).stdout.split() == [str(folder / "colour_x4-1.png")]
    assert (folder / "colour_x4.png").read_bytes() == b"mine"
    assert program(*command, "--force").stdout.split() == [str(folder / "colour_x4.png")]
    assert (folder / "colour_x4.png").read_bytes() == (folder / "colour_x4-1.png").read_bytes()


def test_inspect_says_what_such_a_file_is(program, folder):
    sf.save(dict(sf.models.SRVGGNetCompact(num_feat=16, num_conv=2, upscale=2).state_dict()), folder / "compact.pth")
    assert (
        "RRDBNet of 1 blocks and 16 channels, which enlarges pictures by 4"
        in program("inspect", folder / "x4.pth").stdout
    )
    said = program("inspect", folder / "compact.pth").stdout
    assert "SRVGGNetCompact of 2 convolutions and 16 channels, which enlarges pictures by 2" in said
    row = json.loads(program("inspect", folder / "x4.pth", "--json").stdout)
    assert row["upscaler"] == {"class": "RRDBNet", "scale": 4}
    sf.save({"conv_first.weight": sf.zeros(1), "body.0.rdb1.conv1.weight": sf.zeros(1)}, folder / "odd.pth")
    done = program("inspect", folder / "odd.pth")
    assert done.returncode == 0 and "RRDBNet" not in done.stdout


def test_what_cannot_be_is_said_in_a_line_before_any_work(program, folder):
    model, picture = ("-m", folder / "x4.pth"), folder / "colour.png"
    refused(program("upscale", picture), "--model: name a file")
    refused(program("upscale", picture, "-m", folder / "none.pth"), "there is no")
    refused(program("upscale", picture, "-m", picture), "colour.png")
    refused(program("upscale", folder / "none.png", *model), "there is no file")
    refused(program("upscale", folder / "x4.pth", *model), "is no PNG, JPEG or WebP")
    refused(program("upscale", picture, *model, "-o", folder / "a.bmp"), "must end in")
    refused(program("upscale", picture, *model, "-o", folder / "{seed}.png"), "{seed} is not filled in")
    refused(program("upscale", picture, *model, "-o", picture), "is the picture itself")
    refused(program("upscale", picture, folder / "grey.png", *model, "-o", folder / "a.png"), "both")
    refused(program("upscale", picture, *model, "--tile", 3), "tile must be 0")
    refused(program("upscale", picture, *model, "--dtype", "int8"), "--dtype")
    sf.save({"conv.weight": sf.zeros(3)}, folder / "other.pth")
    refused(program("upscale", picture, "-m", folder / "other.pth"), "is no file of ESRGAN or Real-ESRGAN")
    state = dict(upscaler().state_dict())
    del state["conv_last.bias"]
    sf.save(state, folder / "cut.pth")
    refused(program("upscale", picture, "-m", folder / "cut.pth"), "conv_last.bias")
    (folder / "torn.png").write_bytes(picture.read_bytes()[:200])
    refused(program("upscale", folder / "torn.png", *model), "torn.png")
    assert not list(folder.glob("*_x4.png"))


def test_ctrl_c_leaves_nothing_half_written(build_dir, folder):
    sf.save(dict(upscaler(num_feat=64, num_block=8, num_grow_ch=32).state_dict()), folder / "slow.pth")
    sf.io.write_image(folder / "large.png", sf.zeros(3, 900, 900, dtype=sf.uint8))
    process = subprocess.Popen(
        [build_dir / "scaffolding", "upscale", folder / "large.png", "-m", folder / "slow.pth", "--tile", "64"],
        stderr=subprocess.PIPE,
    )
    process.stderr.readline()  # a tile is done
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(60) == 130 and time.monotonic() - began < 30
    assert b"stopped" in process.stderr.read()
    assert sorted(p for p in os.listdir(folder) if "large" in p) == ["large.png"]
