"""`scaffolding serve` from outside: our API, jobs, what survives a crash, what hostile requests come to."""

import http.client
import json
import re
import signal
import socket
import subprocess
import time

import pytest
from served import Server, serving, skip_without_server

import scaffolding as sf

APPLE = {"prompt": "red apple, noto", "num_inference_steps": 2, "seed": 7}
LONG = {**APPLE, "num_inference_steps": 400}


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


@pytest.fixture(scope="module")
def server(has_server, build_dir, tmp_path_factory):
    with serving(build_dir, tmp_path_factory.mktemp("served") / "data") as running:
        yield running


def test_a_job_becomes_the_picture_that_the_program_makes(server, program, tmp_path):
    status, job, headers = server.post("/api/v1/jobs", {**APPLE, "count": 2, "sampler": "euler-a"})
    assert status == 202 and headers["Location"] == job["url"]
    done = server.wait(job["id"])
    assert done["state"] == "done", done
    assert [p["seed"] for p in done["pictures"]] == [7, 8] and done["progress"] == 1
    for i, picture in enumerate(done["pictures"]):
        status, png, headers = server.get(picture["url"])
        assert status == 200 and headers["Content-Type"] == "image/png" and len(png) == picture["bytes"]
        (tmp_path / f"{i}.png").write_bytes(png)
    made = program(
        "txt2img", APPLE["prompt"], "--steps", 2, "--seed", 8, "--sampler", "euler-a", "-o", tmp_path / "a.png"
    )
    assert made.returncode == 0, made.stderr
    again = program("txt2img", "--like", tmp_path / "1.png", "-o", tmp_path / "b.png")
    assert again.returncode == 0, again.stderr
    one, two, three = (sf.io.read_image(str(tmp_path / name)) for name in ("1.png", "a.png", "b.png"))
    assert (one == two).all().item() and (one == three).all().item()


def test_pictures_begin_from_pictures(server, program, tmp_path):
    import base64

    picture = sf.io.read_image(str(next(iter(pngs(server, tmp_path)))))
    mask = sf.zeros(1, 128, 128, dtype=sf.uint8)
    mask[:, 32:96, 32:96] = 255
    sf.io.write_image(str(tmp_path / "mask.png"), mask)
    image, mask = (base64.b64encode((tmp_path / n).read_bytes()).decode() for n in ("in.png", "mask.png"))
    for more, task in (({}, "image-to-image"), ({"mask_image": mask}, "inpainting")):
        job = server.post("/api/v1/jobs", {**APPLE, "image": image, "strength": 0.9, **more})[1]
        assert job["request"]["task"] == task
        done = server.wait(job["id"])
        assert done["state"] == "done", done
        assert (done["pictures"][0]["width"], done["pictures"][0]["height"]) == (128, 128)
    assert picture.shape == (3, 128, 128)


def pngs(server, folder):
    done = server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])
    (folder / "in.png").write_bytes(server.get(done["pictures"][0]["url"])[1])
    yield folder / "in.png"


def test_events_tell_what_happens_and_go_on_where_they_stopped(server):
    job = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 4})[1]
    events = read_events(server, job["events"] + "?previews=true")
    names = [e["event"] for e in events]
    assert names[0] == "queued" and names[-1] == "done" and "step" in names and names.count("picture") == 1
    ids = [int(e["id"]) for e in events]
    assert ids == sorted(ids)
    later = read_events(server, job["events"], {"Last-Event-ID": events[-2]["id"]})
    assert [e["id"] for e in later] == [events[-1]["id"]]


