"""txt2vid and img2vid: clips of tiny networks as files."""

import json
import os

import pytest
from drawn_icons import refused
from tiny_video import save_image_to_video, save_tora

import scaffolding as sf
from scaffolding import diffusion


@pytest.fixture(scope="module")
def tora(tmp_path_factory):
    return save_tora(tmp_path_factory.mktemp("tora"))


@pytest.fixture(scope="module")
def image_to_video(tmp_path_factory):
    return save_image_to_video(tmp_path_factory.mktemp("i2v"))


def clip(program, model, path, *arguments, command="txt2vid"):
    done = program(
        command, "a cat", "-m", model, "--steps", 2, "-s", 3, "-q", "-o", path, "--num-frames", 9, *arguments
    )
    assert done.returncode == 0, done.stderr
    return sf.io.read_video(str(path))


@pytest.mark.parametrize("name", ["a.webp", "a.gif", "frames/%04d.png", "a.mp4", "a.webm"])
def test_a_clip_is_what_the_pipeline_makes(program, tora, tmp_path, name):
    if name.endswith(("mp4", "webm")) and not sf.io.can_write_video(name):
        pytest.skip(f"unproven here: no library writes {name}")
    frames = clip(program, tora, tmp_path / name, "--fps", 12.5)
    assert tuple(frames.shape) == (9, 16, 32, 3)
    if name.endswith("png"):  # to the bit
        pipe = diffusion.ToraPipeline.from_pretrained(tora)
        pipe.set_progress_bar_config(disable=True)
        want = pipe("a cat", num_inference_steps=2, num_frames=9, seed=3, output_type="sf_tensor").frames[0]
        assert frames.tolist() == sf.stack(want, 0).tolist()


def test_clips_of_a_file_of_prompts(program, tora, tmp_path):
    lines = [{"prompt": "a dog", "fps": 4}, {"prompt": "a cat", "seed": 3, "trajectory": "2,3 30,12"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = ("-m", tora, "--steps", 2, "-q", "--num-frames", 9, "--seed", 8)
    done = program(
        "txt2vid", "--prompts", tmp_path / "p.jsonl", *options, "-o", tmp_path / "{number}-{seed}" / "%04d.png"
    )
    assert done.returncode == 0, done.stderr
    assert sf.io.read_video(str(tmp_path / "0-8/%04d.png")).shape[0] == 9
    steered = clip(program, tora, tmp_path / "alone" / "%04d.png", "--trajectory", "2,3 30,12")
    assert sf.io.read_video(str(tmp_path / "1-3/%04d.png")).tolist() == steered.tolist()
    (tmp_path / "p.jsonl").write_text('{"prompt": "a dog"}\n{"prompt": "a cat", "trajectory": "2"}')
    done = program("txt2vid", "--prompts", tmp_path / "p.jsonl", *options, "-o", tmp_path / "b{number}.webp")
    refused(done, "p.jsonl:2: ")
    assert not list(tmp_path.glob("b*"))


def test_things_follow_a_trajectory(program, tora, tmp_path):
    plain = clip(program, tora, tmp_path / "plain" / "%04d.png")
    steered = clip(program, tora, tmp_path / "steered" / "%04d.png", "--trajectory", "2,3 30,12")
    assert steered.tolist() != plain.tolist()
    points = tmp_path / "points.txt"
    points.write_text("16,48\n240,192\n")  # the same on a canvas of 256 x 256
    of_file = clip(program, tora, tmp_path / "file" / "%04d.png", "--trajectory-points", points)
    assert of_file.tolist() == steered.tolist()
    pipe = diffusion.ToraPipeline.from_pretrained(tora)
    pipe.set_progress_bar_config(disable=True)
    call = {"num_inference_steps": 2, "num_frames": 9, "output_type": "sf_tensor"}
    for trajectories in ("2,3 30,12", [(2, 3), (30, 12)], sf.tensor([[2.0, 3], [30, 12]]), points):
        frames = pipe("a cat", seed=3, trajectories=trajectories, **call).frames[0]
        assert sf.stack(frames, 0).tolist() == steered.tolist()


def test_a_picture_moves(program, image_to_video, tmp_path):
    sf.io.write_image(tmp_path / "a.png", sf.full((3, 40, 60), 200, dtype=sf.uint8))
    frames = clip(program, image_to_video, tmp_path / "a.webp", "--image", tmp_path / "a.png", command="img2vid")
    assert tuple(frames.shape) == (9, 16, 32, 3)


def test_settings_go_into_the_line_of_json(program, tora, tmp_path):
    path = tmp_path / "a.webp"
    arguments = (
        "-m",
        tora,
        "--steps",
        1,
        "-s",
        7,
        "--num-frames",
        9,
        "--trajectory",
        "2,3 30,12",
        "-o",
        path,
        "--json",
    )
    done = program("txt2vid", "a cat", *arguments)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["path"] == str(path) and (row["seed"], row["width"], row["height"]) == (7, 32, 16)
    assert row["settings"]["fps"] == 8 and row["settings"]["options"]["trajectory"] == "2,3 30,12"


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--num-frames", 6], "num_frames must be 4 k + 1, got 6; the closest are 5 and 9"),
        (["--height", 20, "--num-frames", 9], "must be divisible by 8, got height=20"),
        (["--trajectory", "2,3"], "trajectory"),
        (["--trajectory", ""], "trajectory"),
        (["--trajectory", "2,3 33,4"], "outside"),
        (["--trajectory", "; ".join(["1,1 2,2"] * 17)], "16"),
        (["--fps", 0], "--fps"),
        (["--sampler", "nosuch"], "--sampler"),
    ],
)
def test_bad_input_is_one_clear_line(program, tora, tmp_path, arguments, text):
    refused(program("txt2vid", "a cat", "-q", "-m", tora, "--steps", 1, "-o", tmp_path / "a.webp", *arguments), text)
    assert not list(tmp_path.iterdir())


def test_the_environment_names_the_model_where_none_is_named(program, tora, tmp_path):
    path, environment = tmp_path / "a.webp", os.environ | {"SF_VIDEO_MODEL": str(tora)}
    done = program("txt2vid", "a cat", "--steps", 1, "--num-frames", 9, "-q", "-o", path, env=environment)
    assert done.returncode == 0, done.stderr
    assert tuple(sf.io.read_video(str(path)).shape) == (9, 16, 32, 3)


def test_a_model_is_needed_and_one_of_pictures_is_refused(program, tora, tmp_path):
    refused(program("img2vid", "a cat", "-i", tmp_path / "a.jpg", "-o", tmp_path / "a.webp"), "no file")
    sf.io.write_image(tmp_path / "a.jpg", sf.full((3, 16, 32), 200, dtype=sf.uint8))
    refused(program("img2vid", "a cat", "-i", tmp_path / "a.jpg", "-o", tmp_path / "a.webp"), "needs a model")
    refused(program("txt2vid", "a cat", "-m", "emoji-128", "-o", tmp_path / "a.webp"), "StableDiffusionPipeline")
    refused(program("txt2vid", "a cat", "-m", tora, "-o", tmp_path / "a.png"), "a.png")
