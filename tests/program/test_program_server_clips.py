"""`scaffolding serve`: clips by our API, with tiny random networks: their formats, trajectories and previews, and jobs
that are given up while their frames are decoded."""

import base64
import io
import json
import time
import zipfile

import pytest
from served import serving, skip_without_server
from tiny_video import save_image_to_video, save_tora

import scaffolding as sf

CLIP = {"model": "tora", "prompt": "a cat", "num_inference_steps": 2, "num_frames": 9, "seed": 3}


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_tora(folder / "tora")
    save_image_to_video(folder / "i2v")
    return folder


@pytest.fixture(scope="module")
def server(has_server, build_dir, models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with serving(build_dir, folder / "data", "--models", models, "--max-frames", 2001) as running:
        yield running


def made(server, fields):
    """(the picture's row, the file's bytes) of a job that is done."""
    status, job, _ = server.post("/api/v1/jobs", fields)
    assert status == 202, job
    done = server.wait(job["id"])
    assert done["state"] == "done", done
    (row,) = done["pictures"]
    status, body, headers = server.get(row["url"])
    assert status == 200 and headers["Content-Type"] == row["type"] and len(body) == row["bytes"]
    return row, body


def frames_in(body):
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return [sf.io.decode_image(archive.read(n)).tolist() for n in archive.namelist()]


def failed(server, fields):
    """What a job that is refused, or fails, says."""
    status, job, _ = server.post("/api/v1/jobs", fields)
    return job["error"]["message"] if status != 202 else server.wait(job["id"])["error"]


@pytest.mark.parametrize("name, kind", [("webp", "image/webp"), ("gif", "image/gif"), ("mp4", "video/mp4")])
def test_a_clip_in_each_format(server, tmp_path, name, kind):
    if name == "mp4" and not sf.io.can_write_video("a.mp4"):
        assert "format: " in failed(server, {**CLIP, "format": name})
        return
    row, body = made(server, {**CLIP, "format": name, "fps": 12.5})
    assert row["type"] == kind and (row["frames"], row["width"], row["height"]) == (9, 32, 16)
    (tmp_path / f"a.{name}").write_bytes(body)
    assert tuple(sf.io.read_video(str(tmp_path / f"a.{name}")).shape) == (9, 16, 32, 3)


def test_webp_is_the_usual_format_and_frames_say_how_they_were_made(server, program, models, tmp_path):
    assert made(server, CLIP)[0]["type"] == "image/webp"
    _, body = made(server, {**CLIP, "format": "png", "trajectory": "2,3 30,12"})
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        text = sf.io.image_info(archive.read("0000.png"))["text"]
        settings = json.loads(text["comment"])
    assert text["title"] == "a cat" and settings["command"] == "txt2vid" and settings["fps"] == 8
    options = ("--steps", 2, "-s", 3, "-q", "--num-frames", 9, "--trajectory", settings["options"]["trajectory"])
    options += ("-g", settings["guidance"])
    done = program("txt2vid", "a cat", "-m", models / "tora", *options, "-o", tmp_path / "%04d.png")
    assert done.returncode == 0, done.stderr
    want = sf.io.read_video(str(tmp_path / "%04d.png")).permute(0, 3, 1, 2)
    assert frames_in(body) == want.tolist()


def test_trajectories_in_every_form_are_one_clip(server):
    forms = [
        {"trajectory": "2,3 30,12; 4,4 8,8"},
        {"trajectory": ["2,3 30,12", "4,4 8,8"]},
        {"trajectory": [[[2, 3], [30, 12]], [[4, 4], [8, 8]]]},
        {"trajectory": "2,3 30,12", "trajectory_points": "32,64\n64,128\n"},
    ]
    clips = [frames_in(made(server, {**CLIP, "format": "png", **form})[1]) for form in forms]
    assert all(clip == clips[0] for clip in clips)
    assert frames_in(made(server, {**CLIP, "format": "png"})[1]) != clips[0]


def test_points_are_no_names_of_files(server, tmp_path):
    (tmp_path / "points.txt").write_text("16,48\n240,192\n")
    said = failed(server, {**CLIP, "trajectory_points": str(tmp_path / "points.txt")})
    assert "trajectory_points" in said and "number" in said


def test_a_picture_moves(server):
    image = base64.b64encode(sf.io.encode_image(sf.full((3, 40, 60), 200, dtype=sf.uint8), "png")).decode()
    row, _ = made(server, {**CLIP, "model": "i2v", "image": image})
    assert (row["frames"], row["width"], row["height"]) == (9, 32, 16)
    assert "image: a CogVideoXImageToVideoPipeline needs one" in failed(server, {**CLIP, "model": "i2v"})


def test_a_preview_is_the_first_frame(server):
    job = server.post("/api/v1/jobs", {**CLIP, "num_inference_steps": 4})[1]
    _, text, _ = server.get(job["events"] + "?previews=true")
    data = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: ")]
    previews = [d["preview"] for d in data if "preview" in d]
    assert previews and tuple(sf.io.decode_image(base64.b64decode(previews[0])).shape) == (3, 4, 8)


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"num_frames": 6}, "num_frames must be 4 k + 1"),
        ({"num_frames": 4001}, "num_frames: at most 2001"),
        ({"format": "avi"}, "format"),
        ({"format": "gif", "fps": 200}, "fps: must be from 0.01 to 100"),
        ({"trajectory": "2,3"}, "trajector"),
        ({"trajectory": "2,3 99,3"}, "outside"),
        ({"trajectory": [[2, "a"]]}, "trajectory"),
        ({"hires": 2.0}, "hires"),
        ({"model": "emoji-128", "format": "webp", "num_frames": None}, "pictures, which are png"),
        ({"model": "emoji-128", "num_frames": 9}, "num_frames: a StableDiffusionPipeline does not take it"),
        ({"model": "emoji-128", "num_frames": None, "fps": 9}, "makes no clips"),
    ],
)
def test_what_cannot_be_is_said(server, fields, text):
    assert text in failed(server, {**CLIP, **fields})


