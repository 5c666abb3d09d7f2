"""DataLoader: batches of a data set, epoch after epoch.

Workers are threads. Data sets of scaffolding.data are decoded in C++ without the interpreter's lock; for those written
in Python the workers call __getitem__ at the same time as each other, on one shared object.
"""

import warnings
import weakref

from ... import _core
from .collate import default_collate, default_convert
from .dataset import IterableDataset, Subset
from .epoch import InlineEpoch, NativeEpoch, StreamEpoch, ThreadedEpoch
from .sampler import BatchSampler, RandomSampler, SequentialSampler


def _native_of(dataset):
    """(the C++ data set, the indices of it that dataset has or None), or (None, None)
    where samples pass through Python.
    """
    if isinstance(dataset, Subset):
        native, inner = _native_of(dataset.dataset)
        if native is None:
            return None, None
        return native, list(dataset.indices) if inner is None else [inner[i] for i in dataset.indices]
    return getattr(dataset, "_native_if_whole", None), None


class DataLoader:
    """Batches of a data set, with torch.utils.data.DataLoader's arguments, and its order for the same generator seed.

    num_workers: threads that work ahead by prefetch_factor batches each (2), and for native data sets by at most
    SF_PREFETCH_MB megabytes; 0 works when a batch is asked for. Order, and the augmentation of native transforms,
    do not depend on it.
    worker_init_fn(worker_id) runs in each thread before its first sample. timeout:
    seconds to wait for a batch (RuntimeError).
    pin_memory: the tensors of a batch lie in pinned memory, from which batch.to("cuda", non_blocking=True) copies while
    the program goes on; without a GPU a warning says that it has no effect. persistent_workers is accepted and changes
    nothing: threads are cheap to start and share the memory.

    A sample that raises scaffolding.data.BrokenSample is left out of its batch, with a warning; `skipped` lists them
    and report() says how many. Every other error stops the epoch and names the sample. state_dict()
    says where the epoch stands;
    a loader that is given it goes on with exactly the samples that were not handed out.

    Raises ValueError for arguments that contradict each other and for an empty data set.

    >>> samples = sf.utils.data.TensorDataset(sf.arange(5))
    >>> [batch for batch, in sf.data.DataLoader(samples, batch_size=2)]
    [tensor([0, 1]), tensor([2, 3]), tensor([4])]
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        self._check(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            drop_last,
            timeout,
            multiprocessing_context,
        )
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers or timeout):
            raise ValueError("DataLoader: prefetch_factor, persistent_workers and timeout need num_workers > 0")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"DataLoader: prefetch_factor must be positive, got {prefetch_factor}")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor or 2
        self.pin_memory, self.persistent_workers = pin_memory, persistent_workers
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.drop_last = drop_last
        self._streams = isinstance(dataset, IterableDataset)
        if batch_sampler is not None:
            batch_size, self.drop_last = None, False
        self.batch_size = batch_size
        if self._streams:
            sampler = None
        elif sampler is None and batch_sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and not self._streams:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self._collates = batch_sampler is not None or (self._streams and batch_size is not None)
        self._own_collate = collate_fn is not None
        self.collate_fn = collate_fn or (default_collate if self._collates else default_convert)
        self.epoch = 0
        self.skipped = []
        self._seen_broken = set()
        self._delivered = 0
        self._current = lambda: None  # a weak reference: leaving the loop ends the epoch and its threads
        self._progress = None
        self._resume = None

    @staticmethod
    def _check(
        dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, drop_last, timeout, multiprocessing_context
    ):
        if not isinstance(num_workers, int) or num_workers < 0:
            raise ValueError(f"DataLoader: num_workers must be 0 or a positive integer, got {num_workers!r}")
        if timeout < 0:
            raise ValueError(f"DataLoader: timeout must not be negative, got {timeout}")
        if multiprocessing_context is not None:
            raise ValueError("DataLoader: workers are threads; there is no multiprocessing_context")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler excludes shuffle")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None makes no batches that drop_last could drop")
        if batch_size is not None and (
            not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0
        ):
            raise ValueError(f"DataLoader: batch_size must be a positive integer, got {batch_size!r}")
        if isinstance(dataset, IterableDataset):
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ValueError(
                    "DataLoader: an IterableDataset has its own order: no shuffle, sampler or batch_sampler"
                )
            return
        if not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"DataLoader: dataset needs __getitem__, or to be an IterableDataset, got {type(dataset).__name__}"
            )
        size = len(dataset) if hasattr(dataset, "__len__") else None
        if size == 0:
            raise ValueError("DataLoader: the dataset is empty")
        if size is not None and drop_last and batch_size is not None and sampler is None and size < batch_size:
            raise ValueError(f"DataLoader: drop_last leaves no batch of {batch_size} in a dataset of {size}")

    @property
    def _index_sampler(self):
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self):
        if not self._streams:
            return len(self._index_sampler)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        """Starts an epoch, or goes on with the one that load_state_dict described. An epoch under way is abandoned."""
        self._close_current()
        resume, self._resume = self._resume, None
        if resume is not None and resume["generator"] is not None and self.generator is not None:
            self.generator.set_state(resume["generator"])
        if resume is not None and resume["base_seed"] is not None:
            seed, done = resume["base_seed"], resume["batches"]
            if resume["sampler"] is not None:
                self._index_sampler.load_state_dict(resume["sampler"])
        else:
            seed, done = int(_core.empty((), dtype=_core.int64).random_(generator=self.generator).item()), 0
        native, mapping = (None, None) if self._streams else _native_of(self.dataset)
        if self._streams:
            epoch = StreamEpoch(self, seed, done)
        elif native is not None and self.batch_sampler is not None and self.worker_init_fn is None:
            epoch = NativeEpoch(self, seed, done, native, mapping)
        else:
            epoch = (ThreadedEpoch if self.num_workers else InlineEpoch)(self, seed, done)
        self._current, self._progress = weakref.ref(epoch), epoch.progress
        return epoch

    def _close_current(self):
        epoch = self._current()
        if epoch is not None:
            epoch.close()

    def _note_skipped(self, skipped):
        for index, name, reason in skipped:
            if name in self._seen_broken:
                continue
            self._seen_broken.add(name)
            self.skipped.append((name, reason))
            warnings.warn(f"DataLoader: skipped a broken sample: {reason}", stacklevel=4)

    def report(self):
        """A sentence on what was delivered and skipped so far."""
        text = (
            f"{self.epoch} epochs finished, {self._delivered} batches delivered, {len(self.skipped)} broken "
            "samples skipped"
        )
        return text + "".join(f"\n  {name}: {reason}" for name, reason in self.skipped)

    def state_dict(self):
        """Where the loader stands, to be taken between batches: finished epochs, batches handed out of the one under
        way, and what its order was drawn from. A sampler without state_dict is expected to give the same order again.
        """
        if self._resume is not None:
            return dict(self._resume)
        now = self._progress
        if now is None or now.finished:
            generator = None if self.generator is None else self.generator.get_state()
            return {"epoch": self.epoch, "batches": 0, "base_seed": None, "sampler": None, "generator": generator}
        return {
            "epoch": self.epoch,
            "batches": now.done,
            "base_seed": now.seed,
            "sampler": now.sampler_state,
            "generator": now.generator_state,
        }

    def load_state_dict(self, state_dict):
        """Takes a state from state_dict; the next epoch begins there.
        ValueError where it cannot belong to this loader.
        """
        wanted = {"epoch", "batches", "base_seed", "sampler", "generator"}
        if set(state_dict) != wanted:
            raise ValueError(f"DataLoader: a state has the keys {sorted(wanted)}, got {sorted(state_dict)}")
        if not self._streams and hasattr(self._index_sampler, "__len__") and state_dict["batches"] > len(self):
            raise ValueError(
                f"DataLoader: the state stands at batch {state_dict['batches']}, an epoch here has {len(self)}"
            )
        self._close_current()
        self._progress = None
        self.epoch = state_dict["epoch"]
        self._resume = dict(state_dict)
