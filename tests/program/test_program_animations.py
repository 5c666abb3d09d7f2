"""Animations: the picture forming, the walk between two prompts, and the files that they are."""

import json

import pytest
from drawn_icons import refused
from PIL import Image

import scaffolding as sf

FORMATS = [suffix for suffix in (".gif", ".webp") if sf.io.can_write_animation("a" + suffix)]


def frames_of(path):
    """What Pillow makes of an animation: uint8 [3, H, W] of each frame, its durations, and how often it plays."""
    pictures, durations = [], []
    with Image.open(path) as image:
        for i in range(image.n_frames):
            image.seek(i)
            rgb = image.convert("RGB")
            pictures.append(
                sf.tensor(list(rgb.tobytes()), dtype=sf.uint8).view(rgb.height, rgb.width, 3).permute(2, 0, 1)
            )
            durations.append(image.info["duration"])
        return pictures, durations, image.info.get("loop")


def gradients(count, size=48):
    ramp = sf.linspace(0, 255, size)
    return [
        sf.stack([ramp.expand(size, size), ramp.unsqueeze(1).expand(size, size), sf.full((size, size), 40.0 * i)]).to(
            sf.uint8
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("suffix", FORMATS)
def test_frames_times_and_loops_come_back(tmp_path, suffix):
    frames = gradients(4)
    sf.io.save_animation(tmp_path / ("a" + suffix), frames, durations=[100, 200, 50, 1500], loop=3)
    pictures, durations, loop = frames_of(tmp_path / ("a" + suffix))
    assert len(pictures) == 4 and [round(d) for d in durations] == [100, 200, 50, 1500]
    assert loop == (2 if suffix == ".gif" else 3)  # GIF counts the repetitions
    for made, frame in zip(pictures, frames):
        assert (made.float() - frame.float()).abs().mean().item() < 6
        # Averaged over 4x4 pixels, dithering is gone, and what is left is the quantiser's error.
        soft = [sf.nn.functional.avg_pool2d(x.float().unsqueeze(0), 4) for x in (made, frame)]
        assert (soft[0] - soft[1]).abs().mean().item() < 2.5


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_rate_fills_the_time_and_for_ever_is_zero(tmp_path, suffix):
    sf.io.save_animation(tmp_path / ("a" + suffix), gradients(6), fps=12)
    _, durations, loop = frames_of(tmp_path / ("a" + suffix))
    assert sum(durations) == pytest.approx(500, abs=10) and loop == 0


@pytest.mark.skipif(".gif" not in FORMATS, reason="built without giflib")
def test_a_gif_of_few_colours_is_exact(tmp_path):
    colours = sf.randint(0, 256, (3, 200), generator=sf.Generator().manual_seed(0)).to(sf.uint8)
    frame = colours[:, sf.arange(32 * 32) % 200].view(3, 32, 32)
    sf.io.save_animation(tmp_path / "a.gif", [frame, frame.flip(1)])
    pictures, _, _ = frames_of(tmp_path / "a.gif")
    assert (pictures[0] == frame).all().item() and (pictures[1] == frame.flip(1)).all().item()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"frames": []}, ValueError, "needs 1 to 65536 frames"),
        ({"frames": [sf.zeros(3, 4, 4)]}, TypeError, "must be uint8"),
        ({"frames": [sf.zeros(4, 4, 4, dtype=sf.uint8)]}, ValueError, "C = 1 or 3"),
        ({"frames": [sf.zeros(3, 4, 4, dtype=sf.uint8), sf.zeros(3, 4, 5, dtype=sf.uint8)]}, ValueError, "one size"),
        ({"fps": 0}, ValueError, "fps must be above 0"),
        ({"fps": 1001}, ValueError, "fps must be above 0"),
        ({"loop": -1}, ValueError, "loop must be 0"),
        ({"durations": [100]}, ValueError, "a duration for each"),
        ({"durations": [100, 0]}, ValueError, "durations must be 1"),
        ({"path": "a.png"}, ValueError, "must end in .gif or .webp"),
    ],
)
def test_wrong_animations_are_refused(tmp_path, arguments, error, text):
    arguments = {"path": "a.webp", "frames": gradients(2)} | arguments
    with pytest.raises(error, match=text):
        sf.io.save_animation(tmp_path / arguments.pop("path"), arguments.pop("frames"), **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not FORMATS, reason="built without libraries for animations")
