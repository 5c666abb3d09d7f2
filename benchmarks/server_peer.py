"""Our server beside stable-diffusion.cpp's: one model, one machine, in turns. What `server.py --peer` prints.

The peer is the program sd-server, whose sources are in PyPI's archive of a Python package:

    pip download --no-binary :all: --no-deps stable-diffusion-cpp-python
    tar xf stable_diffusion_cpp_python-*.tar.gz
    cmake -S stable_diffusion_cpp_python-*/vendor/stable-diffusion.cpp -B sd -DCMAKE_BUILD_TYPE=Release
        -DGGML_NATIVE=ON -DGGML_LLAMAFILE=ON -DSD_WEBP=OFF -DSD_WEBM=OFF
    cmake --build sd --target sd-server           # then: benchmarks/server.py build --peer sd/bin/sd-server --rows peer

The archive has no history, so that the program says "version unknown" of itself. Two cores need an hour for the usual
20 rounds at 256 pixels, a quarter of that for --rounds 12 --size 128.

The model is Stable Diffusion 1.5 of full size with random weights in bfloat16, since the peer knows no other sizes than
published ones: one file, which both read (--peer-model names another). Pictures have guidance and Euler's steps; each
has a prompt of its own. Ours computes in --peer-dtype, the peer as its file is, or as
--peer-options say.

Ours loads the model for the first picture, the peer before it is ready. How long a server that was left is not free is
the time until it has made a small picture of one step, without what that picture takes by itself; the one that is
left has STOPPED_STEPS steps, and a quarter of it is done by then. Memory is what is resident: ours maps the model's
file, whose pages count while they are mapped and are the system's cache else; the peer copies it.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import threading
import time

from random_checkpoint import write_model
from served import Server

MODEL = "sd15-random"
# On a CPU --fa takes half as long again; --vae-conv-direct, --diffusion-conv-direct and --type f16 as long.
PEER_OPTIONS = ""
GUIDANCE = 7.0
STOPPED_STEPS = 8
CLIENTS = 8
SMALL = 64  # pixels a side


def check(program):
    """The peer's version, or an end that says why this is none."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
        version = said.stdout.strip()
        known = version.startswith("stable-diffusion.cpp")
        usage = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout if known else ""
    except OSError as error:
        raise SystemExit(f"--peer: {program} does not run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SystemExit(f"--peer: {program} is not sd-server: it does not end when asked for its version") from None
    if "--listen-port" not in usage:
        raise SystemExit(f"--peer: {program} is not sd-server of stable-diffusion.cpp: it knows no --listen-port")
    return version


class Ours:
    def __init__(self, options, model, folder):
        self.size = options.size
        more = ("--models", model.parent, "--model", model.stem, "--dtype", options.peer_dtype)
        self.server = Server(options.build, folder, *more)
        self.process, self.port = self.server.process, self.server.port

    def stop(self):
        self.server.stop()

    def fields(self, steps, seed, size):
        return {
            "prompt": f"a red fox in the snow, {seed}",
            "seed": seed,
            "num_inference_steps": steps,
            "guidance_scale": GUIDANCE,
            "sampler": "euler",
        } | size

    def body(self, steps, seed, side):
        return self.fields(steps, seed, {"size": f"{side}x{side}"})

    def job(self, steps, seed):
        fields = self.fields(steps, seed, {"width": self.size, "height": self.size})
        return answered(self, "POST", "/api/v1/jobs", fields)["id"]

    def cancel(self, job):
        return ask(self, "DELETE", f"/api/v1/jobs/{job}")[0]


class Peer:
    def __init__(self, options, model, folder):
        self.size = options.size
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [options.peer, "--listen-port", self.port, "--model", model, *options.peer_options.split()]
        # By itself it takes half of the processors that the system shows.
        command += ["--threads", len(os.sched_getaffinity(0))]
        self.log = open(folder.with_suffix(".log"), "w+")
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=subprocess.STDOUT)
        while True:
            with contextlib.suppress(OSError):
                if ask(self, "GET", "/v1/models")[0] == 200:
                    return
            if self.process.poll() is not None:
                self.log.seek(0)
                told = self.log.read()[-2000:]
                raise SystemExit(f"--peer: {options.peer} ended with {self.process.returncode}: {told}")
            time.sleep(0.005)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def sampling(self, steps):
        return {"sample_steps": steps, "sample_method": "euler", "guidance": {"txt_cfg": GUIDANCE}}

    def body(self, steps, seed, side):
        more = json.dumps({"seed": seed, "sample_params": self.sampling(steps)})
        prompt = f"a red fox in the snow, {seed}<sd_cpp_extra_args>{more}</sd_cpp_extra_args>"
        return {"prompt": prompt, "size": f"{side}x{side}"}

    def job(self, steps, seed):
        fields = {"prompt": f"a red fox in the snow, {seed}", "seed": seed, "sample_params": self.sampling(steps)}
        fields |= {"width": self.size, "height": self.size}
        return answered(self, "POST", "/sdcpp/v1/img_gen", fields)["id"]

    def cancel(self, job):
        return ask(self, "POST", f"/sdcpp/v1/jobs/{job}/cancel")[0]


