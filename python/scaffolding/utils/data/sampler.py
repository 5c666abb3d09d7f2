"""Samplers: the order in which a DataLoader visits a data set. Orders are torch's for the same generator seed.

A sampler with state_dict and load_state_dict can be resumed: its state is taken before the epoch's order is drawn, and
the next iteration after load_state_dict draws that order again.
"""

import itertools

from ... import _core


def _positive(who, name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{who}: {name} must be a positive integer, got {value!r}")


class Sampler:
    """An iterable of indices (or of lists of them, as a batch sampler).

    >>> class Backwards(sf.utils.data.Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> list(Backwards())
    [2, 1, 0]
    """

    def __iter__(self):
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler):
    """0, 1, 2, ...

    >>> list(sf.utils.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        """Goes on from a state_dict()."""
        pass


class _Drawn(Sampler):
    """A sampler that draws its order from `generator`, or from a new one seeded by the default generator."""

    _seeds_its_own = False  # what torch's does without a generator: a new one, or the default generator itself

    def __init__(self, generator):
        self.generator = generator
        self._state = None  # before the order under way was drawn
        self._resume = None

    def __iter__(self):
        # Drawn now, not at the first item: state_dict() must know the state at once.
        generator = self.generator
        if generator is None and (self._seeds_its_own or self._resume is not None):
            generator = _core.Generator()
            if self._resume is None:
                generator.manual_seed(int(_core.empty((), dtype=_core.int64).random_().item()))
        if self._resume is not None:
            generator.set_state(self._resume)
            self._resume = None
        self._state = (generator or _core._default_generator()).get_state()
        return self._draw(generator)

    def state_dict(self):
        return {"generator_state": self._state if self._resume is None else self._resume}

    def load_state_dict(self, state_dict):
        """Goes on from a state_dict()."""
        self._resume = state_dict["generator_state"]


class RandomSampler(_Drawn):
    """A permutation of the data set; with replacement=True, num_samples independent draws.

    >>> sorted(sf.utils.data.RandomSampler(range(4)))
    [0, 1, 2, 3]
    """

    _seeds_its_own = True

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        super().__init__(generator)
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement must be a bool, got {replacement!r}")
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples
        _positive("RandomSampler", "num_samples", self.num_samples)

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _draw(self, generator):
        n = len(self.data_source)
        if self.replacement:
            for _ in range(self.num_samples // 32):
                yield from _core.randint(0, n, (32,), generator=generator).tolist()
            yield from _core.randint(0, n, (self.num_samples % 32,), generator=generator).tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from _core.randperm(n, generator=generator).tolist()
            yield from _core.randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(_Drawn):
    """A permutation of the given indices.

    >>> sorted(sf.utils.data.SubsetRandomSampler([5, 7, 9]))
    [5, 7, 9]
    """

    def __init__(self, indices, generator=None):
        super().__init__(generator)
        self.indices = indices

    def _draw(self, generator):
        return iter([self.indices[i] for i in _core.randperm(len(self.indices), generator=generator).tolist()])

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(_Drawn):
    """num_samples indices drawn with probabilities in proportion to weights.

    >>> list(sf.utils.data.WeightedRandomSampler([0.0, 1.0], num_samples=3))
    [1, 1, 1]
    """

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        super().__init__(generator)
        _positive("WeightedRandomSampler", "num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"WeightedRandomSampler: replacement must be a bool, got {replacement!r}")
        self.weights = _core.as_tensor(weights, dtype=_core.float64)
        if self.weights.dim() != 1:
            raise ValueError(f"WeightedRandomSampler: weights must have one dimension, got {tuple(self.weights.shape)}")
        self.num_samples, self.replacement = num_samples, replacement

    def _draw(self, generator):
        return iter(_core.multinomial(self.weights, self.num_samples, self.replacement, generator=generator).tolist())

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of batch_size indices of sampler; the last may be shorter, unless drop_last.

    >>> list(sf.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler, batch_size, drop_last):
        _positive("BatchSampler", "batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last must be a bool, got {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        return self._batches(iter(self.sampler))

    def _batches(self, indices):
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size

    def state_dict(self):
        return {"sampler": self.sampler.state_dict() if hasattr(self.sampler, "state_dict") else None}

    def load_state_dict(self, state_dict):
        """Goes on from a state_dict()."""
        if state_dict["sampler"] is not None:
            self.sampler.load_state_dict(state_dict["sampler"])
