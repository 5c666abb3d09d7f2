"""`scaffolding serve` where what it depends on goes wrong while it runs, where limits of time are over, and its unit of
systemd."""

import os
import pathlib
import re
import resource
import subprocess
import time

import pytest
from served import installed, serving, skip_without_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
APPLE = {"prompt": "red apple, noto", "num_inference_steps": 2, "seed": 7}
LONG = {**APPLE, "num_inference_steps": 400}
ASKED = (
    ("/api/v1/jobs", APPLE, lambda b: b["error"]["message"]),
    ("/v1/images/generations", {"prompt": "red apple"}, lambda b: b["error"]["type"] and b["error"]["message"]),
    ("/sdapi/v1/txt2img", {"prompt": "red apple"}, lambda b: b["detail"]),
)


@pytest.fixture(scope="module", autouse=True)
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


@pytest.mark.parametrize("how", ["overwritten", "removed"])
def test_a_history_that_goes_is_noticed(build_dir, tmp_path, how):
    history = tmp_path / "data/history.sqlite"
    with serving(build_dir, tmp_path / "data") as server:
        done = server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])["id"]
        runs = server.post("/api/v1/jobs", LONG)[1]["id"]
        server.wait(runs, ("running",))
        whole = history.read_bytes()
        if how == "removed":
            history.rename(tmp_path / "away")
        else:
            with open(history, "r+b") as file:
                file.write(os.urandom(len(whole)))
        for path, body, message in ASKED:  # each in its own shape
            status, answer, _ = server.post(path, body)
            assert status == 500 and "its log says why" in message(answer), answer
        assert server.get("/healthz")[0] == 200
        assert server.get("/readyz")[0] == 503 and f"was {how} under the server" in server.told()
        server.request("DELETE", f"/api/v1/jobs/{runs}")  # it ends, though nothing records that
        server.wait(runs)
        if how == "removed":
            (tmp_path / "away").rename(history)
        else:
            with open(history, "r+b") as file:
                file.write(whole)
        assert server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])["state"] == "done"
        assert server.get("/readyz")[0] == 200 and server.get(f"/api/v1/jobs/{done}")[1]["state"] == "done"


def test_a_folder_that_takes_no_more_writing(build_dir, tmp_path):
    with serving(build_dir, tmp_path / "data") as server:
        runs = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 60})[1]["id"]
        server.wait(runs, ("running",))
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, hard))  # as `ulimit -f 0`
        for path, body, message in ASKED:
            got, answer, _ = server.post(path, body)
            assert got in (500, 507) and message(answer), answer
        assert server.wait(runs)["state"] in ("failed", "done") and server.get("/healthz")[0] == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])["state"] == "done"


def test_a_job_waits_for_so_long_and_no_longer(build_dir, tmp_path):
    with serving(build_dir, tmp_path / "data", "--max-waiting", 0.5, "--max-batch", 1) as server:
        runs = server.post("/api/v1/jobs", LONG)[1]["id"]
        server.wait(runs, ("running",))
        waits = server.post("/api/v1/jobs", APPLE)[1]["id"]
        status, answer, _ = server.post("/sdapi/v1/txt2img", {"prompt": "red apple"})
        assert status == 422 and "waited for longer" in answer["detail"], answer
        view = server.wait(waits)
        assert view["state"] == "failed" and "waited for longer" in view["error"], view
        assert server.get(f"/api/v1/jobs/{runs}")[1]["state"] == "running"
        server.request("DELETE", f"/api/v1/jobs/{runs}")


def test_an_address_of_a_picture_expires(build_dir, tmp_path):
    with serving(build_dir, tmp_path / "data", "--url-seconds", 2) as server:
        body = {"prompt": "red apple", "num_inference_steps": 1, "size": "64x64", "response_format": "url"}
        url = server.post("/v1/images/generations", body)[1]["data"][0]["url"]
        path = url.removeprefix(server.url)
        expires = int(re.search(r"expires=(\d+)", path)[1])
        assert server.get(path)[0] == 200 and 0 < expires - time.time() <= 2
        time.sleep(max(0, expires - time.time()) + 0.1)
        status, answer, _ = server.get(path)
        assert status == 410 and answer["error"]["code"] == "expired", answer
        assert server.get(path.replace(f"expires={expires}", f"expires={expires + 60}"))[0] == 403


def test_the_unit_of_systemd_leaves_little_open(tmp_path):
    analyze = installed("systemd-analyze", "systemd")
    unit = tmp_path / "scaffolding.service"

    def exposure(text):
        unit.write_text(text)
        command = [analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", str(unit)]
        return subprocess.run(command, capture_output=True, text=True)

    text = (ROOT / "cmake/scaffolding.service").read_text()
    done = exposure(text)
    assert done.returncode == 0 and "exposure level" in done.stdout, done.stdout + done.stderr
    assert exposure(text.replace("DynamicUser=yes\n", "").replace("CapabilityBoundingSet=\n", "")).returncode != 0
