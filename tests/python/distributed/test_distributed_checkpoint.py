"""Checkpoints by several processes: written by all, read by any number, whole or absent."""

import json
import os
import pathlib
import textwrap
import threading

import pytest
from processes import together

import scaffolding as sf
from scaffolding import safetensors
from scaffolding.distributed import checkpoint

STATE = """
from scaffolding.distributed import checkpoint
import pathlib, sys
folder = pathlib.Path(os.environ["FOLDER"])
dist.init_process_group(timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
TOTAL = 3_000_001


def rows_of(total):
    first = total * rank // size
    return first, total * (rank + 1) // size - first


def state(fill=True):
    g = sf.Generator().manual_seed(9)
    make = (lambda *s: sf.randn(*s, generator=g)) if fill else (lambda *s: sf.zeros(*s))
    first, n = rows_of(TOTAL)
    table = make(TOTAL, 2)[first : first + n].clone()
    return {
        "model": {
            "weight": make(301, 7).t(),
            "half": make(1_000_003).to(sf.bfloat16),
            "table": checkpoint.Rows(table, first, TOTAL),
            "mask": make(5) > 0,
            "scalar": make(1)[0],
            "empty": sf.zeros(0, 3),
        },
        "optimizer": {"state": {0: {"step": make(1), "exp_avg": make(301, 7)}}, "groups": [{"lr": 0.1 * fill}]},
        "step": 7 if fill else 0,
        "more": [make(3), (1, "two", None)],
    }


def same(a, b):
    from scaffolding.distributed.checkpoint._tree import leaves

    a, b = leaves(a), leaves(b)
    assert list(a) == list(b)
    for name in a:
        x, y = (v.tensor if isinstance(v, checkpoint.Rows) else v for v in (a[name][1], b[name][1]))
        assert sf.equal(x, y) if isinstance(x, sf.Tensor) else x == y, name
"""
SAVE = STATE + "checkpoint.save(state(), folder / 'c', max_shard_bytes=12_000_000)\n"
LOAD = STATE + "s = state(False)\ncheckpoint.load(s, folder / 'c')\nsame(s, state())\nprint('ok')\n"


def with_state(program):
    return STATE + textwrap.dedent(program)


def run(program, folder, size=2, **variables):
    return together(program, size=size, timeout=240, FOLDER=str(folder), **variables)


def test_any_number_of_processes_reads_what_another_has_written(tmp_path):
    run(SAVE, tmp_path, size=3)
    assert os.listdir(tmp_path) == ["c"]
    for size in (1, 2, 4):
        assert run(LOAD, tmp_path, size=size) == ["ok"] * size


def test_the_files_are_ordinary(tmp_path):
    run(SAVE, tmp_path, size=2)
    names = sorted(os.listdir(tmp_path / "c"))
    model = [n for n in names if n.startswith("model-")]
    assert len(model) > 1 and "model.safetensors.index.json" in names and "optimizer.safetensors" in names
    index = json.loads((tmp_path / "c/model.safetensors.index.json").read_text())
    tensors = {}
    for file in model:
        tensors |= safetensors.load_file(tmp_path / "c" / file)
    assert set(tensors) == set(index["weight_map"]) == {"weight", "half", "table", "mask", "scalar", "empty"}
    assert list(tensors["table"].shape) == [3_000_001, 2] and list(tensors["weight"].shape) == [7, 301]
    assert all(name in safetensors.load_file(tmp_path / "c" / file) for name, file in index["weight_map"].items())
    whole = checkpoint.load_state_dict(tmp_path / "c")
    assert sf.equal(whole["model"]["table"], tensors["table"]) and whole["step"] == 7
    assert list(whole["optimizer"]["state"]) == [0] and whole["more"][1] == (1, "two", None)
    assert list(checkpoint.load_state_dict(tmp_path / "c", keys=["optimizer"])) == ["optimizer"]


def test_each_process_writes_its_share(tmp_path):
    outputs = run(
        with_state("""
        from scaffolding.distributed.checkpoint import _writing
        written = 0
        pwrite = os.pwrite
        def counted(fd, data, at):
            global written
            written += len(data)
            return pwrite(fd, data, at)
        os.pwrite = counted
        checkpoint.save({"model": {"a": sf.ones(4_000_000), "b": sf.ones(12_000_000)}}, folder / "c")
        print(written)
        """),
        tmp_path,
        size=4,
    )
    shares = [int(n) for n in outputs]
    assert sum(shares) == 64_000_000 and max(shares) - min(shares) < 9 << 20, shares


