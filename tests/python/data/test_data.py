"""scaffolding.utils.data and the data sets of scaffolding.data."""

import gc
import json
import os
import random
import subprocess
import sys
import tarfile
import threading
import time
import warnings
import weakref

import folders
import numpy
import pytest

import scaffolding as sf
from scaffolding import data
from scaffolding.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)

GOLDEN = json.loads((folders.GOLDEN / "data" / "orders.json").read_text())
T = data.transforms


def generator(seed):
    return sf.Generator().manual_seed(seed)


def lists(loader):
    return [b.tolist() for b in loader]


class Squares(Dataset):
    def __init__(self, n=23):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return sf.tensor([i, i * i]), f"s{i}"


@pytest.fixture
def pictures(tmp_path):
    """23 pictures of one colour each, with captions."""
    rows = []
    for i in range(23):
        data.write_image(tmp_path / f"{i:02}.png", sf.full((3, 8, 8), i, dtype=sf.uint8))
        rows.append(json.dumps({"file_name": f"{i:02}.png", "text": f"number {i}"}))
    (tmp_path / "metadata.jsonl").write_text("\n".join(rows))
    return tmp_path


# ---- torch's orders


@pytest.mark.parametrize("seed", [0, 42])
@pytest.mark.parametrize("workers", [0, 2])
def test_orders_are_torchs(seed, workers):
    numbers = list(range(23))
    g = generator(seed)
    loader = DataLoader(numbers, batch_size=4, shuffle=True, generator=g, num_workers=workers)
    assert [lists(loader) for _ in range(3)] == GOLDEN[f"shuffle generator {seed}"]
    sf.manual_seed(seed)
    loader = DataLoader(numbers, batch_size=5, shuffle=True, drop_last=True, num_workers=workers)
    assert [lists(loader) for _ in range(3)] == GOLDEN[f"shuffle default {seed}"]
    assert sf.randint(0, 1 << 30, (2,)).tolist() == GOLDEN[f"next draw {seed}"]
    sf.manual_seed(seed)
    assert lists(DataLoader(numbers, batch_size=7, num_workers=workers)) == GOLDEN[f"sequential {seed}"]
    assert sf.randint(0, 1 << 30, (2,)).tolist() == GOLDEN[f"next draw after sequential {seed}"]


@pytest.mark.parametrize("seed", [0, 42])
def test_samplers_and_splits_are_torchs(seed):
    numbers = list(range(23))
    assert (
        list(RandomSampler(numbers, replacement=True, num_samples=75, generator=generator(seed)))
        == GOLDEN[f"replacement {seed}"]
    )
    assert list(RandomSampler(numbers, num_samples=50, generator=generator(seed))) == GOLDEN[f"several rounds {seed}"]
    assert list(SubsetRandomSampler([5, 3, 9, 1, 7], generator=generator(seed))) == GOLDEN[f"subset {seed}"]
    weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
    assert list(WeightedRandomSampler(weights, 9, generator=generator(seed))) == GOLDEN[f"weighted {seed}"]
    assert [s.indices for s in random_split(numbers, [3, 12, 8], generator=generator(seed))] == GOLDEN[f"split {seed}"]
    assert [s.indices for s in random_split(numbers, [0.3, 0.3, 0.4], generator=generator(seed))] == GOLDEN[
        f"split fractions {seed}"
    ]


def test_parts_of_processes_are_torchs():
    numbers = list(range(23))
    for shuffle, drop_last, epoch in (
        (True, False, 0),
        (True, False, 3),
        (True, True, 1),
        (False, False, 0),
        (False, True, 0),
    ):
        samplers = [DistributedSampler(numbers, 4, rank, shuffle, seed=7, drop_last=drop_last) for rank in range(4)]
        for s in samplers:
            s.set_epoch(epoch)
        assert [list(s) for s in samplers] == GOLDEN[f"distributed {shuffle} {drop_last} {epoch}"]
        assert {len(s) for s in samplers} == {5 if drop_last else 6}
    assert [list(DistributedSampler(numbers[:3], 8, rank, False)) for rank in range(8)] == GOLDEN["distributed of few"]
    sampler = DistributedSampler(numbers, 4, 1)
    sampler.set_epoch(3)
    loader = DataLoader(numbers, batch_size=2, sampler=sampler)
    first, saved = next(iter(loader)), loader.state_dict()
    loader = DataLoader(numbers, batch_size=2, sampler=DistributedSampler(numbers, 4, 1))
    loader.load_state_dict(saved)
    assert first.tolist() + sum(lists(loader), []) == list(sampler)
    with pytest.raises(ValueError, match="rank must be 0 to 1, got 2"):
        DistributedSampler(numbers, 2, 2)
    with pytest.raises(ValueError, match="23 samples leave none for one of 30"):
        DistributedSampler(numbers, 30, 0, drop_last=True)


