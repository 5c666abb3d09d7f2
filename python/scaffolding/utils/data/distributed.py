"""DistributedSampler: each process's part of a data set, in torch's order."""

import itertools
import math

from ... import _core, distributed
from .sampler import Sampler


class DistributedSampler(Sampler):
    """The indices of process `rank` of `num_replicas`: every num_replicas-th of one order, which is drawn from seed +
    epoch where shuffle.

    All parts are of one size: samples from the beginning are repeated at the end, or with drop_last some are left out.
    set_epoch(n) before each epoch gives it an order of its own; the same one again otherwise, so that a loader resumes.

    >>> list(sf.utils.data.DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        self.num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        self.rank = distributed.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: rank must be 0 to {self.num_replicas - 1}, got {self.rank}")
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        self.epoch = 0
        n = len(dataset)
        if n == 0 or (drop_last and n < self.num_replicas):
            raise ValueError(f"DistributedSampler: {n} samples leave none for one of {self.num_replicas} processes")
        self.num_samples = n // self.num_replicas if drop_last else math.ceil(n / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        n = len(self.dataset)
        if self.shuffle:
            indices = _core.randperm(n, generator=_core.Generator().manual_seed(self.seed + self.epoch)).tolist()
        else:
            indices = list(range(n))
        indices = (indices * math.ceil(self.total_size / n))[: self.total_size]
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """The number of the epoch that the next iteration draws."""
        self.epoch = epoch

    def state_dict(self):
        return {"epoch": self.epoch}

    def load_state_dict(self, state_dict):
        """Goes on from a state_dict()."""
        self.epoch = state_dict["epoch"]


class PartsSampler(Sampler):
    """The batches of this process's parts of each step, for DistributedDataParallel.parts and Trainer(parts=...).

    batch_sampler: gives the batches of all processes, in one order everywhere (seed all alike): of every `parts` of
    them, a step, process `rank` of `num_replicas` has parts / num_replicas neighbours. What is left over at the end of
    an epoch is left out.

    >>> batches = sf.utils.data.BatchSampler(range(8), batch_size=2, drop_last=True)
    >>> list(sf.utils.data.PartsSampler(batches, parts=2, num_replicas=2, rank=0))
    [[0, 1], [4, 5]]
    """

    def __init__(self, batch_sampler, parts, num_replicas=None, rank=None):
        self.num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        self.rank = distributed.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"PartsSampler: rank must be 0 to {self.num_replicas - 1}, got {self.rank}")
        if parts < 1 or parts % self.num_replicas:
            raise ValueError(f"PartsSampler: {parts} parts cannot be divided among {self.num_replicas} processes")
        if len(batch_sampler) < parts:
            raise ValueError(f"PartsSampler: {len(batch_sampler)} batches are no step of {parts} parts")
        self.batch_sampler, self.parts = batch_sampler, parts
        self.own = parts // self.num_replicas

    def __iter__(self):
        batches = iter(self.batch_sampler)  # now: it draws its order

        def own():
            first = self.rank * self.own
            while len(step := list(itertools.islice(batches, self.parts))) == self.parts:
                yield from step[first : first + self.own]

        return own()

    def __len__(self):
        return len(self.batch_sampler) // self.parts * self.own

    def state_dict(self):
        return self.batch_sampler.state_dict()

    def load_state_dict(self, state_dict):
        """Goes on from a state_dict()."""
        self.batch_sampler.load_state_dict(state_dict)