def test_gather_needs_no_shared_folder(tmp_path):
    run(
        with_state("""
        own = folder / ("c" if rank == 0 else f"elsewhere-{rank}")
        checkpoint.save(state(), own, gather=True)
        assert own.exists() == (rank == 0)
        s = state(False)
        checkpoint.load(s, own, gather=True)
        same(s, state())
        """),
        tmp_path,
        size=3,
    )
    assert run(LOAD, tmp_path, size=2) == ["ok", "ok"]
    errors = run(
        with_state("""
        from scaffolding.distributed.checkpoint._writing import Saving
        find = Saving._find
        Saving._find = lambda self: find(self) if rank == 0 else os.stat(folder / "another machine's")
        try:
            checkpoint.save({"a": sf.ones(2)}, folder / "d")
        except RuntimeError as e:
            print(e)
        """),
        tmp_path,
    )
    assert all("rank 1: " in e and "pass gather=True" in e for e in errors)
    assert os.listdir(tmp_path) == ["c"]


def test_training_goes_on_while_a_copy_is_written(tmp_path):
    run(
        with_state("""
        s = state()
        future = checkpoint.async_save(s, folder / "c")
        for leaf in (s["model"]["weight"], s["model"]["table"].tensor, s["more"][0]):
            leaf.zero_()
        dist.all_reduce(sf.ones(3))     # the training's own group is free
        assert future.result(timeout=60) == str(folder / "c")
        checkpoint.async_save({"again": sf.ones(2)}, folder / "d")
        dist.destroy_process_group()    # waits for it
        assert (folder / "d" / "manifest.json").exists()
        """),
        tmp_path,
    )
    assert run(LOAD, tmp_path, size=2) == ["ok", "ok"]


FULL = with_state("""
import resource
checkpoint.save(state(), folder / "c")
if rank == int(os.environ["WHO"]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, -1))
begun = __import__("time").time()
for way in (checkpoint.save, lambda *a, **k: checkpoint.async_save(*a, **k).result()):
    try:
        way({"model": {"a": sf.ones(8_000_000)}}, folder / "c", gather=os.environ["GATHER"] == "1")
    except RuntimeError as e:
        print(e)
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
assert __import__("time").time() - begun < 30
dist.all_reduce(t := sf.ones(2))    # the group is whole
assert t.tolist() == [size, size]
""")


@pytest.mark.parametrize("who, gather", [(1, 0), (0, 0), (0, 1)])
def test_a_full_disk_in_one_process_is_an_error_in_all(tmp_path, who, gather):
    for out in run(FULL, tmp_path, size=3, WHO=str(who), GATHER=str(gather)):
        assert len(out.split("\n")) == 2, out
        for error in out.split("\n"):
            assert f"rank {who}: " in error and "model.safetensors" in error and "File too large" in error, error
            assert "the checkpoint that was there before is whole; make room" in error
    assert os.listdir(tmp_path) == ["c"]
    assert run(LOAD, tmp_path, size=2) == ["ok", "ok"]


def test_a_process_that_dies_while_it_writes(tmp_path):
    outputs = run(
        with_state("""
        import time
        checkpoint.save(state(), folder / "c")
        pwrite = os.pwrite
        def dies(fd, data, at):
            os._exit(0)     # without a word, as by a signal
        if rank == 1:
            os.pwrite = dies
        begun = time.time()
        try:
            checkpoint.save({"model": {"a": sf.ones(30_000_000)}}, folder / "c")
        except RuntimeError as e:
            print(e)
        assert time.time() - begun < 30
        """),
        tmp_path,
        size=3,
    )
    assert outputs[1] == "" and all("rank 1 is gone" in outputs[rank] for rank in (0, 2)), outputs
    assert os.listdir(tmp_path) == ["c"]
    assert run(LOAD, tmp_path, size=2) == ["ok", "ok"]


def test_what_is_missing_or_damaged_is_named_everywhere(tmp_path):
    run(SAVE, tmp_path, size=2)
    file = sorted((tmp_path / "c").glob("model-*"))[-1]
    bytes_before = file.read_bytes()
    fails = LOAD.replace(
        "checkpoint.load(s, folder / 'c')",
        "\ntry:\n    checkpoint.load(s, folder / 'c')\nexcept RuntimeError as e:\n    print(e)\n    sys.exit(0)",
    )
    flipped = bytearray(bytes_before)
    flipped[-1] ^= 1
    for content, text in [
        (flipped, "are damaged: their checksum is not the one that was written"),
        (bytes_before[:-1], f"has {len(bytes_before) - 1} bytes, {len(bytes_before)} were written"),
        (None, "is missing from the checkpoint"),
    ]:
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        for out in run(fails, tmp_path, size=2):
            assert str(file) in out and text in out and "rank " in out and "load an older checkpoint" in out, out
    file.write_bytes(bytes_before)
    assert run(LOAD, tmp_path, size=1) == ["ok"]


def test_only_the_rows_that_are_needed_are_read(tmp_path):
    run(SAVE, tmp_path, size=2)
    outputs = run(
        with_state("""
        read = 0
        preadv = os.preadv
        def counted(fd, buffers, at):
            global read
            read += sum(map(len, buffers))
            return preadv(fd, buffers, at)
        os.preadv = counted
        first, n = rows_of(TOTAL)
        checkpoint.load({"model": {"table": checkpoint.Rows(sf.zeros(n, 2), first, TOTAL)}}, folder / "c")
        print(read)
        """),
        tmp_path,
        size=4,
    )
    assert all(6_000_000 <= int(n) <= 6_000_000 + (8 << 20) for n in outputs), outputs  # of 24 MB