def ask(server, method, path, body=None):
    """(status, JSON)"""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3600)
    with contextlib.closing(connection):
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or "null")


def answered(server, method, path, body=None):
    status, answer = ask(server, method, path, body)
    if status not in (200, 202):
        raise SystemExit(f"{type(server).__name__.lower()}: {method} {path}: {status} {answer}")
    return answer


def picture(server, steps, seed, side):
    """Seconds until a client has it."""
    begin = time.perf_counter()
    answer = answered(server, "POST", "/v1/images/generations", server.body(steps, seed, side))
    seconds = time.perf_counter() - begin
    png = base64.b64decode(answer["data"][0]["b64_json"])
    assert png[:4] == b"\x89PNG" and struct.unpack(">II", png[16:24]) == (side, side), png[:24]
    return seconds


def processor_seconds(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text()
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def megabytes(server, row):
    lines = pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 * 1.024 for line in lines if line.startswith(row + ":"))


@contextlib.contextmanager
def asked_meanwhile(server, times):
    """A light request every ten milliseconds, each on a connection of its own; how long each took."""
    over = threading.Event()

    def client():
        while not over.is_set():
            begin = time.perf_counter()
            answered(server, "GET", "/v1/models")
            times.append(time.perf_counter() - begin)
            over.wait(0.01)

    thread = threading.Thread(target=client)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def line(name, ours, peer, unit, more_is_better=False, words=("faster", "SLOWER")):
    if min(ours, peer) <= 0:  # a difference of two times, within their noise
        return print(f"{name:48} {ours:10.2f} {peer:10.2f} {unit:10}", flush=True)
    times = ours / peer if more_is_better else peer / ours
    told = f"{times:.2f} times {words[0]}" if times > 1 else f"{1 / times:.2f} times {words[1]} THAN PEER"
    told = "as the peer" if 0.995 < times < 1.005 else told
    print(f"{name:48} {ours:10.2f} {peer:10.2f} {unit:10} {told}", flush=True)