def test_one_stream_tells_of_all_jobs(server):
    def listen(jobs=1, after=""):
        """Events until so many jobs are over."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/v1/events?previews=true", headers={"Last-Event-ID": after} if after else {})
        answer, events, event = connection.getresponse(), [], {}
        while True:
            line = answer.readline().decode().strip()
            if line:
                event.update([line.split(": ", 1)])
                continue
            event["data"] = json.loads(event["data"])
            events.append(event)
            if event["event"] == "hello":
                yield event
            jobs -= event["event"] == "done"
            event = {}
            if jobs == 0:
                connection.close()
                yield events
                return

    both = listen(2)
    assert next(both)["data"] == {"complete": False}
    ids = [server.post("/api/v1/jobs", {**APPLE, "seed": seed})[1]["id"] for seed in (1, 2)]
    events = next(both)[1:]
    numbers = [int(e["id"]) for e in events]
    assert numbers == sorted(set(numbers)) and {e["data"]["job"] for e in events} == set(ids)
    assert any("preview" in e["data"] for e in events if e["event"] == "step")
    again = listen(1, events[-2]["id"])
    assert next(again)["data"] == {"complete": True}
    assert [e["id"] for e in next(again)[1:]] == [events[-1]["id"]]
    for unknown in ("17", str(numbers[-1] + 10**6), "x"):
        assert next(listen(1, unknown))["data"] == {"complete": False}


def test_pictures_have_thumbnails(server, tmp_path):
    asked = {**APPLE, "width": 512, "height": 256, "num_inference_steps": 1}
    job = server.wait(server.post("/api/v1/jobs", asked)[1]["id"])
    status, small, headers = server.get(job["pictures"][0]["url"] + "/thumbnail")
    assert status == 200 and headers["Content-Type"] == "image/webp" and "immutable" in headers["Cache-Control"]
    (tmp_path / "a.webp").write_bytes(small)
    assert sf.io.read_image(str(tmp_path / "a.webp")).shape == (3, 128, 256)
    page = server.get("/api/v1/pictures?limit=1&words=appl")[1]
    assert page["pictures"][0]["job"] == job["id"] and page["pictures"][0]["prompt"] == APPLE["prompt"]
    assert page["total"] >= 1 and server.get("/api/v1/pictures?limit=501")[0] == 422


def read_events(server, path, headers=None):
    status, text, got = server.get(path, headers=headers)
    assert status == 200 and got["Content-Type"] == "text/event-stream"
    return [dict(line.split(": ", 1) for line in e.splitlines()) for e in text.decode().strip().split("\n\n")]


def test_a_running_job_stops_within_a_step_and_a_waiting_one_at_once(server):
    runs = server.post("/api/v1/jobs", LONG)[1]["id"]
    waits = server.post("/api/v1/jobs", {**LONG, "width": 192})[1]["id"]  # of another size: it cannot join
    server.wait(runs, ["running"])
    assert server.get(f"/api/v1/jobs/{waits}")[1]["queue_place"] == 0
    status, view, _ = server.request("DELETE", f"/api/v1/jobs/{waits}")
    assert status == 200 and view["state"] == "cancelled"
    begin = time.monotonic()
    server.request("DELETE", f"/api/v1/jobs/{runs}")
    assert server.wait(runs)["state"] == "cancelled" and time.monotonic() - begin < 5


def test_an_urgent_job_overtakes_one_that_runs(server):
    slow = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 30})[1]["id"]
    server.wait(slow, ["running"])
    fast = server.post("/api/v1/jobs", {**APPLE, "priority": "high"})[1]["id"]
    assert server.wait(fast)["state"] == "done"
    assert server.get(f"/api/v1/jobs/{slow}")[1]["state"] == "running"
    done = server.wait(slow)
    alone = server.wait(server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 30})[1]["id"])
    assert picture_of(server, done) == picture_of(server, alone)


def test_an_overtaken_job_is_cancelled_at_once(server):
    slow, fast = (server.post("/api/v1/jobs", {**LONG, "priority": p})[1]["id"] for p in ("normal", "high"))
    server.wait(fast, ["running"])
    server.request("DELETE", f"/api/v1/jobs/{slow}")
    assert server.wait(slow)["state"] == "cancelled" and server.get(f"/api/v1/jobs/{fast}")[1]["state"] == "running"
    server.request("DELETE", f"/api/v1/jobs/{fast}")
    assert server.wait(fast)["state"] == "cancelled"


def picture_of(server, job):
    return server.get(job["pictures"][0]["url"])[1]


def test_a_client_that_waits_and_leaves_cancels_its_job(server):
    body = json.dumps({"prompt": "red apple", "steps": 400, "width": 128, "height": 128})
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            b"POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        deadline = time.monotonic() + 20
        while not (running := jobs_of(server, "running")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(running) == 1
    assert server.wait(running[0]["id"])["state"] == "cancelled"


def jobs_of(server, state):
    return server.get(f"/api/v1/jobs?state={state}")[1]["jobs"]


def test_a_key_makes_one_job(server):
    first = server.post("/api/v1/jobs", APPLE, headers={"Idempotency-Key": "k1"})[1]
    again = server.post("/api/v1/jobs", APPLE, headers={"Idempotency-Key": "k1"})[1]
    assert first["id"] == again["id"]
    status, body, _ = server.post("/api/v1/jobs", {**APPLE, "prompt": "other"}, headers={"Idempotency-Key": "k1"})
    assert status == 409 and "another request" in body["error"]["message"]


def test_jobs_are_found_by_their_words(server):
    job = server.post("/api/v1/jobs", {**APPLE, "prompt": "a quite singular zeppelin"})[1]["id"]
    found = server.get("/api/v1/jobs?words=zeppelin%20singular")[1]["jobs"]
    assert [j["id"] for j in found] == [job]
    picture = server.wait(job)["pictures"][0]
    assert server.request("PATCH", picture["url"], {"favourite": True})[1]["favourite"]
    assert server.request("DELETE", picture["url"])[0] == 204 and server.get(picture["url"])[0] == 404


@pytest.mark.parametrize(
    "body, words",
    [
        ({**APPLE, "model": "none-such"}, "model: there is no 'none-such'"),
        ({**APPLE, "model": "/etc/passwd"}, "model: there is no"),
        ({**APPLE, "sampler": "eulr"}, "sampler: there is no 'eulr'"),
        ({**APPLE, "width": 4}, "width: must be from 8"),
        ({**APPLE, "width": 16000, "height": 16000}, "at most"),
        ({**APPLE, "num_inference_steps": 1e6}, "num_inference_steps: must be from 1"),
        ({**APPLE, "promt": "x"}, "did you mean 'prompt'?"),
        ({**APPLE, "image": "no base64!"}, "image: must be base64"),
        ({**APPLE, "image": "aGVsbG8="}, "image"),
        ({**APPLE, "image": "http://127.0.0.1/x.png"}, "not fetched"),
        ({**APPLE, "mask_image": "aGVsbG8="}, "mask_image: needs an image"),
        ({**APPLE, "prompt": "<lora:none:0.8>"}, "lora: there is no 'none'"),
        ({**APPLE, "count": 10**9}, "count: must be from 1"),
        ({**APPLE, "seed": -1}, "seed: must be from 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(server, body, words):
    status, answer, _ = server.post("/api/v1/jobs", body)
    assert status == 422 and words in answer["error"]["message"], answer


def test_what_only_the_pipeline_knows_is_told_in_its_sentence(server):
    done = server.wait(server.post("/api/v1/jobs", {**APPLE, "width": 129, "height": 128})[1]["id"])
    assert done["state"] == "failed" and "129" in done["error"], done
    assert server.get("/readyz")[0] == 200


def test_hostile_requests_leave_it_up(server):
    import base64
    import zlib

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    size = (100000).to_bytes(4, "big")
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + size + b"\x08\x02\0\0\0") + chunk(b"IDAT", zlib.compress(bytes(9)))
    )
    hostile = [
        b"",
        b"{",
        b'{"prompt":' + b"[" * 200000,
        b'{"prompt": "a", "seed": NaN}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "a", "seed": 1e999}',
        json.dumps({"prompt": "a" * 1_000_000}).encode(),
        json.dumps({**APPLE, "image": base64.b64encode(bomb).decode()}).encode(),
        json.dumps([APPLE]).encode(),
    ]
    for path in ("/api/v1/jobs", "/v1/images/generations", "/v1/images/edits", "/sdapi/v1/img2img"):
        for body in hostile[1:]:
            status, answer, _ = server.request("POST", path, body, {"Content-Type": "application/json"})
            assert 400 <= status < 500 and ("error" in answer or "detail" in answer), (path, body[:40], status)
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    for body in (b"", b"--x", b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nno end'):
        assert server.request("POST", "/v1/images/edits", body, form)[0] == 400
    for path in ("/../../etc/passwd", "/api/v1/pictures/..%2f..%2fsecret", "/pictures/x.png?expires=1&signature=2"):
        assert server.get(path)[0] in (403, 404)
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert server.post("/api/v1/jobs", APPLE, headers=headers)[0] == 403
    assert server.post("/api/v1/jobs", json.dumps(APPLE), headers={"Content-Type": "text/plain"})[0] == 415
    assert server.get("/healthz")[0] == 200


def test_metrics_and_description(server):
    text = server.get("/metrics")[1].decode()
    assert "scaffolding_jobs_total" in text and "scaffolding_step_seconds_bucket" in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .*|\w+(\{[^}]*\})? [0-9.e+-]+", line), line
    described = server.get("/openapi.json")[1]
    assert described["openapi"].startswith("3.1") and "/api/v1/jobs/{id}" in described["paths"]


def test_the_log_has_no_prompts(server):
    server.wait(server.post("/api/v1/jobs", {**APPLE, "prompt": "an unspeakable secret"})[1]["id"])
    lines = server.told().splitlines()
    assert all("event" in json.loads(line) for line in lines) and "unspeakable" not in server.told()


def test_tokens_keep_strangers_out_and_jobs_apart(has_server, program, build_dir, tmp_path):
    tokens = {}
    with open(tmp_path / "tokens", "w") as file:
        for name in ("anna", "bert", "root"):
            done = program("serve", "--new-token", name, *(["--admin"] if name == "root" else []))
            file.write(done.stdout)
            tokens[name] = re.search(r"is (\S{43})$", done.stderr, re.M)[1]
            assert tokens[name] not in done.stdout
    assert program("serve", "--host", "0.0.0.0", "--data", tmp_path / "d").returncode == 2
    with serving(build_dir, tmp_path / "data", "--tokens", tmp_path / "tokens", "--jobs-per-minute", 2) as server:
        as_ = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
        assert server.get("/healthz")[0] == 200
        for path, shape in (("/api/v1/jobs", "message"), ("/v1/models", "type")):
            status, body, headers = server.get(path)
            assert status == 401 and shape in body["error"] and "Bearer" in headers["WWW-Authenticate"]
        job = server.post("/api/v1/jobs", APPLE, headers=as_["anna"])[1]["id"]
        assert server.get(f"/api/v1/jobs/{job}", headers=as_["anna"])[0] == 200
        assert server.get(f"/api/v1/jobs/{job}", headers=as_["bert"])[0] == 404
        assert server.get(f"/api/v1/jobs/{job}", headers=as_["root"])[0] == 200
        assert server.get("/api/v1/jobs", headers=as_["bert"])[1]["jobs"] == []
        assert server.post("/api/v1/models/refresh", headers=as_["anna"])[0] == 403
        assert server.post("/api/v1/jobs", APPLE, headers=as_["anna"])[0] == 202
        status, _, headers = server.post("/api/v1/jobs", APPLE, headers=as_["anna"])
        assert status == 429 and int(headers["Retry-After"]) > 0
        assert server.post("/api/v1/jobs", APPLE, headers=as_["bert"])[0] == 202


def test_a_full_queue_says_when_to_come_again(has_server, build_dir, tmp_path):
    with serving(build_dir, tmp_path / "data", "--max-queue", 1, "--max-batch", 1) as server:
        server.wait(server.post("/api/v1/jobs", LONG)[1]["id"], ["running"])
        assert server.post("/api/v1/jobs", LONG)[0] == 202
        status, body, headers = server.post("/api/v1/jobs", LONG)
        assert status == 429 and headers["Retry-After"] and body["error"]["code"] == "queue_full"
        for job in jobs_of(server, "waiting") + jobs_of(server, "running"):
            server.request("DELETE", job["url"])


def test_kill_9_loses_no_job_and_doubles_none(has_server, build_dir, tmp_path):
    data = tmp_path / "data"
    accepted = []
    for round_ in range(3):
        server = Server(build_dir, data)
        accepted += [server.post("/api/v1/jobs", {**APPLE, "seed": 100 * round_ + i})[1]["id"] for i in range(4)]
        time.sleep(0.1 * round_)
        server.stop(signal.SIGKILL)
    with serving(build_dir, data) as server:
        ends = [server.wait(job) for job in accepted]
        assert len({job["id"] for job in ends}) == 12
        # What ran at two of the three crashes is set aside, and says so.
        assert all(j["state"] == "done" or "twice" in j["error"] for j in ends)
        assert sum(j["state"] == "done" for j in ends) >= 10
        for job in ends:
            if job["state"] == "done":
                assert [p["seed"] for p in job["pictures"]] == [job["request"]["seed"]]
        assert len(list((data / "pictures").iterdir())) == sum(len(j["pictures"]) for j in ends)


def test_sigterm_lets_the_running_job_end_and_keeps_the_waiting(has_server, build_dir, tmp_path):
    data = tmp_path / "data"
    server = Server(build_dir, data, "--drain", 120)
    runs = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 8})[1]["id"]
    waits = server.post("/api/v1/jobs", APPLE)[1]["id"]
    server.wait(runs, ["running", "done"])
    assert server.stop() == 0
    with serving(build_dir, data) as server:
        assert server.get(f"/api/v1/jobs/{runs}")[1]["state"] == "done"
        assert server.wait(waits)["state"] == "done"
        second = subprocess.run(
            [str(build_dir / "scaffolding"), "serve", "--port", "0", "--data", str(data)],
            capture_output=True,
            text=True,
        )
        assert second.returncode == 2 and "another server" in second.stderr
