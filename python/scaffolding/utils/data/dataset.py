"""Data sets: maps from an index to a sample, or streams of samples."""

import itertools
import math
import warnings

from ... import _core


class Dataset:
    """A map from 0 .. len(self) - 1 to samples. Subclasses have __getitem__ and, for the usual samplers, __len__.

    >>> class Squares(sf.utils.data.Dataset):
    ...     def __len__(self):
    ...         return 5
    ...     def __getitem__(self, i):
    ...         return i * i
    >>> Squares()[3]
    9
    """

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """A stream of samples: subclasses have __iter__. With workers, each iterates a stream of its own:
    use get_worker_info() to divide them.

    >>> class Count(sf.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(4))
    >>> list(sf.data.DataLoader(Count(), batch_size=2))
    [tensor([0, 1]), tensor([2, 3])]
    """

    def __iter__(self):
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Sample i is the tuple of tensor[i] of each tensor; all must have the same size(0) (ValueError).

    >>> sf.utils.data.TensorDataset(sf.tensor([1., 2.]), sf.tensor([0, 1]))[1]
    (tensor(2.), tensor(1))
    """

    def __init__(self, *tensors):
        if not tensors:
            raise ValueError("TensorDataset: needs at least one tensor")
        if any(tensors[0].size(0) != t.size(0) for t in tensors):
            raise ValueError(f"TensorDataset: size(0) of the tensors must be equal, got {[t.size(0) for t in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self):
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Samples of several datasets side by side: sample i is the tuple of dataset[i], or a dict where datasets are given
    by name. All must be equally long (ValueError).

    >>> sf.utils.data.StackDataset(image=["a", "b"], label=[0, 1])[1]
    {'image': 'b', 'label': 1}
    """

    def __init__(self, *args, **kwargs):
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: needs datasets, either as arguments (tuples) or by name (dicts)")
        lengths = [len(dataset) for dataset in (args or kwargs.values())]
        if len(set(lengths)) != 1:
            raise ValueError(f"StackDataset: datasets must be equally long, got {lengths}")
        self.datasets = args or kwargs
        self._length = lengths[0]

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices):
        """Samples of a list of indices; datasets with a __getitems__ of their own are asked for all at once."""
        columns = {}
        named = isinstance(self.datasets, dict)
        for name, dataset in self.datasets.items() if named else enumerate(self.datasets):
            several = getattr(dataset, "__getitems__", None)
            columns[name] = several(indices) if callable(several) else [dataset[i] for i in indices]
            if len(columns[name]) != len(indices):
                raise ValueError(f"StackDataset: {len(indices)} samples were asked for, {len(columns[name])} came")
        rows = zip(*columns.values())
        return [dict(zip(columns, row)) for row in rows] if named else [tuple(row) for row in rows]

    def __len__(self):
        return self._length


class ConcatDataset(Dataset):
    """Several data sets one after the other.

    >>> both = sf.utils.data.ConcatDataset([["a", "b"], ["c"]])
    >>> len(both), both[2]
    (3, 'c')
    """

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: needs at least one dataset")
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise TypeError("ConcatDataset: does not take an IterableDataset; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        if index < -len(self) or index >= len(self):
            raise IndexError(f"ConcatDataset: index must be below {len(self)}, got {index}")
        index %= len(self)
        which = next(i for i, end in enumerate(self.cumulative_sizes) if index < end)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """Several streams one after the other.

    >>> class Count(sf.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter([1, 2])
    >>> list(sf.utils.data.ChainDataset([Count(), Count()]))
    [1, 2, 1, 2]
    """

    def __init__(self, datasets):
        self.datasets = list(datasets)

    def __iter__(self):
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self):
        return sum(len(d) for d in self.datasets)


class Subset(Dataset):
    """The samples of dataset at the given indices.

    >>> sf.utils.data.Subset(["a", "b", "c"], [2, 0])[0]
    'c'
    """

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Subsets of random, disjoint samples. lengths: counts that sum to len(dataset) (ValueError otherwise), or
    fractions that sum to 1.

    The permutation is torch's for the same generator seed.

    >>> [len(part) for part in sf.utils.data.random_split(range(10), [0.7, 0.3])]
    [7, 3]
    """
    lengths = list(lengths)
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"random_split: the fraction at index {i} must be 0 to 1, got {fraction}")
        lengths = [math.floor(total * f) for f in lengths]
        for i in range(total - sum(lengths)):  # what rounding left over
            lengths[i % len(lengths)] += 1
        for i, length in enumerate(lengths):
            if length == 0:
                warnings.warn(f"random_split: the split at index {i} is empty", stacklevel=2)
    if sum(lengths) != total:
        raise ValueError(f"random_split: lengths must sum to the dataset's {total} samples, got {sum(lengths)}")
    order = _core.randperm(total, generator=generator).tolist()
    return [Subset(dataset, order[end - n : end]) for end, n in zip(itertools.accumulate(lengths), lengths)]