class Comparison:
    """What is measured of each of two servers, {row: [of ours, of the peer's]}, lists with a value for each round."""

    def __init__(self, options, folder, rounds):
        self.options, self.rounds, self.seed = options, rounds, 0
        self.model = options.peer_model
        if not self.model:
            self.model = folder / "models" / f"{MODEL}.safetensors"
            self.model.parent.mkdir()
            write_model(self.model)
        self.folder = folder

    def start(self, kind):
        self.seed += 1
        return kind(self.options, self.model.resolve(), self.folder / f"{kind.__name__}{self.seed}")

    def picture(self, server, steps=None, side=None):
        self.seed += 1
        return picture(server, steps or self.options.steps, self.seed, side or self.options.size)

    def median_line(self, name, values, unit, **more):
        line(name, *map(statistics.median, values), unit, **more)

    def starts(self):
        ready, first = ([], []), ([], [])
        for _ in range(self.rounds):
            for at, kind in enumerate((Ours, Peer)):
                begin = time.perf_counter()
                server = self.start(kind)
                ready[at].append(time.perf_counter() - begin)
                self.picture(server)
                first[at].append(time.perf_counter() - begin)
                server.stop()
        self.median_line("start to ready", ready, "s")
        self.median_line(f"start to the first picture, {self.options.steps} steps", first, "s")

    def one_client(self, servers):
        seconds, processor = ([], []), ([], [])
        for _ in range(self.rounds):
            for at, server in enumerate(servers):
                before = processor_seconds(server)
                seconds[at].append(self.picture(server))
                processor[at].append(processor_seconds(server) - before)
        self.median_line(f"a picture, {self.options.steps} steps", seconds, "s")
        self.median_line("its time of the processor", processor, "s")

    def light(self, servers):
        times = ([], [])
        for _ in range(self.rounds):
            for at, server in enumerate(servers):
                with asked_meanwhile(server, times[at]):
                    self.picture(server)
        self.light_lines("meanwhile GET /v1/models", times)

    def light_lines(self, name, times):
        times = [sorted(t * 1e3 for t in some) for some in times]
        line(f"{name}, median", *map(statistics.median, times), "ms")
        line(f"{name}, p99", *(some[int(0.99 * (len(some) - 1))] for some in times), "ms")

    def crowd(self, servers):
        rates, times = ([], []), ([], [])
        for _ in range(self.rounds):
            for at, server in enumerate(servers):
                threads = [threading.Thread(target=self.picture, args=(server,)) for _ in range(CLIENTS)]
                begin = time.perf_counter()
                with asked_meanwhile(server, times[at]):
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                    rates[at].append(60 * CLIENTS / (time.perf_counter() - begin))
        self.median_line(f"{CLIENTS} clients at once", rates, "pictures/min", more_is_better=True)
        self.light_lines("meanwhile GET /v1/models", times)

    def stops(self, servers):
        cancelled, left, said = ([], []), ([], []), [None, None]
        alone = [statistics.median(self.picture(server, 1, SMALL) for _ in range(3)) for server in servers]
        quarter = [self.picture(server, STOPPED_STEPS) / 4 for server in servers]

        def not_free(at):
            return self.picture(servers[at], 1, SMALL) - alone[at]

        for _ in range(self.rounds):
            for at, server in enumerate(servers):
                job = server.job(STOPPED_STEPS, self.seed)
                time.sleep(quarter[at])
                said[at] = server.cancel(job)
                cancelled[at].append(not_free(at))
                text = json.dumps(server.body(STOPPED_STEPS, self.seed, self.options.size))
                head = "POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
                    time.sleep(quarter[at])
                left[at].append(not_free(at))
        name = f"cancelling (answers {said[0]}, the peer {said[1]}) to free"
        self.median_line(name, cancelled, "s")
        self.median_line("a client's leaving to free", left, "s")

    def memory(self, servers):
        for row, name in (("VmRSS", "memory after all of this"), ("VmHWM", "the most that it was")):
            line(name, *(megabytes(server, row) for server in servers), "MB", words=("less", "MORE"))


def compare(options, folder, rounds):
    version = check(options.peer)
    print(f"beside {version}, options {options.peer_options or 'none'}; ours in {options.peer_dtype}; {options.size} "
          f"pixels a side")  # fmt: skip
    print(f"{'':48} {'ours':>10} {'peer':>10}")
    comparison = Comparison(options, folder, rounds)
    comparison.starts()
    servers = []
    try:
        for kind in (Ours, Peer):
            servers.append(comparison.start(kind))
            comparison.picture(servers[-1])
        for rows in (comparison.one_client, comparison.light, comparison.crowd, comparison.stops, comparison.memory):
            rows(servers)
    finally:
        for server in servers:
            server.stop()
