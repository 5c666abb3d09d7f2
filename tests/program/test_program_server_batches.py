"""What `scaffolding serve` makes at a time: pictures that share calls of the denoiser, LoRAs that are swapped, models
that make room for each other.
"""

import json
import shutil
import time

import pytest
from drawn_icons import save_lora
from served import serving, skip_without_server

import scaffolding as sf

APPLE = {"prompt": "red apple, noto", "num_inference_steps": 12, "seed": 7}


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


def save_pictures(server, job, folder):
    paths = []
    for picture in job["pictures"]:
        paths.append(folder / f"{job['id']}-{len(paths)}.png")
        paths[-1].write_bytes(server.get(picture["url"])[1])
    return paths


def made(server, bodies, folder):
    """The pictures of jobs that are all there at once, and what their files say of themselves."""
    # The first holds the worker until all of them wait.
    jobs = [server.post("/api/v1/jobs", body)[1]["id"] for body in bodies]
    done = [server.wait(job, seconds=120) for job in jobs]
    assert all(job["state"] == "done" for job in done), [job.get("error") for job in done]
    paths = [save_pictures(server, job, folder) for job in done]
    settings = [[json.loads(sf.io.image_info(str(p))["text"]["scaffolding"]) for p in some] for some in paths]
    return [path for some in paths for path in some], [s for some in settings for s in some]


def pixels(path):
    return sf.io.read_image(str(path)).to(sf.int32)


@pytest.fixture(scope="module")
def busy(has_server, build_dir, tmp_path_factory):
    with serving(build_dir, tmp_path_factory.mktemp("busy") / "data", "--max-batch", 4) as server:
        yield server


KINDS = [
    APPLE,
    {**APPLE, "prompt": "green frog, noto", "guidance_scale": 4.0, "seed": 1},
    {**APPLE, "sampler": "euler-a", "num_inference_steps": 9, "seed": 2},
    {**APPLE, "guidance_scale": 1.0, "seed": 3},  # half as many rows
    {**APPLE, "sampler": "dpm++2m", "count": 3, "seed": 4},
]


def test_pictures_that_share_calls_are_the_lone_ones(busy, has_server, build_dir, program, tmp_path):
    paths, settings = made(busy, KINDS, tmp_path)
    shared = [p for p, s in zip(paths, settings) if "calls" in s]
    assert len(paths) == 7 and len(shared) >= 2
    rows = {call[2] for s in settings for call in s.get("calls", [])}
    assert max(rows) >= 4  # at the least two at a time were tried
    for s in settings:
        for steps, place, of in s.get("calls", []):
            assert steps > 0 and 0 <= place < of
        assert sum(call[0] for call in s.get("calls", [])) in (0, s["steps"])
    (tmp_path / "alone").mkdir()
    with serving(build_dir, tmp_path / "lone", "--max-batch", 1) as server:
        alone, settings = made(server, KINDS, tmp_path / "alone")
        assert not any("calls" in s for s in settings)
    for one, other in zip(paths, alone):
        assert (pixels(one) - pixels(other)).abs().max().item() <= 1
    for path in shared[:3]:  # the program repeats them to the bit, beside nothing
        again = program("txt2img", "--like", path, "-o", tmp_path / "again.png", "--force")
        assert again.returncode == 0, again.stderr
        assert (pixels(tmp_path / "again.png") == pixels(path)).all().item()
        assert "calls" in json.loads(sf.io.image_info(str(tmp_path / "again.png"))["text"]["scaffolding"])


def test_what_a_file_says_of_calls_is_not_believed(busy, program, tmp_path):
    path = made(busy, [{**APPLE, "num_inference_steps": 4}], tmp_path)[0][0]
    info = sf.io.image_info(str(path))["text"]
    for calls in ([[4, 0, 10**15]], [[4, -1, 4]], [[4, 3, 4]], [[-5, 0, 4]], [[10**15, 0, 4]], [[1, 2]], "x"):
        text = {**info, "scaffolding": json.dumps({**json.loads(info["scaffolding"]), "calls": calls})}
        sf.io.write_image(str(tmp_path / "odd.png"), sf.io.read_image(str(path)), text=text)
        done = program("txt2img", "--like", tmp_path / "odd.png", "-o", tmp_path / "out.png", "--force")
        if isinstance(calls, str) or len(calls[0]) != 3:
            assert done.returncode == 2 and "'calls' of another kind" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
            assert (pixels(tmp_path / "out.png") - pixels(path)).abs().max().item() <= 1