def test_the_native_path_has_the_same_order(pictures):
    for workers in (0, 2):
        loader = DataLoader(
            data.ImageFolder(pictures), batch_size=4, shuffle=True, generator=generator(42), num_workers=workers
        )
        assert [[b["index"].tolist() for b in loader] for _ in range(3)] == GOLDEN["shuffle generator 42"]


# ---- batches


def test_native_batches(pictures):
    folder = data.ImageFolder(pictures, T.Compose([T.Resize(4), T.ToFloat()]))
    batches = list(DataLoader(folder, batch_size=10, num_workers=2))
    assert [b["image"].shape for b in batches] == [(10, 3, 4, 4), (10, 3, 4, 4), (3, 3, 4, 4)]
    assert batches[1]["text"][0] == "number 10" and batches[1]["name"][0] == "10.png"
    assert abs(batches[1]["image"][3, 0, 0, 0].item() - 13 / 255) < 1e-6
    raw = next(iter(DataLoader(data.ImageFolder(pictures), batch_size=2)))["image"]
    assert raw.dtype == sf.uint8 and raw.is_contiguous() and raw[1, 2, 7, 7] == 1
    assert folder[3]["text"] == "number 3" and folder[-1]["index"] == 22 and folder.metadata(2)["file_name"] == "02.png"


def test_subsets_stay_native_and_collate_fn_is_called(pictures):
    folder = data.ImageFolder(pictures)
    first, second = random_split(folder, [5, 18], generator=generator(1))
    loader = DataLoader(Subset(second, range(4)), batch_size=3, num_workers=2)
    assert [b["index"].tolist() for b in loader] == [second.indices[:3], second.indices[3:4]]
    assert type(iter(loader)).__name__ == "NativeEpoch"
    loader = DataLoader(folder, batch_size=3, collate_fn=lambda samples: [s["text"] for s in samples], num_workers=1)
    assert next(iter(loader)) == ["number 0", "number 1", "number 2"]


def test_python_transforms_give_what_native_ones_give(pictures):
    native = T.Compose([T.RandomCrop(5), T.RandomHorizontalFlip(), T.ToFloat()])
    for workers in (0, 3):
        a = DataLoader(
            data.ImageFolder(pictures, native), batch_size=4, shuffle=True, generator=generator(5), num_workers=workers
        )
        b = DataLoader(
            data.ImageFolder(pictures, lambda x: native(x)),
            batch_size=4,
            shuffle=True,
            generator=generator(5),
            num_workers=workers,
        )
        for x, y in zip(a, b):
            assert (x["image"] == y["image"]).all() and x["text"] == y["text"] and (x["index"] == y["index"]).all()


def test_default_collate():
    batch = default_collate(
        [
            {"a": 1, "b": (sf.ones(2), "x"), "c": numpy.float32(2)},
            {"a": 3, "b": (sf.zeros(2), "y"), "c": numpy.float32(4)},
        ]
    )
    assert (
        batch["a"].tolist() == [1, 3]
        and batch["b"][0].shape == (2, 2)
        and batch["b"][1] == ["x", "y"]
        and batch["c"].tolist() == [2, 4]
    )
    assert default_collate([1.5, 2.5]).dtype == sf.float64 and default_collate([True, False]).dtype == sf.bool
    assert default_collate([numpy.ones((2, 3)), numpy.ones((2, 3))]).shape == (2, 2, 3)
    with pytest.raises(RuntimeError, match="one length"):
        default_collate([[1, 2], [1]])
    with pytest.raises(TypeError, match="found"):
        default_collate([object()])


