"""Rows of tensors in a folder (scaffolding.data.cache_rows)."""

import pickle

import pytest

import scaffolding as sf
from scaffolding.data import CachedRows, RowWriter, cache_rows
from scaffolding.utils.data import DataLoader


def batches(n):
    for i in range(0, n, 3):
        yield {"numbers": sf.arange(i, min(i + 3, n))}


def encode(batch):
    n = batch["numbers"]
    return {"latents": n.float().reshape(-1, 1, 1).expand(len(n), 2, 2) * sf.ones(1, requires_grad=True), "text": n}


def test_rows_are_computed_once(tmp_path):
    calls = []

    def counted(batch):
        calls.append(1)
        assert not sf.is_grad_enabled()
        return encode(batch)

    rows = cache_rows(tmp_path / "cache", batches(8), counted, rows_per_file=4)
    assert len(calls) == 3 and len(rows) == 8 and rows.names == ["latents", "text"]
    again = cache_rows(tmp_path / "cache", batches(8), counted)
    assert len(calls) == 3
    for i in range(8):
        assert sf.equal(again[i]["latents"], sf.full((2, 2), float(i))) and int(again[i]["text"]) == i
    assert int(rows[-1]["text"]) == 7 and int(pickle.loads(pickle.dumps(rows))[3]["text"]) == 3
    with pytest.raises(IndexError, match="row 8 of 8"):
        rows[8]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_them(tmp_path, workers):
    rows = cache_rows(tmp_path, batches(10), encode, rows_per_file=3)
    seen = []
    for batch in DataLoader(rows, batch_size=4, shuffle=True, num_workers=workers):
        assert batch["latents"].shape == (len(batch["text"]), 2, 2)
        assert sf.equal(batch["latents"][:, 0, 0], batch["text"].float())
        seen += batch["text"].tolist()
    assert sorted(seen) == list(range(10))


def test_rows_of_other_settings_are_not_taken(tmp_path):
    cache_rows(tmp_path, batches(5), encode, about="at 512")
    assert len(cache_rows(tmp_path, batches(5), encode, about="at 512")) == 5 and CachedRows(tmp_path).about == "at 512"
    with pytest.raises(ValueError, match="are about 'at 512', not 'at 768'"):
        cache_rows(tmp_path, batches(5), encode, about="at 768")


def test_what_was_not_finished_is_begun_anew(tmp_path):
    def broken():
        yield from batches(6)
        raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="power"):
        cache_rows(tmp_path, broken(), encode, rows_per_file=2)
    with pytest.raises(ValueError, match="there is no file"):
        CachedRows(tmp_path)
    assert len(cache_rows(tmp_path, batches(5), encode)) == 5
    with pytest.raises(ValueError, match="holds a cache already"):
        RowWriter(str(tmp_path))
    with pytest.raises(ValueError, match="no rows were added"):
        cache_rows(tmp_path / "empty", [], encode)
