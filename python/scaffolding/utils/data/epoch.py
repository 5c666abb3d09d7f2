"""The iterators behind DataLoader: one epoch each, by where its samples come from."""

import collections
import itertools
import threading

from ... import _core
from .pin_memory import pin_memory, pins
from .worker import WorkerInfo, set_worker_info

_data = _core._data


class _Stopped(Exception):
    """The epoch was closed while a worker was busy with it."""


def _named(error, name):
    """The same error with the sample's name in its text."""
    text = f"DataLoader: {name}: {error}"
    try:
        if isinstance(error, StopIteration):  # it would end the epoch as if all were well
            raise TypeError
        named = type(error)(text)
    except Exception:
        named = RuntimeError(f"DataLoader: {name}: {type(error).__name__}: {error}")
    named.__cause__ = error
    return named


class Progress:
    """Where an epoch stands. The loader keeps it; the epoch itself, with its threads, lives as long as the loop over
    it.

    seed: of the epoch's random numbers; done: batches handed out; finished: there are no more.
    """

    def __init__(self, seed):
        self.seed, self.done, self.finished = seed, 0, False
        self.sampler_state = self.generator_state = None


def _fetch(loader, seed, indices, position, stop=None):
    """(the batch or None, what was skipped) of a map-style data set, in the calling thread."""
    dataset, samples, skipped = loader.dataset, [], []
    if hasattr(dataset, "__getitems__") and loader._collates:
        try:
            return loader.collate_fn(dataset.__getitems__(indices)), skipped
        except Exception as e:
            raise _named(e, f"samples {indices}") from e
    for offset, index in enumerate(indices):
        if stop is not None and stop.is_set():
            raise _Stopped
        _data.set_sample_random(seed, index if isinstance(index, int) and index >= 0 else 0, position + offset)
        try:
            samples.append(dataset[index])
        except _data.BrokenSample as e:
            skipped.append((index, f"sample {index}", str(e)))
        except Exception as e:
            raise _named(e, f"sample {index}") from e
        finally:
            _data.clear_sample_random()
    if not samples:
        return None, skipped
    return loader.collate_fn(samples if loader._collates else samples[0]), skipped


class Epoch:
    """One pass over the loader's data set, from batch `done` on."""

    def __init__(self, loader, seed, done):
        self.loader, self.progress, self.closed = loader, Progress(seed), False
        self._pins = pins(loader)
        self._whole = 0  # batches that had samples
        self._skipped = 0
        self._position = 0  # of the next sample in the epoch
        self._indices = iter(())
        sampler = loader._index_sampler
        if sampler is not None:
            if loader.generator is not None and not hasattr(sampler, "state_dict"):
                self.progress.generator_state = loader.generator.get_state()
            indices = iter(sampler)
            self.progress.sampler_state = sampler.state_dict() if hasattr(sampler, "state_dict") else None
            self._indices = ([i] for i in indices) if loader.batch_sampler is None else (list(i) for i in indices)
            for batch in itertools.islice(self._indices, done):
                self._position += len(batch)
            self.progress.done = done

    def __iter__(self):
        return self

    def __len__(self):
        return len(self.loader)

    def __next__(self):
        try:
            while not self.closed:
                batch, skipped = self._take()
                self.progress.done += 1
                self._skipped += len(skipped)
                self.loader._note_skipped(skipped)
                if batch is not None:
                    self._whole += 1
                    self.loader._delivered += 1
                    return pin_memory(batch) if self._pins else batch  # what a worker pinned stays as it is
        except StopIteration:
            self.close()
            self.loader.epoch += 1
            self.progress.finished = True
            if self._skipped and not self._whole:
                raise RuntimeError(
                    f"DataLoader: every sample is broken; the first: {self.loader.skipped[0][1]}"
                ) from None
            raise
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def _next_indices(self):
        """The next batch's indices and the position of the first; StopIteration at the end."""
        batch = next(self._indices)
        position = self._position
        self._position += len(batch)
        return batch, position

    def close(self):
        self.closed = True


class InlineEpoch(Epoch):
    """Samples made when they are asked for."""

    def _take(self):
        return _fetch(self.loader, self.progress.seed, *self._next_indices())


