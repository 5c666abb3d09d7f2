"""txt2vid, img2vid and the server with LTX-2: clips of tiny networks, and what is heard with them."""

import json

import numpy as np
import pytest
from libav import needs_libav
from tiny_video import save_ltx2

import scaffolding as sf
from scaffolding import diffusion

SIZE = ("--height", 32, "--width", 64, "--num-frames", 9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_ltx2(tmp_path_factory.mktemp("LTX-2"))


def made(program, model, path, *arguments, command="txt2vid"):
    done = program(
        command, "a cat", "-m", model, "--steps", 2, "-s", 3, "--json", "-o", path, *SIZE, *map(str, arguments)
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def called(model, **changes):
    pipe = diffusion.LTX2Pipeline.from_pretrained(model)
    pipe.set_progress_bar_config(disable=True)
    call = {"height": 32, "width": 64, "num_frames": 9, "num_inference_steps": 2, "seed": 3, "output_type": "sf_tensor"}
    return pipe("a cat", **{**call, **changes})


def test_a_clip_and_its_sound_are_what_the_pipeline_makes(program, model, tmp_path):
    """Guidance and its rescale are the pipeline's own where nobody says."""
    row = made(program, model, tmp_path / "a" / "%04d.png")
    want = called(model)
    frames = sf.io.read_video(str(tmp_path / "a/%04d.png"))
    assert frames.tolist() == sf.stack(want.frames[0], 0).tolist()
    assert row["sound"] == str(tmp_path / "a.wav") and row["settings"]["guidance"] == 3.0
    assert row["settings"]["guidance_rescale"] == 0.7 and row["settings"]["fps"] == 24.0
    sound, rate = sf.io.load_wav(str(tmp_path / "a.wav"))
    assert rate == 24000
    np.testing.assert_allclose(sound.numpy(), want.audio[0].numpy(), atol=1 / 32767)


def test_frames_a_second_are_what_the_model_is_told(program, model, tmp_path):
    row = made(program, model, tmp_path / "a.webp", "--fps", 12, "--guidance-rescale", 0)
    sound, _ = sf.io.load_wav(row["sound"])
    want = called(model, frame_rate=12.0, guidance_rescale=0.0)
    np.testing.assert_allclose(sound.numpy(), want.audio[0].numpy(), atol=1 / 32767)
    assert sound.shape[1] > called(model).audio.shape[2]


@needs_libav
@pytest.mark.parametrize("name", ["a.mp4", "a.webm", "a.mkv"])
def test_sound_lies_in_files_that_hold_some(program, model, tmp_path, name):
    row = made(program, model, tmp_path / name)
    assert "sound" not in row and not list(tmp_path.glob("*.wav"))
    assert sf.io.read_video(row["path"]).shape == (9, 32, 64, 3)
    sound, rate = sf.io.load_audio(row["path"])
    assert rate in (24000, 48000) and sound.shape[0] == 2
    assert abs(sound.shape[1] / rate - called(model).audio.shape[2] / 24000) < 0.15


@needs_libav
def test_a_picture_begins_to_move(program, model, tmp_path):
    sf.io.write_image(str(tmp_path / "p.png"), (sf.arange(64 * 40 * 3).reshape(3, 40, 64) % 251).to(sf.uint8))
    stills = [
        sf.io.read_video(
            made(
                program, model, tmp_path / f"{crf}" / "%04d.png", "--image", tmp_path / "p.png", "--image-crf", crf,
                command="img2vid",
            )["path"]
        )
        for crf in (0, 33)
    ]  # fmt: skip
    assert all(s.shape == (9, 32, 64, 3) for s in stills) and stills[0].tolist() != stills[1].tolist()
