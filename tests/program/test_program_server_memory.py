"""`scaffolding serve` where memory does not suffice: fewer pictures at a time, then that job alone fails."""

import json
import os

import pytest
from served import serving, skip_without_server

APPLE = {"prompt": "red apple, noto", "num_inference_steps": 6, "seed": 7, "width": 192, "height": 192}


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


def limited(build_dir, data, megabytes):
    return serving(build_dir, data, env={**os.environ, "SF_CPU_MEMORY_LIMIT_MB": str(megabytes)})


@pytest.fixture(scope="module")
def enough_for_one(has_server, build_dir, tmp_path_factory):
    """Megabytes that suffice for a picture alone, and for little more."""
    for megabytes in range(60, 200, 4):
        with limited(build_dir, tmp_path_factory.mktemp("probe") / "data", megabytes) as server:
            if server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])["state"] == "done":
                return megabytes
    raise AssertionError("a picture takes more than 200 MB")


def test_fewer_at_a_time_and_then_one_job_fails_alone(build_dir, enough_for_one, tmp_path):
    # More at a time are tried where that was quicker: what else the machine does may say that it is not.
    for attempt in range(5):
        fewer = asked_for_too_much(build_dir, tmp_path / f"data{attempt}", enough_for_one)
        if fewer:
            break
    assert fewer and all(n < 8 for n in fewer)


def asked_for_too_much(build_dir, data, enough_for_one):
    """How many at a time a server went back to."""
    # eight at a time take 24 MB more than one; 10 leave room for pictures that are written meanwhile
    with limited(build_dir, data, enough_for_one + 10) as server:
        many = server.post("/api/v1/jobs", {**APPLE, "count": 12})[1]["id"]
        large = server.post("/api/v1/jobs", {**APPLE, "width": 1024, "height": 1024, "num_inference_steps": 1})[1]["id"]
        after = server.post("/api/v1/jobs", APPLE)[1]["id"]
        done = server.wait(many)
        assert done["state"] == "done" and len(done["pictures"]) == 12, done["error"]
        failed = server.wait(large)
        assert failed["state"] == "failed" and "out of memory" in failed["error"]
        assert server.wait(after)["state"] == "done"
        told = [json.loads(line) for line in server.told().splitlines()]
    return [x["at_a_time"] for x in told if x["event"] == "out of memory"]
