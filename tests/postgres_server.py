"""A PostgreSQL of its own for tests: in a temporary folder, on a port of the loopback, as a user who is not root."""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

from served import installed


class Postgres:
    """`address` is what --database takes; start() and stop() as often as a test likes."""

    def __init__(self, programs):
        self.programs = programs
        self.user = None
        if os.getuid() == 0:  # which initdb refuses
            self.user = pwd.getpwnam("nobody").pw_name
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sf_postgres_"))
        if self.user:
            shutil.chown(self.folder, self.user)
        self.data = self.folder / "data"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.address = f"postgresql://sf@127.0.0.1:{self.port}/postgres"
        self.run("initdb", "-D", self.data, "-U", "sf", "-A", "trust", "-E", "UTF8", "--no-sync")

    def run(self, name, *arguments):
        done = subprocess.run(
            [self.programs / name, *map(str, arguments)],
            user=self.user,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self):
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c max_connections=40"
        self.run("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def processes(self):
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        return [main, *map(int, pathlib.Path(f"/proc/{main}/task/{main}/children").read_text().split())]

    @contextlib.contextmanager
    def hanging(self):
        """It is there and says nothing, as behind a broken network."""
        group = self.processes()
        for process in group:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in group:
                os.kill(process, signal.SIGCONT)

    def sql(self, text):
        """The rows of a query, their columns parted by '|'."""
        return self.run("psql", "-X", "-q", "-A", "-t", self.address, "-c", text).splitlines()


def postgres_programs():
    """The folder of the newest PostgreSQL's programs, which Debian does not put on the path."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return pathlib.Path(installed("initdb", "postgresql", found[-1] if found else None)).parent


@contextlib.contextmanager
def postgres():
    server = Postgres(postgres_programs())
    try:
        server.start()
        yield server
    finally:
        with contextlib.suppress(AssertionError):
            server.stop("immediate")
        shutil.rmtree(server.folder, ignore_errors=True)
