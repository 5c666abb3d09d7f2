"""What a worker thread knows of itself."""

import threading

_here = threading.local()


class WorkerInfo:
    """id: 0 .. num_workers - 1; seed: of this worker in this epoch; dataset: the one object that all workers share."""

    def __init__(self, id, num_workers, seed, dataset):
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset

    def __repr__(self):
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, dataset={self.dataset!r})"


def get_worker_info():
    """The WorkerInfo of the calling worker thread; None outside of workers.

    >>> sf.utils.data.get_worker_info()  # not in a worker
    """
    return getattr(_here, "info", None)


def set_worker_info(info):
    _here.info = info
