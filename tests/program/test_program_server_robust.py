"""`scaffolding serve` under what the world does to servers: crashes, malformed and slow clients, proxies, checkers of
its description and its metrics. SF_SERVER_KILLS makes the random ones longer (Makefile).
"""

import base64
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

import pytest
from served import Server, installed, serving, skip_without_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
APPLE = {"prompt": "red apple, noto", "num_inference_steps": 2, "seed": 7}


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


@pytest.fixture(scope="module")
def server(has_server, build_dir, tmp_path_factory):
    with serving(build_dir, tmp_path_factory.mktemp("robust") / "data") as running:
        yield running


# ---- crashes


def test_kills_lose_no_job_and_double_none(has_server, build_dir, tmp_path):
    kills = int(os.environ.get("SF_SERVER_KILLS", "5"))
    drawn = random.Random(kills)
    data, accepted, ready = tmp_path / "data", [], []
    for _ in range(kills):
        begin = time.monotonic()
        server = Server(build_dir, data)
        ready.append(time.monotonic() - begin)
        waiting = len(server.get("/api/v1/jobs?state=waiting&limit=100")[1]["jobs"])
        for _ in range(max(0, 20 - waiting)):
            accepted.append(server.post("/api/v1/jobs", {**APPLE, "seed": len(accepted)})[1]["id"])
        time.sleep(drawn.random() * 0.3)
        server.stop(signal.SIGKILL)
    with serving(build_dir, data) as server:
        ends = [server.wait(job, seconds=300) for job in accepted]
        for job in ends:
            # What ran at two crashes is set aside, and says so.
            assert job["state"] == "done" or "twice" in job["error"], job
            seeds = [job["request"]["seed"]] if job["state"] == "done" else []
            assert [p["seed"] for p in job["pictures"]] == seeds
        files = {p.name for p in (data / "pictures").iterdir()}
        assert len(files) == sum(job["state"] == "done" for job in ends)
    print(f"\n{kills} kills, {len(accepted)} jobs, ready after {max(ready):.2f} s at the longest")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB, beside which the server's log lies. Only root may mount one; where SF_TEST_INSTALLED is
    set, as in .ci/run, it is a fault if that is refused."""
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        assert not os.environ.get("SF_TEST_INSTALLED"), mounted.stderr
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_loses_nothing(has_server, build_dir, small_disk):
    with serving(build_dir, small_disk) as server:
        runs = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 60})[1]["id"]
        waits = server.post("/api/v1/jobs", APPLE)[1]["id"]
        server.wait(runs, ("running",))
        filling = os.open(small_disk / "filling", os.O_CREAT | os.O_WRONLY)
        with contextlib.suppress(OSError):
            while True:
                os.write(filling, bytes(4096))
        os.close(filling)
        for path, body, message in (
            ("/api/v1/jobs", APPLE, lambda b: b["error"]["message"]),
            ("/v1/images/generations", {"prompt": "red apple"}, lambda b: b["error"]["message"]),
            ("/sdapi/v1/txt2img", {"prompt": "red apple"}, lambda b: b["detail"]),
        ):
            status, answer, headers = server.post(path, body)
            assert status == 507 and "disk is full" in message(answer) and headers["Retry-After"], answer
        assert server.get("/healthz")[0] == 200
        deadline = time.monotonic() + 60
        while "disk is full" not in server.told():
            assert time.monotonic() < deadline, server.told()
            time.sleep(0.05)
        time.sleep(0.5)  # a picture waits for room
        states = [server.get(f"/api/v1/jobs/{job}")[1]["state"] for job in (runs, waits)]
        assert not {"failed", "done"} & set(states), states
        os.remove(small_disk / "filling")
        for job in (runs, waits):
            view = server.wait(job)
            assert view["state"] == "done" and len(view["pictures"]) == 1, view


def test_a_picture_that_cannot_be_saved_fails_its_job_alone(has_server, build_dir, tmp_path):
    with serving(build_dir, tmp_path / "data") as server:
        shutil.rmtree(tmp_path / "data" / "pictures")
        view = server.wait(server.post("/api/v1/jobs", {**APPLE, "count": 3})[1]["id"])
        assert view["state"] == "failed" and "cannot create" in view["error"] and view["pictures"] == [], view
        (tmp_path / "data" / "pictures").mkdir()
        view = server.wait(server.post("/api/v1/jobs", {**APPLE, "count": 3})[1]["id"])
        assert view["state"] == "done" and [p["seed"] for p in view["pictures"]] == [7, 8, 9]


# ---- malformed requests


def raw(server, text, timeout=10):
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as client:
        client.sendall(text)
        answer = b""
        with contextlib.suppress(OSError):
            while part := client.recv(65536):
                answer += part
        return answer


def test_what_is_no_http_is_refused(server):
    for text in (
        b"GET / HTTP/1.1\r\n\r\n",  # without a Host
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(64),  # TLS
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        answer = raw(server, text)
        assert not answer or re.match(rb"HTTP/1.1 4\d\d ", answer), (text[:60], answer[:100])
    assert server.get("/healthz")[0] == 200


def test_slow_clients_harm_nobody(server):
    def resident():
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10

    for _ in range(2):  # the model is in memory, and what its networks keep from picture to picture
        assert server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])["state"] == "done"
    before = resident()
    clients = []
    try:
        for i in range(200):
            client = socket.create_connection(("127.0.0.1", server.port))
            head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nX-Slow: "
            client.sendall(head + b"a" * i)
            clients.append(client)
        begin = time.monotonic()
        assert server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])["state"] == "done"
        times = []
        for client in clients[:100]:
            client.sendall(b"a")
            begin = time.monotonic()
            assert server.get("/healthz")[0] == 200
            times.append(time.monotonic() - begin)
        assert sorted(times)[98] < 1
        assert (resident() - before) / len(clients) < 128 << 10
    finally:
        for client in clients:
            client.close()


# ---- WebSockets


def test_events_come_by_websocket_too(server):
    job = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 4})[1]
    key = base64.b64encode(os.urandom(16)).decode()

    def upgrade(path, **headers):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        client.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        stream = client.makefile("rb")
        head = b""
        while not head.endswith(b"\r\n\r\n") and (line := stream.readline()):
            head += line
        return client, stream, head.decode()

    def messages(stream):
        while True:
            first, second = stream.read(2)
            length = second & 127
            if length == 126:
                (length,) = struct.unpack(">H", stream.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", stream.read(8))
            data = stream.read(length)
            if first & 15 == 8:
                return
            yield json.loads(data)

    client, stream, head = upgrade(job["events"] + "?previews=true")
    assert head.startswith("HTTP/1.1 101 ") and "Sec-WebSocket-Accept" in head
    client.sendall(b"\x81\x85\0\0\0\0hello")  # what a client says is let go
    events = list(messages(stream))
    client.close()
    names = [event["event"] for event in events]
    assert names[0] == "queued" and names[-1] == "done" and "step" in names
    assert any(event["data"].get("preview") for event in events)
    client, stream, _ = upgrade(f"{job['events']}?after={events[-2]['id']}")
    assert [event["id"] for event in messages(stream)] == [events[-1]["id"]]
    client.close()
    assert upgrade("/api/v1/jobs/none/events")[2].startswith("HTTP/1.1 404 ")
    assert upgrade(job["events"], Origin="http://evil.example")[2].startswith("HTTP/1.1 403 ")
    long = server.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 100})[1]
    client, stream, head = upgrade(long["events"])
    assert head.startswith("HTTP/1.1 101 ")
    client.sendall(b"\xff\xff" + os.urandom(40))  # no frame
    client.close()
    assert server.wait(long["id"])["state"] == "done"  # a job of our API goes on


# ---- metrics and description


def samples(text):
    """Of Prometheus' text format 0.0.4, strictly: every sample has one TYPE before it, histograms are whole."""
    kinds, found, current = {}, {}, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(r"# HELP ([a-zA-Z_:][\w:]*) (.+)", line):
            assert match[1] not in kinds, "two HELPs of " + match[1]
            current = match[1]
        elif match := re.fullmatch(r"# TYPE ([a-zA-Z_:][\w:]*) (counter|gauge|histogram)", line):
            assert match[1] == current and match[1] not in kinds
            kinds[match[1]] = match[2]
        else:
            match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(\{(.*)\})? (-?[0-9.e+-]+|\+Inf|NaN)", line)
            assert match, line
            label = r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"'
            assert not match[2] or re.fullmatch(f"{label}(,{label})*", match[3]), line
            labels = dict(re.findall(label, match[3] or ""))
            name = re.sub(r"_(bucket|sum|count)$", "", match[1]) if kinds.get(current) == "histogram" else match[1]
            assert name == current, f"{line} stands below {current}"
            if kinds[name] == "counter":
                assert name.endswith("_total")
            key = (match[1], tuple(sorted(labels.items())))
            assert key not in found, f"{key} comes twice"
            found[key] = float(match[4])
    for name, kind in kinds.items():
        if kind != "histogram":
            continue
        buckets = [(dict(labels)["le"], v) for (n, labels), v in found.items() if n == name + "_bucket"]
        assert buckets[-1][0] == "+Inf" and buckets[-1][1] == found[name + "_count", ()]
        assert [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert [float(le) for le, _ in buckets] == sorted(float(le) for le, _ in buckets)
        assert (name + "_sum", ()) in found
    return found


def test_metrics_are_what_prometheus_reads(server):
    server.wait(server.post("/api/v1/jobs", APPLE)[1]["id"])
    text = server.get("/metrics")[1].decode()
    found = samples(text)
    assert found["scaffolding_pictures_total", ()] >= 1
    assert found["scaffolding_picture_steps_total", ()] >= 2
    promtool = installed("promtool", "prometheus")  # behind what is checked without it
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0 and not checked.stderr, checked.stdout + checked.stderr


def test_the_strict_parser_refuses():
    head = "# HELP a_total x\n# TYPE a_total counter\n"
    for text in (
        "a_total 1\n",
        head + "a_total 1",
        head + "a_total 1\na_total 1\n",
        head + "b_total 1\n",
        head + 'a_total{x="1} 1\n',
        "# HELP a x\n# TYPE a counter\na 1\n",
    ):
        with pytest.raises((AssertionError, KeyError)):
            samples(text)


def test_schemathesis_finds_no_failure(has_server, build_dir, tmp_path):
    pytest.importorskip("schemathesis", reason="PyPI's schemathesis is not installed")
    # Small pictures of few steps: it makes hundreds of jobs.
    limits = ("--max-steps", 1, "--max-pixels", 64 * 64, "--max-pictures", 1, "--max-queue", 100000, "--no-previews")
    with serving(build_dir, tmp_path / "data", *limits) as server:
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
        checks = "not_a_server_error,content_type_conformance,response_schema_conformance"
        command += [server.url + "/openapi.json", "--checks", checks]
        command += ["--max-examples", os.environ.get("SF_SERVER_EXAMPLES", "3"), "--seed", "1", "--no-color"]
        command += ["--phases", "fuzzing", "--suppress-health-check", "all"]
        command += ["--exclude-path-regex", "events$", "--request-timeout", "60"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert server.get("/healthz")[0] == 200


# ---- proxies


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    installed("openssl")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=pictures.example.org",
         "-keyout", folder / "key", "-out", folder / "pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as there:
        return there.getsockname()[1]


def through_tls(port, text, until=None, seconds=30):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    deadline = time.monotonic() + 10
    while True:
        try:
            plain = socket.create_connection(("127.0.0.1", port), timeout=seconds)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with context.wrap_socket(plain, server_hostname="pictures.example.org") as client:
        client.sendall(text.replace("\n", "\r\n").encode())
        answer = b""
        while part := client.recv(65536):
            answer += part
            if until and until in answer:
                break
        return answer.decode(errors="replace")


def check_proxied(server, port):
    """That a proxy passes on what the server needs: its name, bodies, events as they happen, WebSockets."""
    host = "Host: pictures.example.org\n"
    assert through_tls(port, f"GET /healthz HTTP/1.1\n{host}Connection: close\n\n").startswith("HTTP/1.1 200")
    body = json.dumps({**APPLE, "num_inference_steps": 300})
    answer = through_tls(
        port,
        f"POST /api/v1/jobs HTTP/1.1\n{host}Connection: close\nContent-Type: application/json\n"
        f"Content-Length: {len(body)}\n\n{body}",
    )
    assert answer.startswith("HTTP/1.1 202"), answer
    job = re.search(r'"url":"(/api/v1/jobs/\w+)"', answer)[1]
    begun = through_tls(port, f"GET {job}/events HTTP/1.1\n{host}\n", until=b"event: step")
    assert "event: step" in begun and server.get(job)[1]["state"] == "running"  # not held back until the end
    key = "A" * 22 + "=="
    socket_head = f"Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: {key}\n"
    upgraded = through_tls(port, f"GET {job}/events HTTP/1.1\n{host}{socket_head}\n", until=b'"event":"step"')
    assert upgraded.startswith("HTTP/1.1 101")
    server.request("DELETE", job)
    url = json.dumps({**APPLE, "response_format": "url", "size": "64x64"})
    answer = through_tls(
        port,
        f"POST /v1/images/generations HTTP/1.1\n{host}Connection: close\nContent-Type: application/json\n"
        f"Content-Length: {len(url)}\n\n{url}",
    )
    assert "https://pictures.example.org/pictures/" in answer, answer


@pytest.fixture(scope="module")
def behind(has_server, build_dir, tmp_path_factory):
    options = ("--allow-host", "pictures.example.org", "--public-url", "https://pictures.example.org")
    with serving(build_dir, tmp_path_factory.mktemp("behind") / "data", *options) as running:
        yield running


def test_nginx_as_it_is_described(behind, certificate, tmp_path):
    nginx = installed("nginx", "nginx-light")
    port = free_port()
    text = (ROOT / "cmake/scaffolding.nginx.conf").read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:7860", f"127.0.0.1:{behind.port}"),
        ("/etc/ssl/pictures.example.org.pem", str(certificate / "pem")),
        ("/etc/ssl/pictures.example.org.key", str(certificate / "key")),
    ):
        assert old in text
        text = text.replace(old, new)
    folders = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid;\nerror_log {tmp_path}/log;\ndaemon off;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}{text}}}\n"
    )
    with subprocess.Popen([nginx, "-p", str(tmp_path), "-e", str(tmp_path / "log"), "-c", str(tmp_path / "nginx.conf")],
                          stderr=subprocess.PIPE) as proxy:  # fmt: skip
        try:
            check_proxied(behind, port)
        finally:
            proxy.terminate()