def test_save_steps_shows_the_picture_forming(program, model, tmp_path):
    suffix = FORMATS[-1]
    arguments = (
        "--model",
        model,
        "--steps",
        5,
        "--seed",
        3,
        "--count",
        2,
        "--batch",
        2,
        "-o",
        tmp_path / "{seed}.png",
        "-q",
    )
    done = program("txt2img", "red square", *arguments, "--save-steps", tmp_path / f"forming-{{seed}}{suffix}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(tmp_path / name) for name in ("3.png", f"forming-3{suffix}", "4.png", f"forming-4{suffix}")
    ]
    pictures, durations, _ = frames_of(tmp_path / f"forming-4{suffix}")
    assert len(pictures) == 5 and durations[-1] >= 1500
    assert (pictures[-1].float() - sf.io.read_image(tmp_path / "4.png").float()).abs().mean().item() < 16
    before = (tmp_path / "4.png").read_bytes()
    program("txt2img", "red square", *arguments, "--force")
    assert (tmp_path / "4.png").read_bytes() == before  # looking on changes nothing


@pytest.mark.skipif(not FORMATS, reason="built without libraries for animations")
def test_interpolate_walks_from_one_prompt_to_the_other(program, model, tmp_path):
    walk = tmp_path / ("walk" + FORMATS[-1])
    arguments = ("--model", model, "--steps", 3, "--seed", 1, "--frames", 5, "--batch", 2, "-o", walk)
    done = program("interpolate", "red square", "blue square", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["frames"] == 5 and row["path"] == str(walk) and row["width"] == 64
    pictures, _, _ = frames_of(walk)
    assert len(pictures) == 5 and pictures[0].shape == (3, 64, 64)
    # The first frame is the picture that txt2img makes of the first prompt from the same noise.
    assert (
        program(
            "txt2img", "red square", "--model", model, "--steps", 3, "--seed", 1, "-o", tmp_path / "red.png", "-q"
        ).returncode
        == 0
    )
    assert (pictures[0].float() - sf.io.read_image(tmp_path / "red.png").float()).abs().mean().item() < 16
    done = program("interpolate", "red square", "red square", *arguments, "--to-seed", 2, "--back", "--force", "-q")
    assert done.returncode == 0, done.stderr
    pictures, _, _ = frames_of(walk)
    assert len(pictures) == 8 and (pictures[0] != pictures[4]).any().item()


def test_walks_that_cannot_be_are_refused(program, model, tmp_path):
    walk = tmp_path / "walk.webp"
    arguments = ("interpolate", "a", "b", "--model", model, "-q", "--steps", 2)
    refused(program(*arguments, "-o", tmp_path / "walk.png"), "--output: must end in .gif or .webp")
    refused(program(*arguments, "-o", walk, "--fps", 0), "--fps: must be above 0")
    refused(program(*arguments, "-o", walk, "--frames", 1), "--frames")
    refused(program(*arguments, "-o", walk, "--width", 100), "divisible by 8")
    refused(
        program("txt2img", "a", "--model", model, "--save-steps", tmp_path / "a.png", "-q"),
        "--save-steps: must end in .gif or .webp",
    )
    refused(
        program("txt2img", "a", "--model", model, "--preview", tmp_path / "a.gif", "-q"), "--preview: must end in .png"
    )
    assert list(tmp_path.iterdir()) == []


def test_preview_leaves_the_last_look_in_a_file(program, model, tmp_path):
    done = program(
        "txt2img",
        "square",
        "--model",
        model,
        "--steps",
        3,
        "--preview",
        tmp_path / "now.png",
        "-o",
        tmp_path / "a.png",
        "-q",
    )
    assert done.returncode == 0, done.stderr
    assert (sf.io.read_image(tmp_path / "now.png") == sf.io.read_image(tmp_path / "a.png")).all().item()
    done = program(
        "txt2img", "square", "--model", model, "--steps", 2, "--preview", "terminal", "-o", tmp_path / "a.png", "-q"
    )
    assert done.returncode == 0 and "\u2580" in done.stderr
