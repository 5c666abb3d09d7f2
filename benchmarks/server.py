"""The server beside the program: start to ready, the first picture, what a request costs above the pipeline's own call,
how soon a cancelled job stops and a client's leaving is noticed, clients at a time beside the program's best --batch,
what previews cost, crowds, slow clients, those of slowhttptest (Debian's) too, and memory after many requests.

    PYTHONPATH=build/python .venv/bin/python benchmarks/server.py build [--rounds 20] [--steps 4] [--requests 10000]
        [--rows start,above,stop,clients,previews,crowd,slow,slowhttptest,memory,shared,peer] [--peer SD-SERVER]

"shared" is two servers of one PostgreSQL, on a core each, beside one on one core; it is not among the usual ones.
"peer" is stable-diffusion.cpp's server beside ours in turns, with a model that both know; it is among the usual ones
where --peer says where that server is. server_peer.py tells where it comes from and what is measured; --rows peer is
that alone.

Every row is this machine's, one server on the loopback with the model that ships; medians, and the 99th of a hundred.
A request above the pipeline's call: its time at the client beside the steps' and the decoding's, which the same
pipeline takes from Python in turns with it; median above median, 99th above 99th.
"""

import argparse
import http.client
import json
import math
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import client_rate  # noqa: E402
from postgres_server import postgres  # noqa: E402
from served import Server  # noqa: E402
from server_peer import PEER_OPTIONS, check, compare  # noqa: E402

PROMPT = "red apple, noto"


def percentile(values, share):
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def row(name, values, unit="ms", scale=1e3):
    values = [v * scale for v in values]
    print(f"{name:48} {statistics.median(values):10.1f} {percentile(values, 0.99):10.1f} {unit}", flush=True)


def starts(build, folder, rounds):
    ready, first, alone = [], [], []
    for i in range(rounds):  # in turns with the program, which starts, makes the same picture and ends
        begin = time.perf_counter()
        program(build, folder, "--steps", 4, "--seed", i)
        alone.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        server = Server(build, folder / f"start{i}")
        ready.append(time.perf_counter() - begin)
        post(server.port, {"prompt": PROMPT, "num_inference_steps": 4, "seed": i})
        first.append(time.perf_counter() - begin)
        server.stop()
    row("start to ready", ready)
    row("start to the first picture, 4 steps", first)
    row("txt2img from its start to its end, 4 steps", alone)
    row("the server above it, goal 50", [a - b for a, b in zip(first, alone)])