def test_haproxy_as_it_is_described(behind, certificate, tmp_path):
    haproxy = installed("haproxy")
    port = free_port()
    (tmp_path / "both.pem").write_text((certificate / "pem").read_text() + (certificate / "key").read_text())
    text = (ROOT / "cmake/scaffolding.haproxy.cfg").read_text()
    for old, new in (
        ("bind :443", f"bind 127.0.0.1:{port}"),
        ("127.0.0.1:7860", f"127.0.0.1:{behind.port}"),
        ("/etc/ssl/pictures.example.org.pem", f"{tmp_path}/both.pem"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "haproxy.cfg").write_text(text)
    with subprocess.Popen([haproxy, "-db", "-f", str(tmp_path / "haproxy.cfg")],
                          stderr=open(tmp_path / "log", "w")) as proxy:  # fmt: skip
        try:
            check_proxied(behind, port)
            # One that waits behind another job is cancelled when its client leaves, and so is one that runs.
            body = {**APPLE, "num_inference_steps": 400, "size": "128x128"}
            first = behind.post("/api/v1/jobs", {**APPLE, "num_inference_steps": 400})[1]["id"]
            behind.wait(first, states=("running",))
            for over in (None, first):
                if over:
                    behind.request("DELETE", f"/api/v1/jobs/{over}")
                known = {job["id"] for job in behind.get("/api/v1/jobs?limit=100")[1]["jobs"]}
                with pytest.raises(TimeoutError):
                    text = json.dumps(body)
                    through_tls(
                        port,
                        "POST /v1/images/generations HTTP/1.1\nHost: pictures.example.org\nContent-Type: "
                        f"application/json\nContent-Length: {len(text)}\n\n{text}",
                        seconds=0.5,
                    )
                jobs = [job["id"] for job in behind.get("/api/v1/jobs?limit=100")[1]["jobs"]]
                (left,) = set(jobs) - known
                assert behind.wait(left, seconds=10)["state"] == "cancelled"
        finally:
            proxy.terminate()


def test_caddy_as_it_is_described(behind, certificate, tmp_path):
    caddy = installed("caddy")
    port = free_port()
    text = (ROOT / "cmake/scaffolding.Caddyfile").read_text()
    assert "pictures.example.org {" in text and "127.0.0.1:7860" in text
    text = text.replace(
        "pictures.example.org {", f"https://pictures.example.org:{port} {{\n\ttls {certificate}/pem {certificate}/key"
    )
    text = text.replace("127.0.0.1:7860", f"127.0.0.1:{behind.port}")
    ours = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"
    (tmp_path / "Caddyfile").write_text(ours + text)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with subprocess.Popen([caddy, "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"],
                          stderr=open(tmp_path / "log", "w"), env=env) as proxy:  # fmt: skip
        try:
            check_proxied(behind, port)
        finally:
            proxy.terminate()