class ThreadedEpoch(Epoch):
    """Batches made ahead by threads that call the data set's __getitem__."""

    def __init__(self, loader, seed, done):
        from concurrent.futures import ThreadPoolExecutor  # with its logging, a tenth of the package's import time

        super().__init__(loader, seed, done)
        ids = itertools.count()
        stop = self._stop = threading.Event()

        def begin():
            worker = next(ids)
            set_worker_info(WorkerInfo(worker, loader.num_workers, seed + worker, loader.dataset))
            if loader.worker_init_fn is not None:
                loader.worker_init_fn(worker)

        # Begun by the first task of each thread, so that its errors reach the caller as they are.
        here = threading.local()
        pinned = self._pins  # not self: an epoch that its own task holds would outlive the loop over it

        def task(indices, position):
            if stop.is_set():
                raise _Stopped
            if not getattr(here, "begun", False):
                begin()
                here.begun = True
            batch, skipped = _fetch(loader, seed, indices, position, stop)
            return pin_memory(batch) if pinned else batch, skipped

        self._task = task
        self._pool = ThreadPoolExecutor(loader.num_workers, thread_name_prefix="DataLoader")
        self._futures = collections.deque()

    def _take(self):
        while len(self._futures) < self.loader.num_workers * self.loader.prefetch_factor:
            try:
                self._futures.append(self._pool.submit(self._task, *self._next_indices()))
            except StopIteration:
                break
        if not self._futures:
            raise StopIteration
        future = self._futures.popleft()
        if self.loader.timeout:
            from concurrent.futures import wait

            if not wait([future], self.loader.timeout).done:
                raise RuntimeError(f"DataLoader: timed out after {self.loader.timeout} seconds")
        return future.result()

    def close(self):
        if not self.closed:
            super().close()
            self._stop.set()
            self._futures.clear()
            # Not waited for on a timeout: the thread that hangs is the reason for it.
            self._pool.shutdown(wait=not self.loader.timeout, cancel_futures=True)

    def __del__(self):
        if hasattr(self, "_futures"):
            self.close()


class NativeEpoch(Epoch):
    """Batches made ahead by C++ threads."""

    def __init__(self, loader, seed, done, native, mapping):
        super().__init__(loader, seed, done)
        self._mapping = mapping
        self._captions = native.has_captions
        self._own_collate = loader._own_collate
        self._prefetcher = _data.Prefetcher(native, loader.num_workers, seed, self._position, not self._own_collate)

    def _take(self):
        p = self._prefetcher
        while p.pending < max(1, self.loader.num_workers * self.loader.prefetch_factor):
            try:
                indices, _ = self._next_indices()
            except StopIteration:
                break
            p.submit(indices if self._mapping is None else [self._mapping[i] for i in indices])
        if p.pending == 0:
            raise StopIteration
        if self.loader.timeout and not p.ready_within(self.loader.timeout):
            raise RuntimeError(f"DataLoader: timed out after {self.loader.timeout} seconds")
        batch, skipped = p.take(self._captions)
        if self._own_collate and batch is not None:
            batch = self.loader.collate_fn(batch)
        return batch, skipped

    def close(self):
        super().close()
        self._prefetcher = None  # joins its threads


class StreamEpoch(Epoch):
    """Batches of an IterableDataset: of one stream, or round-robin of one stream for each worker."""

    def __init__(self, loader, seed, done):
        super().__init__(loader, seed, done)
        self._stop = threading.Event()
        self._queues, self._threads = [], []
        if loader.num_workers == 0:
            self._stream = _stream_batches(loader, iter(loader.dataset))
        else:
            from queue import Queue

            for worker in range(loader.num_workers):
                q = Queue(loader.prefetch_factor)
                self._queues.append(q)
                self._threads.append(
                    threading.Thread(target=_stream_worker, args=(loader, seed, worker, q, self._stop), daemon=True)
                )
                self._threads[-1].start()
            self._stream = _round_robin(collections.deque(self._queues), loader.timeout)
        for _ in range(done):  # a stream has no other way to a place in it
            next(self._stream, None)
        self.progress.done = done

    def _take(self):
        return next(self._stream), ()

    def close(self):
        if not self.closed:
            super().close()
            self._stop.set()
            for q in self._queues:  # a worker may wait for room
                while not q.empty():
                    q.get_nowait()
            for t in self._threads:
                t.join(None if not self.loader.timeout else 0.1)

    def __del__(self):
        if hasattr(self, "_threads"):
            self.close()


def _stream_batches(loader, samples):
    if not loader._collates:
        yield from map(loader.collate_fn, samples)
        return
    while batch := list(itertools.islice(samples, loader.batch_size)):
        if len(batch) == loader.batch_size or not loader.drop_last:
            yield loader.collate_fn(batch)


def _round_robin(queues, timeout):
    from queue import Empty

    while queues:
        q = queues.popleft()
        try:
            kind, value = q.get(timeout=timeout or None)
        except Empty:
            raise RuntimeError(f"DataLoader: timed out after {timeout} seconds") from None
        if kind == "error":
            raise value
        if kind == "batch":
            queues.append(q)
            yield value


def _stream_worker(loader, seed, worker, q, stop):
    from queue import Full

    def put(item):
        while not stop.is_set():
            try:
                return q.put(item, timeout=0.05)
            except Full:
                pass

    try:
        set_worker_info(WorkerInfo(worker, loader.num_workers, seed + worker, loader.dataset))
        if loader.worker_init_fn is not None:
            loader.worker_init_fn(worker)
        for batch in _stream_batches(loader, iter(loader.dataset)):
            put(("batch", batch))
            if stop.is_set():
                return
        put(("end", None))
    except Exception as e:
        put(("error", _named(e, f"worker {worker}")))
