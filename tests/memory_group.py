"""A memory cgroup, in which a program gets as little memory as a small machine has."""

import os
import pathlib

KINDS = (  # where it lies, its limit, its highest use: v1, v2
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    ("/sys/fs/cgroup", "memory.max", "memory.peak"),
)


class MemoryGroup:
    """A new group with this limit in bytes while it is open; NotImplementedError where none can be made."""

    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        for root, limit, peak in KINDS:
            self.folder = pathlib.Path(root) / f"scaffolding_{os.getpid()}"
            try:
                self.folder.mkdir()
                (self.folder / limit).write_text(str(self.limit))
                self._peak = self.folder / peak
                return self
            except OSError:
                if self.folder.is_dir():
                    self.folder.rmdir()
        raise NotImplementedError("no memory cgroup can be made here")

    def __exit__(self, *_):
        self.folder.rmdir()

    def enter(self):
        """This process goes into it; preexec_fn of a child."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def highest(self):
        """Bytes that were taken at most, pages of files included."""
        return int(self._peak.read_text())