def test_other_programs_apis_have_no_clips(server):
    assert "tora" not in json.dumps(server.get("/v1/models")[1]) + json.dumps(server.get("/sdapi/v1/sd-models")[1])
    status, error, _ = server.post("/v1/images/generations", {"model": "tora", "prompt": "a cat"})
    assert status == 400 and "makes clips" in error["error"]["message"]
    settings = {"override_settings": {"sd_model_checkpoint": "tora"}}
    status, error, _ = server.post("/sdapi/v1/txt2img", {"prompt": "a cat", **settings})
    assert status == 422 and "makes clips" in json.dumps(error)
    rows = {m["name"]: m for m in server.get("/api/v1/models")[1]["models"]}
    assert rows["tora"]["makes_clips"] and not rows["emoji-128"]["makes_clips"]


def decoding(server, frames):
    """A job whose chunks of frames are being decoded, and the connection that hears of it."""
    job = server.post("/api/v1/jobs", {**CLIP, "num_inference_steps": 1, "num_frames": frames})[1]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told = server.get(f"/api/v1/jobs/{job['id']}")[1]
        if told["decoded"] > 0:
            return job["id"], told
        assert told["state"] in ("waiting", "running"), told
        time.sleep(0.002)
    raise AssertionError("it was never decoded")


def test_a_cancelled_job_ends_between_chunks_of_frames(server):
    job, told = decoding(server, 1601)
    assert told["decoded"] < 0.5, "too quick to see it end"
    server.request("DELETE", f"/api/v1/jobs/{job}")
    done = server.wait(job)
    assert done["state"] == "cancelled" and done["pictures"] == [] and done["decoded"] < 1
    assert not list((server.data / "pictures").glob("*.part*"))


def test_a_job_that_takes_too_long_ends_between_chunks_of_frames(has_server, build_dir, models, tmp_path):
    with serving(build_dir, tmp_path / "data", "--models", models, "--max-frames", 65535, "--max-seconds", 1) as server:
        job = server.post("/api/v1/jobs", {**CLIP, "num_inference_steps": 1, "num_frames": 6401})[1]["id"]
        done = server.wait(job)
        assert done["state"] == "failed" and "longer than this server lets it" in done["error"]