def test_jobs_join_and_leave_while_others_go_on(busy):
    long = busy.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 80})[1]["id"]
    busy.wait(long, ["running"])
    while busy.get(f"/api/v1/jobs/{long}")[1]["step"] < 4:
        time.sleep(0.005)
    short = busy.post("/api/v1/jobs", APPLE)[1]["id"]
    running = busy.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 150})[1]["id"]
    # Where two at a time are not quicker, the short one waits for its turn; where they are, it is done before the long.
    busy.wait(short)
    assert busy.request("DELETE", f"/api/v1/jobs/{running}")[0] == 200
    assert busy.wait(running)["state"] == "cancelled"
    assert busy.wait(long, seconds=120)["state"] == "done"
    assert busy.get(f"/api/v1/jobs/{short}")[1]["state"] == "done"


def test_one_that_fails_leaves_the_others(busy):
    bad = {**APPLE, "width": 129, "height": 128}
    jobs = [busy.post("/api/v1/jobs", body)[1]["id"] for body in (APPLE, bad, {**APPLE, "seed": 8})]
    assert [busy.wait(job)["state"] for job in jobs] == ["done", "failed", "done"]


# ---- several models


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    """Of two small models, and of LoRAs for them."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("squares", "shapes"):
        shutil.copytree(model, folder / "models" / name)
    for i, name in enumerate(("ink", "oil")):
        save_lora(folder / "loras" / f"{name}.safetensors", i + 1)
    return folder


def test_loras_are_swapped_between_jobs(has_server, build_dir, folders, program, tmp_path):
    body = {"model": "squares", "prompt": "red square", "num_inference_steps": 6, "seed": 3}
    bodies = [
        {**body, "loras": {"ink": 0.8}},
        {**body, "prompt": "red square<lora:oil:0.5>"},
        body,
        {**body, "loras": {"ink": 0.8}, "seed": 4},
        {**body, "loras": {"ink": 0.3}},
    ]
    options = ("--models", folders / "models", "--lora-dir", folders / "loras")
    with serving(build_dir, tmp_path / "data", *options) as server:
        paths, _ = made(server, bodies, tmp_path)
        assert server.get("/api/v1/models")[1]["loras"] == ["ink", "oil"]
        loads = [line for line in map(json.loads, server.told().splitlines()) if line["event"] == "model loaded"]
        assert [line["model"] for line in loads] == ["squares"]
    assert len({pixels(p).numpy().tobytes() for p in paths}) == 5
    for at, lora in ((0, "ink:0.8"), (1, "oil:0.5"), (4, "ink:0.3")):
        done = program(
            "txt2img", "red square", "--model", folders / "models/squares", "--lora-dir", folders / "loras",
            "--lora", lora, "--steps", 6, "--seed", 3, "--force", "-o", tmp_path / "one.png",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (pixels(tmp_path / "one.png") - pixels(paths[at])).abs().max().item() <= 1


def test_the_model_that_was_used_longest_ago_goes(has_server, build_dir, folders, tmp_path):
    def loaded(server):
        return {m["name"] for m in server.get("/api/v1/models")[1]["models"] if m["in_memory"]}

    def draw(server, model):
        body = {"model": model, "prompt": "red square", "num_inference_steps": 2}
        assert server.wait(server.post("/api/v1/jobs", body)[1]["id"])["state"] == "done"

    size = sum(p.stat().st_size for p in (folders / "models/squares").rglob("*") if p.is_file())
    options = ("--models", folders / "models", "--max-ram", f"{1.5 * size / 1e9:.9f}")
    with serving(build_dir, tmp_path / "one", *options) as server:
        for model in ("squares", "shapes", "squares"):
            draw(server, model)
            assert loaded(server) == {model}
    options = ("--models", folders / "models", "--max-ram", "2GiB")
    with serving(build_dir, tmp_path / "both", *options) as server:
        for model in ("squares", "shapes"):
            draw(server, model)
        assert loaded(server) == {"squares", "shapes"}


def test_a_model_is_loaded_while_another_computes(has_server, build_dir, folders, tmp_path):
    with serving(build_dir, tmp_path / "data", "--models", folders / "models") as server:
        long = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 400})[1]["id"]
        server.wait(long, ["running"])
        other = {"model": "squares", "prompt": "red square", "num_inference_steps": 2}
        waits = server.post("/api/v1/jobs", other)[1]["id"]
        urgent = server.post("/api/v1/jobs", {**other, "priority": "high"})[1]["id"]
        assert server.wait(urgent)["state"] == "done"
        assert server.get(f"/api/v1/jobs/{long}")[1]["state"] == "running"
        server.request("DELETE", f"/api/v1/jobs/{long}")
        assert server.wait(waits)["state"] == "done"


def test_a_model_whose_file_is_gone_fails_its_job_alone(has_server, build_dir, folders, model, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(model, models / "doomed")
    with serving(build_dir, tmp_path / "data", "--models", models) as server:
        shutil.rmtree(models / "doomed")
        job = server.post("/api/v1/jobs", {"model": "doomed", "prompt": "x", "num_inference_steps": 2})[1]["id"]
        assert server.wait(job)["state"] == "failed"
        assert server.wait(server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 2})[1]["id"])["state"] == "done"