def test_python_data_sets(pictures):
    x, y = sf.arange(10).reshape(5, 2), sf.arange(5)
    loader = DataLoader(TensorDataset(x, y), batch_size=2, num_workers=2)
    assert [b[1].tolist() for b in loader] == [[0, 1], [2, 3], [4]]
    both = ConcatDataset([Squares(3), Squares(2)])
    assert [both[i][1] for i in (0, 3, -1)] == ["s0", "s0", "s1"] and len(both) == 5
    assert next(iter(DataLoader(Squares(), batch_size=None)))[1] == "s0"
    assert list(BatchSampler(SequentialSampler(range(7)), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert (
        len(DataLoader(Squares(), batch_size=4)) == 6 and len(DataLoader(Squares(), batch_size=4, drop_last=True)) == 5
    )


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, 10, step)


def test_streams():
    assert lists(DataLoader(Stream(), batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert lists(DataLoader(Stream(), batch_size=4, num_workers=2)) == [[0, 2, 4, 6], [1, 3, 5, 7], [8], [9]]
    assert lists(DataLoader(Stream(), batch_size=4, num_workers=2, drop_last=True)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    loader = DataLoader(Stream(), batch_size=3, num_workers=2)
    whole = lists(loader)
    it = iter(loader)
    next(it), next(it)
    again = DataLoader(Stream(), batch_size=3, num_workers=2)
    again.load_state_dict(loader.state_dict())
    assert lists(again) == whole[2:]
    with pytest.raises(ValueError, match="own order"):
        DataLoader(Stream(), shuffle=True)


# ---- resuming


def same(a, b):
    if isinstance(a, dict):
        return all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return bool((a == b).all()) if isinstance(a, sf.Tensor) else a == b


@pytest.mark.parametrize("own_generator", [True, False])
@pytest.mark.parametrize("kind", ["native", "python", "buckets", "weighted"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_sees_exactly_the_rest(pictures, kind, own_generator, workers):
    random_parts = T.Compose([T.RandomCrop(6), T.ToFloat()])

    def make(seed):
        g = generator(seed) if own_generator else None
        if kind == "python":
            return DataLoader(Squares(), batch_size=4, shuffle=True, generator=g, num_workers=workers)
        folder = data.ImageFolder(pictures, random_parts)
        if kind == "buckets":
            sampler = data.BucketBatchSampler(folder, data.AspectBuckets(64, 8), 4, generator=g)
            return DataLoader(folder, batch_sampler=sampler, generator=g, num_workers=workers)
        if kind == "weighted":
            return DataLoader(
                folder,
                batch_size=4,
                sampler=WeightedRandomSampler([1.0] * 23, 23, generator=g),
                generator=g,
                num_workers=workers,
            )
        return DataLoader(folder, batch_size=4, shuffle=True, generator=g, num_workers=workers)

    sf.manual_seed(11)
    loader = make(11)
    list(loader)
    whole, after = list(loader), list(loader)
    for cut in (0, 1, 3, len(whole)):
        sf.manual_seed(11)
        loader = make(11)
        list(loader)
        seen = []
        for _, batch in zip(range(cut), loader):
            seen.append(batch)
            state, rng = loader.state_dict(), sf.get_rng_state()
        if cut == 0:
            state, rng = loader.state_dict(), sf.get_rng_state()
        again = make(77)
        sf.set_rng_state(rng)  # as a training run restores it
        again.load_state_dict(state)
        assert again.state_dict()["batches"] == cut
        assert same(seen + list(again), whole), cut
        assert again.epoch == 2
        assert same(list(again), after), cut


def test_a_state_that_cannot_be():
    loader = DataLoader(Squares(), batch_size=4)
    state = loader.state_dict()
    with pytest.raises(ValueError, match="stands at batch 9"):
        loader.load_state_dict({**state, "batches": 9})
    with pytest.raises(ValueError, match="has the keys"):
        loader.load_state_dict({"epoch": 1})


# ---- broken pictures and errors


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_broken_pictures_are_skipped_and_counted(pictures, workers, python):
    (pictures / "05.png").write_bytes((pictures / "05.png").read_bytes()[:40])
    (pictures / "06.png").unlink()
    folder = data.ImageFolder(pictures, (lambda x: x) if python else None)
    loader = DataLoader(folder, batch_size=4, num_workers=workers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sizes = [len(b["name"]) for b in loader]
    assert "05.png: is no whole PNG picture" in str(caught[0].message)
    assert sizes == [4, 2, 4, 4, 4, 3]
    assert len(caught) == 2 and len(loader.skipped) == 2 and "06.png: cannot open" in loader.skipped[1][1]
    assert "2 broken samples skipped" in loader.report() and [s[1] for s in folder.skipped] == ["05.png", "06.png"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert sum(len(b["name"]) for b in loader) == 21


def test_a_set_of_broken_pictures_is_an_error(pictures):
    for p in pictures.glob("*.png"):
        p.write_bytes(b"\x89PNG\r\n\x1a\n")
    for python in (None, lambda x: x):
        with pytest.raises(RuntimeError, match="every sample is broken; the first: .*.png"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            list(DataLoader(data.ImageFolder(pictures, python), batch_size=4, num_workers=2))


def test_pictures_of_several_sizes_need_a_crop(pictures):
    data.write_image(pictures / "01.png", sf.zeros(3, 8, 9).to(sf.uint8))
    with pytest.raises(ValueError, match="'00.png' is .3, 8, 8. uint8 and '01.png' .3, 8, 9.*AspectBuckets"):
        list(DataLoader(data.ImageFolder(pictures), batch_size=4))
    with pytest.raises(ValueError, match="'01.png': RandomCrop: the image must be at least 8 x 9|'00.png'"):
        list(DataLoader(data.ImageFolder(pictures, T.RandomCrop((8, 9))), batch_size=4, num_workers=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_name_the_sample(workers):
    class Failing(Squares):
        def __getitem__(self, i):
            if i == 6:
                raise KeyError("colour")
            return super().__getitem__(i)

    it = iter(DataLoader(Failing(), batch_size=4, num_workers=workers))
    next(it)
    with pytest.raises(KeyError, match="sample 6.*colour"):
        next(it)
    with pytest.raises(StopIteration):
        next(it)


def test_impossible_arguments(pictures, tmp_path):
    squares = Squares()
    for arguments, text in [
        ({"batch_size": 0}, "batch_size must be"),
        ({"num_workers": -1}, "num_workers must be"),
        ({"batch_size": 24, "drop_last": True}, "leaves no batch"),
        ({"shuffle": True, "sampler": [0]}, "excludes shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler excludes"),
        ({"prefetch_factor": 2}, "need num_workers > 0"),
        ({"timeout": 1}, "need num_workers > 0"),
        ({"timeout": -1, "num_workers": 1}, "must not be negative"),
        ({"prefetch_factor": 0, "num_workers": 1}, "must be positive"),
        ({"batch_size": None, "drop_last": True}, "makes no batches"),
    ]:
        with pytest.raises(ValueError, match=text):
            DataLoader(squares, **arguments)
    with pytest.raises(ValueError, match="the dataset is empty"):
        DataLoader(Squares(0), shuffle=True)
    with pytest.raises(TypeError, match="__getitem__"):
        DataLoader(object())
    with pytest.raises(ValueError, match="there is no folder"):
        data.ImageFolder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no column 'title'; there are 'file_name', 'text'"):
        data.ImageFolder(pictures, caption_column="title")
    with pytest.raises(ValueError, match="must sum to"):
        random_split(squares, [1, 2])


# ---- threads


def test_workers_run_at_the_same_time_and_know_who_they_are():
    together, ids, begun = threading.Barrier(3, timeout=20), set(), []

    class Meeting(Squares):
        def __getitem__(self, i):
            ids.add(get_worker_info().id)
            together.wait()
            return i

    loader = DataLoader(Meeting(6), batch_size=2, num_workers=3, worker_init_fn=begun.append)
    assert lists(loader) == [[0, 1], [2, 3], [4, 5]]
    assert ids == {0, 1, 2} and sorted(begun) == [0, 1, 2] and get_worker_info() is None


@pytest.mark.parametrize("kind", ["native", "python", "stream"])
def test_leaving_the_loop_ends_the_threads(pictures, kind):
    before = threading.active_count()
    made = {"native": lambda: data.ImageFolder(pictures), "python": Squares, "stream": Stream}[kind]()
    start = time.perf_counter()
    for _ in range(3):
        loader = DataLoader(made, batch_size=1, num_workers=3)
        for _batch in loader:
            break
        del _batch
        gc.collect()
        assert threading.active_count() == before
        epoch = weakref.ref(iter(loader))
        assert epoch() is None
    assert time.perf_counter() - start < 5


def test_a_hanging_worker_times_out():
    release = threading.Event()

    class Hanging(Squares):
        def __getitem__(self, i):
            release.wait(20)
            return i

    with pytest.raises(RuntimeError, match="timed out after 0.2 seconds"):
        next(iter(DataLoader(Hanging(), num_workers=1, timeout=0.2)))
    release.set()


# ---- other sources


def test_a_webdataset(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(4):
            for suffix, content in (
                ("webp", data.encode_image(sf.full((4, 6, 6), i, dtype=sf.uint8), "webp", lossless=True)),
                ("txt", b"n%d\n" % i),
            ):
                (tmp_path / "file").write_bytes(content)
                tar.add(tmp_path / "file", f"{'long/' * 40}{i}.{suffix}")
    for made in (tmp_path / "a.tar", [tmp_path / "a.tar"], tmp_path):
        tars = data.WebDataset(made, mode="keep")
        assert [tars[i]["text"] for i in range(4)] == ["n0", "n1", "n2", "n3"]
        assert tars[3]["image"].shape == (4, 6, 6) and (tars.picture(3)[3] == 3).all()
    batch = next(
        iter(
            DataLoader(
                data.WebDataset(tmp_path / "a.tar", T.Composite("random"), mode="RGBA"), batch_size=4, num_workers=2
            )
        )
    )
    assert batch["image"].shape == (4, 3, 6, 6) and batch["text"] == ["n0", "n1", "n2", "n3"]


def test_buckets(tmp_path):
    rng = random.Random(1)
    for i in range(40):
        data.write_image(tmp_path / f"{i}.png", sf.zeros(3, rng.randint(20, 60), rng.randint(20, 60)).to(sf.uint8))
    buckets = data.AspectBuckets(32 * 32, 8)
    folder = data.ImageFolder(tmp_path, T.ToBucket(buckets))
    sampler = data.BucketBatchSampler(folder, buckets, 4, generator=generator(1))
    loader = DataLoader(folder, batch_sampler=sampler, num_workers=2)
    batches = list(loader)
    assert len(batches) == len(loader) and sorted(i for b in batches for i in b["index"].tolist()) == list(range(40))
    assert len({tuple(b["image"].shape[2:]) for b in batches}) > 1
    assert all((b["image"].shape[2], b["image"].shape[3]) in buckets.sizes for b in batches)


def test_emoji128():
    if not (folders.SHARED / "emoji128").exists():
        pytest.skip(f"no emoji128 in {folders.SHARED}")
    emoji = data.WebDataset(
        folders.SHARED / "emoji128" / "emoji128.tar", T.Compose([T.Composite(), T.Resize(64), T.ToFloat()]), mode="RGBA"
    )
    assert len(emoji) == 4719 and emoji[0]["text"] == "grinning face"
    held_out = Subset(emoji, [i for i in range(len(emoji)) if emoji.metadata(i)["split"] != "train"])
    assert len(held_out) == 336
    names = []
    for batch in DataLoader(held_out, batch_size=32, num_workers=2):
        assert batch["image"].shape[1:] == (3, 64, 64) and 0 <= batch["image"].min() and batch["image"].max() <= 1
        names += batch["text"]
    assert len(names) == 336 and emoji.skipped == []
    with pytest.raises(ValueError, match="there are 'aliases'|there are 'base_name'"):
        data.WebDataset(folders.SHARED / "emoji128" / "emoji128.tar", caption_column="title")


def test_control_c_ends_a_native_epoch(pictures):
    program = f"""
import _thread, threading, scaffolding as sf
from scaffolding.utils.data import DataLoader
loader = DataLoader(sf.data.ImageFolder({str(pictures)!r}), batch_size=4, num_workers=2)
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    while True:
        for batch in loader:
            pass
except KeyboardInterrupt:
    print("interrupted after", loader.epoch > 0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0 and "interrupted after" in done.stdout, done.stderr


def test_datasets_side_by_side():
    class Squares(sf.utils.data.Dataset):
        asked = []

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index * index

        def __getitems__(self, indices):
            self.asked.append(indices)
            return [i * i for i in indices]

    pairs = sf.utils.data.StackDataset([1, 2, 3], Squares())
    assert len(pairs) == 3 and pairs[2] == (3, 4) and pairs.__getitems__([2, 0]) == [(3, 4), (1, 0)]
    assert Squares.asked == [[2, 0]]
    named = sf.utils.data.StackDataset(image=[1, 2, 3], text="abc")
    assert named[1] == {"image": 2, "text": "b"} and named.__getitems__([0]) == [{"image": 1, "text": "a"}]
    images, squares = next(iter(sf.utils.data.DataLoader(pairs, batch_size=3)))
    assert images.tolist() == [1, 2, 3] and squares.tolist() == [0, 1, 4]
    for args, kwargs in (((), {}), (([1],), {"a": [1]})):
        with pytest.raises(ValueError, match="either as arguments .* or by name"):
            sf.utils.data.StackDataset(*args, **kwargs)
    with pytest.raises(ValueError, match=r"must be equally long, got \[1, 2\]"):
        sf.utils.data.StackDataset([1], [1, 2])
