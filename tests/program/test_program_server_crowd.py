"""`scaffolding serve` under many clients at once who ask, watch, change their minds and leave. SF_SERVER_CLIENTS says
how many (Makefile: 64 under ThreadSanitizer)."""

import os
import random
import socket
import threading

from served import Server, skip_without_server

CLIENTS = int(os.environ.get("SF_SERVER_CLIENTS", "8"))
LISTS = ("/api/v1/jobs", "/api/v1/pictures?words=apple", "/api/v1/models", "/sdapi/v1/progress", "/metrics", "/queue")


def leave(server, body):
    """Asks for a picture, and is gone."""
    head = f"POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())


def test_a_crowd_loses_no_job(program, build_dir, tmp_path):
    skip_without_server(program, build_dir)
    server = Server(build_dir, tmp_path / "data", "--max-queue", 100000)
    made, wrong = [], []

    def client(n):
        drawn = random.Random(n)
        # Many have the smallest pictures: under a sanitizer a step takes seconds.
        pictures, steps, sizes = (4, 3, [64, 128]) if CLIENTS < 32 else (2, 1, [64])
        for i in range(pictures):
            body = {"prompt": "red apple, noto", "seed": 10 * n + i, "num_inference_steps": drawn.randint(1, steps)}
            body |= {"width": drawn.choice(sizes), "height": sizes[-1]}
            body["priority"] = drawn.choice(["low", "normal", "high"])
            status, job, _ = server.post("/api/v1/jobs", body)
            assert status == 202, job
            what = drawn.choice(["cancel", "watch", "leave", "change", "models", "look"])
            made.append((job["id"], what))
            if what == "cancel":
                server.request("DELETE", job["url"])
            elif what == "watch":
                assert b"event: done" in server.get(job["events"] + "?previews=true", timeout=1200)[1]
            elif what == "leave":
                leave(server, '{"prompt": "red apple", "steps": 20}')
            elif what == "change":
                server.request("PATCH", job["url"], {"priority": "high"})
            elif what == "models":
                name = drawn.choice(["skip", "unload-checkpoint", "reload-checkpoint", "refresh-loras"])
                assert server.post(f"/sdapi/v1/{name}")[0] == 200
            else:
                assert [server.get(path)[0] for path in LISTS] == [200] * len(LISTS)

    def careful(n):
        try:
            client(n)
        except Exception as e:
            wrong.append(repr(e))

    threads = [threading.Thread(target=careful, args=(n,)) for n in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ends = [(server.wait(job, seconds=1200, pause=0.2), what) for job, what in made]
    finally:
        code = server.stop()
    told = (tmp_path / "data.log").read_text()
    assert code == 0 and not wrong, (code, wrong[:3], told[-8000:])  # a sanitizer's findings are in its end
    for job, what in ends:
        assert job["state"] == "done" or (job["state"] == "cancelled" and what == "cancel"), (job, what)
    print(f"\n{len(threads)} clients, {len(ends)} jobs")
