"""The server beside the program: start to ready, the first picture, what a request costs above the pipeline's own call,
how soon a cancelled job stops and a client's leaving is noticed, and memory after many requests.

    PYTHONPATH=build/python .venv/bin/python benchmarks/server.py build [--rounds 20] [--steps 4] [--requests 2000]

Every row is this machine's, one server on the loopback with the model that ships; medians, and the 99th of a hundred.
A request above the pipeline's call: its time at the client without the steps' and the decoding's, which the same
pipeline takes from Python in turns with it.
"""

import argparse
import http.client
import json
import pathlib
import socket
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from served import Server  # noqa: E402

PROMPT = "red apple, noto"


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def row(name, values, unit="ms", scale=1e3):
    values = [v * scale for v in values]
    print(f"{name:48} {statistics.median(values):10.1f} {percentile(values, 0.99):10.1f} {unit}", flush=True)


def starts(build, folder, rounds):
    ready, first = [], []
    for i in range(rounds):
        begin = time.perf_counter()
        server = Server(build, folder / f"start{i}")
        ready.append(time.perf_counter() - begin)
        post(server.port, {"prompt": PROMPT, "num_inference_steps": 4, "seed": i})
        first.append(time.perf_counter() - begin)
        server.stop()
    row("start to ready", ready)
    row("start to the first picture, 4 steps", first)


def post(port, body, path="/v1/images/generations"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status not in (200, 202):
        raise SystemExit(f"server: {answer.status} {text[:300]}")
    return json.loads(text)


def overhead(server, rounds, steps):
    from scaffolding.diffusion import StableDiffusionPipeline

    pipe = StableDiffusionPipeline.from_pretrained("emoji-128")
    pipe.set_progress_bar_config(disable=True)
    ours, theirs = [], []
    for i in range(rounds + 1):
        begin = time.perf_counter()
        pipe(PROMPT, num_inference_steps=steps, guidance_scale=2.5, seed=i)
        middle = time.perf_counter()
        post(server.port, {"prompt": PROMPT, "num_inference_steps": steps, "guidance_scale": 2.5, "seed": i})
        if i:  # the first of each warms up
            theirs.append(middle - begin)
            ours.append(time.perf_counter() - middle)
    row(f"the pipeline's call, {steps} steps", theirs)
    row("a request above it, picture by picture", [a - b for a, b in zip(ours, theirs)])


def wait_for(server, job, states):
    while (view := server.get(f"/api/v1/jobs/{job}")[1])["state"] not in states:
        time.sleep(0.001)
    return view


def stops(server, rounds):
    cancelled, left = [], []
    body = {"prompt": PROMPT, "num_inference_steps": 400, "seed": 1}
    for _ in range(rounds):
        job = post(server.port, body, "/api/v1/jobs")["id"]
        wait_for(server, job, ("running",))
        begin = time.perf_counter()
        server.request("DELETE", f"/api/v1/jobs/{job}")
        wait_for(server, job, ("cancelled",))
        cancelled.append(time.perf_counter() - begin)
        text = json.dumps({"prompt": PROMPT, "num_inference_steps": 400})
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = f"POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
            client.sendall((head + text).encode())
            while not (running := server.get("/api/v1/jobs?state=running")[1]["jobs"]):
                time.sleep(0.001)
            begin = time.perf_counter()
        wait_for(server, running[0]["id"], ("cancelled",))
        left.append(time.perf_counter() - begin)
    row("cancel to stopped", cancelled)
    row("a client's leaving to its job's end", left)


def memory(server, requests):
    def resident():
        with open(f"/proc/{server.process.pid}/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))

    def some(n):
        times = []
        for _ in range(n):
            begin = time.perf_counter()
            server.get("/healthz")
            times.append(time.perf_counter() - begin)
        return times

    some(200)
    before = resident()
    row("/healthz, a connection each", some(requests))
    print(f"{f'memory after {requests} more requests':48} {resident() - before:10.1f} {'':10} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    print(f"{'':48} {'median':>10} {'p99':>10}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        starts(options.build, folder, max(1, options.rounds // 4))
        server = Server(options.build, folder / "data")
        try:
            overhead(server, options.rounds, options.steps)
            stops(server, max(1, options.rounds // 4))
            memory(server, options.requests)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