def test_states_that_do_not_fit_together(tmp_path):
    outputs = run(
        with_state("""
        def error(s, op=checkpoint.save):
            try:
                op(s, folder / "c")
            except (RuntimeError, TypeError, ValueError) as e:
                print(e)
        error({"a": sf.ones(2 + rank)})
        error({"a": checkpoint.Rows(sf.ones(2, 2), 3 * rank, 6)})
        error({"a": checkpoint.Rows(sf.ones(2, 2), rank, 6)})
        error({"a": object()})
        error({"a/b": {"x": sf.ones(1)}})
        checkpoint.save({"a": sf.ones(2)}, folder / "c")
        error({"a": sf.ones(3)}, checkpoint.load)
        error({"b": sf.ones(3)}, checkpoint.load)
        """),
        tmp_path,
    )
    for out in outputs:
        lines = out.split("\n")
        assert "'a' must be alike in all processes, rank 0 has [2] float32, rank 1 has [3] float32" in lines[0]
        assert "rows 2 to 3 of 'a' are held by no process" in lines[1]
        assert "row 1 of 'a' is held by rank 1 and another" in lines[2]
        assert "rank 0: 'a': " in lines[3] and "cannot be sent" in lines[3]
        assert "a top-level key names files" in lines[4] and "'a/b'" in lines[4]
        assert "'a' has shape [2] there, [3] in this state" in lines[5]
        assert "has no tensor 'b'; it has a" in lines[6]


def test_a_reader_sees_the_old_or_the_new_one(tmp_path):
    """One thread replaces a checkpoint again and again, another reads it."""
    path, ends = tmp_path / "c", threading.Event()

    def state(n):
        return {"a": sf.full((50_000,), n), "b": {"c": sf.full((3, 4), n)}, "n": n}

    checkpoint.save(state(0.0), path)
    seen, wrong = set(), []

    def read():
        while not ends.is_set():
            try:
                s = state(-1.0)
                checkpoint.load(s, path)
                values = {s["a"].min().item(), s["a"].max().item(), s["b"]["c"][2, 3].item(), s["n"]}
                seen.add(s["n"])
                if len(values) != 1:
                    wrong.append(values)
            except Exception as e:
                wrong.append(e)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(60):
        checkpoint.save(state(float(n)), path)
    ends.set()
    reader.join()
    assert not wrong and len(seen) > 3, (wrong[:3], seen)
    assert os.listdir(tmp_path) == ["c"]


def test_what_was_cut_off(tmp_path):
    checkpoint.save({"a": sf.ones(2)}, tmp_path / "c")
    os.rename(tmp_path / "c", tmp_path / "c.1f-2.old")  # between the two renames of a file system without exchange
    (tmp_path / "c.1f-2.tmp").mkdir()
    (tmp_path / "c.1f-2.tmp" / "a.safetensors").write_bytes(b"half")
    checkpoint.load(s := {"a": sf.zeros(2)}, tmp_path / "c")
    assert s["a"].tolist() == [1, 1]
    checkpoint.save({"a": sf.zeros(2)}, tmp_path / "c")
    assert os.listdir(tmp_path) == ["c"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").write_text("dear")
    with pytest.raises(RuntimeError, match="is there and is no checkpoint; nothing was replaced"):
        checkpoint.save({"a": sf.zeros(2)}, tmp_path / "mine")
    assert (tmp_path / "mine" / "diary").read_text() == "dear"
    with pytest.raises(RuntimeError, match="there is no checkpoint; save writes one"):
        checkpoint.load({"a": sf.zeros(2)}, tmp_path / "nowhere")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(version=2),
        lambda m: m["sizes"].update({"../../x": 3}),
        lambda m: m["tensors"]["a"].update(at=-8),
        lambda m: m["tensors"]["a"].update(shape=[1 << 62, 4]),
        lambda m: m["tensors"]["a"].update(dtype="object"),
        lambda m: m["tensors"]["a"].update(pieces=[[1 << 40, 0]]),
        lambda m: m["tensors"]["a"].update(file="/etc/passwd"),
        lambda m: m.update(values=[[["n"], {"pickle": []}]]),
        lambda m: m.pop("tensors"),
    ],
)
def test_manifests_that_lie(tmp_path, change):
    checkpoint.save({"a": sf.ones(2), "n": 3}, tmp_path / "c")
    manifest = pathlib.Path(tmp_path / "c" / "manifest.json")
    content = json.loads(manifest.read_text())
    change(content)
    manifest.write_text(json.dumps(content))
    with pytest.raises(RuntimeError, match="manifest.json: is damaged or of another version"):
        checkpoint.load({"a": sf.zeros(2), "n": 0}, tmp_path / "c")