def program(build, folder, *options):
    command = [build / "scaffolding", "txt2img", PROMPT, *options, "-q", "--force", "-o", folder / "{seed}.png"]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def post(port, body, path="/v1/images/generations"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status not in (200, 202):
        raise SystemExit(f"server: {answer.status} {text[:300]}")
    return json.loads(text)


def read(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/images/generations", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"server: {answer.status}")


def overhead(server, rounds, steps, size):
    import scaffolding as sf
    from scaffolding.diffusion import StableDiffusionPipeline

    pipe = StableDiffusionPipeline.from_pretrained("emoji-128", torch_dtype=sf.float32)  # as the server has it
    pipe.set_progress_bar_config(disable=True)
    ours, theirs = [], []
    same = {"num_inference_steps": steps, "guidance_scale": 2.5}
    for i in range(rounds + 1):
        begin = time.perf_counter()
        pipe(PROMPT, **same, seed=i, width=size, height=size)
        middle = time.perf_counter()
        post(server.port, {"prompt": PROMPT, **same, "seed": i, "size": f"{size}x{size}"})
        if i:  # the first of each warms up
            theirs.append(middle - begin)
            ours.append(time.perf_counter() - middle)
    row(f"the pipeline's call, {steps} steps, {size} pixels", theirs)
    row("a request", ours)
    above = [1e3 * (of(ours) - of(theirs)) for of in (statistics.median, lambda times: percentile(times, 0.99))]
    print(f"{'above it':48} {above[0]:10.1f} {above[1]:10.1f} ms", flush=True)
    row("picture by picture, with the noise of both", [a - b for a, b in zip(ours, theirs)])


def clients(build, folder, rounds, number=8, steps=10):
    """Pictures a second of so many clients, each with a prompt of its own, beside txt2img's best --batch."""
    count = number * max(8, rounds // 5)  # the first and last of each client do not count: 48 pictures at least

    def batches(batch, pictures, steps=steps):
        begin = time.perf_counter()
        program(build, folder, "--steps", steps, "--count", pictures, "--batch", batch, "--seed", 1)
        return time.perf_counter() - begin

    def served(server, at_once):
        def ask(seed):
            post(server.port, {"prompt": f"{PROMPT} {seed % 7}", "num_inference_steps": steps, "seed": seed})

        return client_rate.rate(ask, at_once, count)

    alone = Server(build, folder / "alone", "--max-batch", 1)
    shared = Server(build, folder / "shared")
    try:
        for server in (alone, shared):
            served(server, number)  # steps are timed
        rates = {"one": [], "shared": [], "lone": []}
        best = {}
        for _ in range(max(3, rounds // 8)):  # in turns
            rates["shared"].append(served(shared, number))
            rates["lone"].append(served(alone, number))
            rates["one"].append(served(alone, 1))
            start = batches(1, 1, steps=1)  # and a small picture
            for batch in (1, 2, 4, 8):
                best.setdefault(batch, []).append(count / (batches(batch, count) - start))
    finally:
        alone.stop()
        shared.stop()
    batch, rate = max(((b, statistics.median(r)) for b, r in best.items()), key=lambda at: at[1])
    name = f"txt2img --batch {batch}, the best, {steps} steps"
    print(f"{name:48} {rate:10.2f} {'':10} pictures/s", flush=True)
    for key, name in (("one", "one client"), ("lone", f"{number} clients, one picture at a time"),
                      ("shared", f"{number} clients, calls shared where it pays")):  # fmt: skip
        now = statistics.median(rates[key])
        print(f"{name:48} {now:10.2f} {100 * now / rate:9.0f}% pictures/s", flush=True)


def previews(build, folder, rounds, steps=20, each=10):
    """What previews cost: of jobs that nobody watches, and of those whose every step is watched."""
    watched = {"stream": True, "partial_images": 3}
    kinds = [("without", ["--no-previews"], {}), ("nobody watches", [], {}), ("3 partial pictures", [], watched)]
    times = {name: [] for name, _, _ in kinds}
    first, step = [], []
    for turn in range(max(4, rounds // each)):  # processes differ by some percent through where their memory lies
        for name, options, more in kinds:
            server = Server(build, folder / f"{name[0]}{turn}", *options)
            try:

                def asked(steps, server=server, more=more):  # seconds, median
                    took = []
                    for i in range(each + 2):
                        begin = time.perf_counter()
                        read(server.port, {"prompt": PROMPT, "num_inference_steps": steps, "seed": i, **more})
                        took.append(time.perf_counter() - begin)
                    return statistics.median(took[2:])

                times[name].append(asked(steps))
                if name != "nobody watches":
                    continue
                step.append((times[name][-1] - asked(steps // 4)) / (steps - steps // 4))
                for i in range(each):
                    body = {"prompt": PROMPT, "num_inference_steps": 100, "seed": i}
                    job = post(server.port, body, "/api/v1/jobs")["id"]
                    wait_for(server, job, ("running",))
                    begin = time.perf_counter()
                    while server.get(f"/api/v1/jobs/{job}/preview")[0] != 200:
                        time.sleep(0.001)
                    first.append(time.perf_counter() - begin)
                    server.request("DELETE", f"/api/v1/jobs/{job}")
            finally:
                server.stop()
    without = times.pop("without")
    for name, took in times.items():
        cost, sure = 100 * (statistics.mean(took) / statistics.mean(without) - 1), 0.0
        for values in (took, without):
            sure += (100 * statistics.stdev(values) / statistics.mean(values)) ** 2 / len(values)
        print(f"{'previews, ' + name:48} {cost:10.1f} {'':10} % of the time without, +- {sure**0.5:.1f} over "
              f"{len(took)} servers each", flush=True)  # fmt: skip
    row("running to the first preview", first)
    row("a step; goal: it and 20 ms", step)


def crowd(build, folder, jobs, number=64):
    """So many clients with tokens of their own and jobs: none lost, shares alike, the server still answers."""
    tokens = []
    with open(folder / "tokens", "w") as file:
        for i in range(number):
            made = subprocess.run([str(build / "scaffolding"), "serve", "--new-token", f"client{i}"],
                                  capture_output=True, text=True, check=True)  # fmt: skip
            file.write(made.stdout)
            tokens.append(re.search(r"is (\S{43})$", made.stderr, re.M)[1])
    server = Server(build, folder / "crowd", "--tokens", folder / "tokens", "--max-queue", 100000)
    try:
        headers = [{"Authorization": f"Bearer {t}"} for t in tokens]
        body = {"prompt": PROMPT, "num_inference_steps": 2, "width": 64, "height": 64}
        mine = [[] for _ in range(number)]
        begin = time.perf_counter()

        def client(i):
            for _ in range(jobs // number):
                status, answer, _ = server.post("/api/v1/jobs", body, headers=headers[i])
                assert status == 202, answer
                mine[i].append(answer["id"])

        threads = [threading.Thread(target=client, args=(i,)) for i in range(number)]
        for thread in threads:
            thread.start()
        times = []
        total = jobs // number * number
        while True:
            start = time.perf_counter()
            server.get("/healthz")
            times.append(time.perf_counter() - start)
            text = server.get("/metrics", headers=headers[0])[1].decode()
            found = re.search(r'scaffolding_jobs_total{state="done"} (\d+)', text)
            done = int(found[1]) if found else 0
            if done >= total:
                break
            time.sleep(0.02)
        seconds = time.perf_counter() - begin
        for thread in threads:
            thread.join()
        ends = [[server.get(f"/api/v1/jobs/{job}", headers=headers[i])[1] for job in mine[i]] for i in range(number)]
        every = [end for some in ends for end in some]
        lost = sum(e["state"] != "done" or len(e["pictures"]) != 1 for e in every)
        print(f"{f'{number} clients, {total} jobs: lost':48} {lost:10} {total / seconds:10.1f} jobs/s", flush=True)
        # Of those that were done between the last one's coming, when all wait, and three quarters of the end.
        from_, to = max(e["created"] for e in every), sorted(e["ended"] for e in every)[total * 3 // 4]
        shares = [sum(from_ < e["ended"] <= to for e in some) for some in ends]
        share = statistics.mean(shares)
        off = max(abs(n - share) for n in shares)
        print(f"{'shares while all wait, furthest from the mean':48} {off:10.1f} {share:10.1f} jobs", flush=True)
        row("/healthz meanwhile", times)
    finally:
        server.stop()


def allow_files(number):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, number + 200)), hard))


def slowhttptest(build, folder, number, seconds=20):
    """Its four kinds: heads and bodies that come by the byte, many ranges, answers that are read by the byte."""
    program = shutil.which("slowhttptest")
    if not program:
        return print("slowhttptest is not installed: its slow connections are skipped")
    allow_files(number)
    for name, path, how in (
        ("heads", "/api/v1/jobs", ["-H"]),
        ("bodies", "/api/v1/jobs", ["-B", "-f", "application/json", "-s", 8192]),
        ("ranges", "/openapi.json", ["-R", "-t", "GET"]),
        ("readers", "/openapi.json", ["-X", "-w", 64, "-y", 128, "-n", 5, "-z", 8, "-k", 3]),
    ):
        server = Server(build, folder / f"slow_{name}")
        command = [
            program,
            *how,
            "-c",
            number,
            "-r",
            number // 4,
            "-i",
            5,
            "-l",
            seconds,
            "-p",
            5,
            "-u",
            server.url + path,
        ]
        try:
            for _ in range(50):
                server.get("/healthz")
            before, times, most, costs = resident(server), [], 0, []
            with subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL) as attack:
                while attack.poll() is None:
                    begin = time.perf_counter()
                    server.get("/healthz")
                    times.append(time.perf_counter() - begin)
                    text = server.get("/metrics")[1].decode()
                    most = max(most, int(re.search(r"^scaffolding_connections (\d+)", text, re.M)[1]))
                    costs.append(resident(server) - before)
                    time.sleep(0.05)
            name = f"slowhttptest's {name}: {most} at a time, memory of {number}, each"
            print(f"{name:48} {max(costs) * 1024 / number:10.1f} {'':10} KiB; goal 64", flush=True)
            row("/healthz beside them", times)
        finally:
            server.stop()


def slow(build, folder, number):
    """Connections that never end their requests: what they cost, and what others notice."""
    allow_files(number)
    server = Server(build, folder / "slow")
    held = []
    try:
        for _ in range(50):
            server.get("/healthz")
        before = resident(server)
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            held.append(client)
        times = []
        for client in held[:300]:
            client.sendall(b"a")
            begin = time.perf_counter()
            server.get("/healthz")
            times.append(time.perf_counter() - begin)
        cost = (resident(server) - before) * 1024 / number
        print(f"{f'{number} slow connections: memory of each':48} {cost:10.1f} {'':10} KiB", flush=True)
        row("/healthz beside them", times)
    finally:
        for client in held:
            client.close()
        server.stop()


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


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def memory(server, requests):
    """Most of them are answered at once, one in fifty makes a small picture."""

    def some(n):
        times = []
        for i in range(n):
            begin = time.perf_counter()
            server.get("/healthz")
            times.append(time.perf_counter() - begin)
            if i % 50 == 0:
                post(server.port, {"prompt": PROMPT, "num_inference_steps": 1, "size": "64x64", "seed": i})
        return times

    some(200)
    before = resident(server)
    times = some(requests // 2)
    middle = resident(server)
    row("/healthz, a connection each", times + some(requests // 2))
    after = resident(server)
    name = f"memory after {requests} requests, and of the second half"
    print(f"{name:48} {after - before:10.1f} {after - middle:10.1f} MB", flush=True)


def shared(build, folder, repeats, steps, jobs=80):
    """Pictures a second of one server on a core, of two on one queue, a core each, and of two that share nothing but
    the machine, which is the limit; in turns. So many jobs that the last picture, which one makes while the other has
    none left, is little of the whole. The database and this process have the servers' cores: with any they would have
    one of their own beside one server, and none beside two."""
    cores_before = os.sched_getaffinity(0)
    cores = sorted(cores_before)[:2]
    assert len(cores) == 2, "two cores are needed"
    body = {"prompt": PROMPT, "num_inference_steps": steps}
    rates = {"one": [], "two": [], "apart": []}

    def bind(process, cores):  # each of its threads, and those that come
        command = ["taskset", "-acp", ",".join(map(str, cores)), str(process)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def measured(kind, folder, database):
        servers, mine = [], cores[: 1 if kind == "one" else 2]
        for process in [os.getpid(), *database.processes()]:
            bind(process, mine)
        for core in mine:
            options = [] if kind == "apart" else ["--database", database.address]
            environment = {**os.environ, "SF_NUM_THREADS": "1"}
            servers.append(Server(build, folder / f"{kind}{core}", "--max-batch", 1, *options, env=environment))
            bind(servers[-1].process.pid, [core])
        for server in servers:  # whichever takes a job, until each has the model in memory
            while not any(m["in_memory"] for m in server.get("/api/v1/models")[1]["models"]):
                wait_for(server, server.post("/api/v1/jobs", {**body, "num_inference_steps": 1})[1]["id"], ("done",))
        time.sleep(1)
        begin = time.time()
        taken = [servers[n % len(servers)] for n in range(jobs)]
        made = [server.post("/api/v1/jobs", {**body, "seed": n})[1]["id"] for n, server in enumerate(taken)]
        # Asked for seldom, since the cores are the servers', which say when each ended; first for the last one.
        pairs = list(zip(taken, made))
        ends = [server.wait(job, seconds=600, pause=0.5)["ended"] for server, job in reversed(pairs)]
        for server in servers:
            server.stop()
        return jobs / (max(ends) - begin)

    with postgres() as database:
        for i in range(repeats):
            for kind in rates:
                (folder / str(i)).mkdir(parents=True, exist_ok=True)
                rates[kind].append(measured(kind, folder / str(i), database))
    os.sched_setaffinity(0, cores_before)
    print(f"{f'one server on a core, {steps} steps':48} {statistics.median(rates['one']):10.2f} pictures/s")
    for kind, name in (("two", "two on one queue, a core each"), ("apart", "two that share nothing: the limit")):
        times = [a / b for a, b in zip(rates[kind], rates["one"])]  # in turns: the machine is not always as fast
        said = f"{min(times):.2f} to {max(times):.2f}" + ("; goal 1.9" if kind == "two" else "")
        print(f"{name:48} {statistics.median(rates[kind]):10.2f} pictures/s, {statistics.median(times):.3f} ({said})")


def own(options, rows, folder):
    print(f"{'':48} {'median':>10} {'p99':>10}")
    if "start" in rows:
        starts(options.build, folder, max(1, options.rounds // 4))
    server = Server(options.build, folder / "data")
    try:
        if "above" in rows:
            overhead(server, options.rounds, options.steps, 128)
            overhead(server, options.rounds, 1, 512)
        if "stop" in rows:
            stops(server, max(1, options.rounds // 4))
        if "memory" in rows:
            memory(server, options.requests)
    finally:
        server.stop()
    if "clients" in rows:
        clients(options.build, folder, options.rounds)
    if "previews" in rows:
        previews(options.build, folder, options.rounds)
    if "crowd" in rows:
        crowd(options.build, folder, options.jobs)
    if "slow" in rows:
        slow(options.build, folder, options.connections)
    if "slowhttptest" in rows:
        slowhttptest(options.build, folder, options.connections)
    if "shared" in rows:
        for steps in (20, 8):  # what a client gets who says nothing, and short ones
            shared(options.build, folder / str(steps), max(1, options.rounds // 4), steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rows")
    parser.add_argument("--peer", type=pathlib.Path, help="sd-server of stable-diffusion.cpp")
    parser.add_argument("--peer-model", type=pathlib.Path, help="a safetensors file that both servers read")
    parser.add_argument("--peer-options", default=PEER_OPTIONS, help="the peer's own, else '%(default)s'")
    parser.add_argument("--peer-dtype", default="bfloat16", help="what ours computes in beside the peer")
    parser.add_argument("--size", type=int, default=256, help="of the pictures beside the peer, pixels a side")
    options = parser.parse_args()
    usual = "start,above,stop,clients,previews,crowd,slow,slowhttptest,memory" + (",peer" if options.peer else "")
    rows = set((options.rows or usual).split(","))
    if "peer" in rows:
        if not options.peer:
            parser.error("--rows peer: --peer says where sd-server of stable-diffusion.cpp is")
        check(options.peer)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if rows != {"peer"}:
            own(options, rows, folder)
        if "peer" in rows:
            compare(options, folder, max(1, options.rounds // 4))


if __name__ == "__main__":
    main()
