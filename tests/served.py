"""A server of the program's, started for tests on the loopback, and a plain client of it."""

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import subprocess
import time

import pytest


class Server:
    def __init__(self, build_dir, data, *options, env=None, port=0):
        self.data = data
        self.log = open(data.parent / (data.name + ".log"), "a+")
        command = [str(build_dir / "scaffolding"), "serve", "--port", str(port), "--data", str(data)]
        command += map(str, options)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("http://"), self.told()
        self.url = line.strip()
        self.port = int(self.url.rpartition(":")[2])

    def told(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, body, headers): JSON of a JSON answer, else bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            headers = dict(headers or {})
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.getheader("Content-Type", "").startswith("application/json") and text:
                text = json.loads(text)
            return answer.status, text, answer.headers

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.request("POST", path, body if body is not None else {}, **more)

    def wait(self, job, states=("done", "failed", "cancelled"), seconds=60, pause=0.01):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            view = self.get(f"/api/v1/jobs/{job}")[1]
            if view["state"] in states:
                return view
            time.sleep(pause)
        raise AssertionError(f"{job} is not {states}: {view}\n{self.told()}")

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.stdout.close()
        code = self.process.wait(timeout=60)
        self.log.close()
        return code


@contextlib.contextmanager
def serving(build_dir, data, *options, **more):
    """At its end nothing is waited for: what still runs then is nobody's."""
    server = Server(build_dir, data, "--drain", 0, *options, **more)
    try:
        yield server
    finally:
        server.stop()


def installed(name, package=None, path=None):
    """Where a program of Debian's is, that no newcomer needs. Skips where it is not, unless SF_TEST_INSTALLED says that
    all of them are, as .ci/run does, which has installed them: then its absence is a fault."""
    found = path or shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if not found:
        assert not os.environ.get("SF_TEST_INSTALLED"), f"SF_TEST_INSTALLED is set, and there is no {name}"
        pytest.skip(f"{name} is not installed (Debian: {package or name})")
    return str(found)


def skip_without_server(program, build_dir):
    """Skips where the build was told SF_SERVER=OFF; any other program without a server is a fault."""
    if "SF_SERVER:BOOL=OFF" in (build_dir / "CMakeCache.txt").read_text():
        pytest.skip("SF_SERVER=OFF: this build was asked for no server")
    said = program("serve", "--help")
    assert said.returncode == 0 and "--port" in said.stdout, "the program has no server: are Boost and SQLite there?"
