"""What a worker thread knows of itself."""

import dataclasses
import threading
import typing

_here = threading.local()


@dataclasses.dataclass
class WorkerInfo:
    """id: 0 .. num_workers - 1; seed: of this worker in this epoch; dataset: the one object that all workers share."""

    id: int
    num_workers: int
    seed: int
    dataset: typing.Any


def get_worker_info():
    """The WorkerInfo of the calling worker thread; None outside of workers."""
    return getattr(_here, "info", None)


def set_worker_info(info):
    _here.info = info
