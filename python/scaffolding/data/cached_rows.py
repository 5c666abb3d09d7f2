"""Rows of tensors in a folder: latents and embedded captions that are computed once and read in every epoch of a
training.
"""

import os

from .._core import _data
from .._documents import add_to as _add_document
from ..autograd.grad_mode import no_grad
from ..utils.data.dataset import Dataset

RowWriter = _data.RowWriter
_add_document(RowWriter, "data")


def cache_rows(folder, batches, encode=None, rows_per_file=256, about=""):
    """Computes `encode(batch)` of every batch, without gradients, and writes the rows into a folder; returns it as
    CachedRows.

    encode returns a dict of tensors [N, ...] by name; without it the batches are such dicts. A folder with a whole
    cache is read and nothing is computed; what was not finished is begun anew. rows_per_file rows are in memory at a
    time. about: text that says what the rows are computed from and how;
    ValueError where the folder's were computed otherwise.

    >>> batches = [sf.zeros(2, 3), sf.ones(2, 3)]
    >>> rows = sf.data.cache_rows("doubled", batches, lambda batch: {"x": batch * 2})
    >>> rows[3]["x"]
    tensor([2., 2., 2.])
    """
    folder = os.fspath(folder)
    if not os.path.isfile(os.path.join(folder, "rows.json")):
        writer = RowWriter(folder, rows_per_file, about)
        with no_grad():
            for batch in batches:
                writer.add(dict(encode(batch) if encode else batch))
        writer.finish()
    return CachedRows(folder, about)


class CachedRows(Dataset):
    """The rows that cache_rows wrote: a data set whose samples are dicts of tensors, mapped from the files and not
    copied.

    ValueError for a folder without a whole cache, for files that do not fit together, and, where `about` is given, for
    rows about something else.

    >>> rows = sf.data.cache_rows("rows", [{"latents": sf.zeros(4, 8)}])
    >>> len(rows), rows[0]["latents"].shape
    (4, scaffolding.Size([8]))
    """

    def __init__(self, folder, about=None):
        self.folder = os.fspath(folder)
        self._native = _data.CachedRows(self.folder, about)

    @property
    def about(self):
        """What cache_rows was told of the rows."""
        return self._native.about()

    def __len__(self):
        return len(self._native)

    def __getitem__(self, index):
        return self._native.get(index + len(self) if index < 0 else index)

    @property
    def names(self):
        """What the tensors of a row are called."""
        return self._native.names()

    def __reduce__(self):
        return CachedRows, (self.folder,)
