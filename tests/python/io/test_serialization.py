import argparse
import collections
import io
import os
import signal
import subprocess
import sys
import zipfile

import folders
import pytest

import scaffolding as sf
from scaffolding import nn

GOLDEN = folders.GOLDEN / "checkpoints"
MALFORMED = GOLDEN.parent.parent / "malformed"


def round_trip(obj, **kwargs):
    file = io.BytesIO()
    sf.save(obj, file)
    file.seek(0)
    return sf.load(file, **kwargs)


@pytest.mark.parametrize(
    "obj",
    [
        None,
        True,
        0,
        255,
        65536,
        -1,
        2**62,
        -(2**63),
        2**63,
        10**40,
        -(10**40),
        1.5,
        float("inf"),
        1 - 2j,
        "",
        "é\0\n",
        b"",
        bytes(range(256)),
        bytearray(b"\xff"),
    ]
    + [
        (),
        (1,),
        [[], [1]],
        {},
        {"a": {1: (2.0, None)}},
        {(1, "x"): 2},
        pytest.param({1, 2, "x"}, id="a set"),  # whose order, and with it the name, is another in each process
        sf.Size([2, 3]),
        sf.float16,
        sf.device("cuda", 1),
    ],
    ids=repr,
)
def test_objects_come_back_with_value_and_type(obj):
    back = round_trip(obj)
    assert back == obj
    assert type(back) is type(obj)


def test_nan_comes_back():
    assert round_trip([float("nan")])[0] != round_trip([float("nan")])[0]


def test_ordered_dicts_keep_order_and_attributes():
    state = collections.OrderedDict([("b", 1), ("a", 2)])
    state._metadata = {"": {"version": 1}}
    back = round_trip(state)
    assert type(back) is collections.OrderedDict
    assert list(back) == ["b", "a"]
    assert back._metadata == {"": {"version": 1}}
    assert round_trip(collections.Counter("aab")) == collections.Counter(a=2, b=1)


def test_shared_objects_stay_shared():
    shared = [1]
    x = sf.ones(2)
    back = round_trip({"a": shared, "b": shared, "x": x, "y": x})
    assert back["a"] is back["b"]
    assert back["x"] is back["y"]


@pytest.mark.parametrize(
    "dtype",
    [
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "bool",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
    ],
)
def test_tensors_of_every_dtype(dtype):
    x = sf.tensor([0.0, 1.0, 1.0]).to(getattr(sf, dtype))
    back = round_trip(x)
    assert back.dtype is x.dtype
    assert back.tolist() == x.tolist()


def test_views_share_their_storage_and_keep_their_strides():
    base = sf.arange(24.0).reshape(2, 3, 4)
    back = round_trip([base, base.transpose(0, 2), base[1, ::2]])
    assert back[1].stride() == base.transpose(0, 2).stride()
    back[0].mul_(2)
    assert back[1].equal(base.transpose(0, 2) * 2)
    assert back[2].equal(base[1, ::2] * 2)


def test_parameters_and_gradients():
    back = round_trip(
        {
            "p": nn.Parameter(sf.ones(2)),
            "frozen": nn.Parameter(sf.ones(2), requires_grad=False),
            "leaf": sf.ones(1, requires_grad=True),
            "result": sf.ones(1, requires_grad=True) * 2,
        }
    )
    assert isinstance(back["p"], nn.Parameter) and back["p"].requires_grad
    assert isinstance(back["frozen"], nn.Parameter) and not back["frozen"].requires_grad
    assert back["leaf"].requires_grad and not isinstance(back["leaf"], nn.Parameter)
    assert back["result"].tolist() == [2.0]


def test_numpy_scalars_are_saved_as_numbers():
    np = pytest.importorskip("numpy")
    assert round_trip([np.float32(1.5), np.int64(3), np.bool_(True)]) == [1.5, 3, True]


def test_paths_and_files_give_the_same_bytes(tmp_path):
    obj = {"x": sf.arange(5), "s": {3, 1, 2}}
    sf.save(obj, tmp_path / "a.pt")
    with open(tmp_path / "b.pt", "wb") as f:
        sf.save(obj, f)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    assert sf.load(tmp_path / "a.pt")["x"].tolist() == list(range(5))
    assert sf.load(str(tmp_path / "a.pt"), mmap=False)["x"].tolist() == list(range(5))
    with open(tmp_path / "b.pt", "rb") as f:
        assert sf.load(f)["x"].tolist() == list(range(5))


def test_the_archive_is_one_that_zip_programs_read(tmp_path):
    sf.save({"x": sf.ones(3)}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.testzip() is None
        assert archive.read("archive/version") == b"3\n"
        assert len(archive.read("archive/data/0")) == 12


def test_a_file_can_be_saved_over_while_its_tensors_live(tmp_path):
    path = tmp_path / "x.pt"
    sf.save({"x": sf.ones(1000)}, path)
    state = sf.load(path)
    state["x"].add_(1)
    sf.save(state, path)
    assert sf.load(path)["x"].sum().item() == 2000
    assert state["x"].sum().item() == 2000


class Unknown:
    pass


@pytest.mark.parametrize(
    ("obj", "place"),
    [
        ({"a": [1, {"x": print}]}, r"obj\['a'\]\[1\]\['x'\]"),
        ([Unknown()], r"obj\[0\]"),
        ({"m": nn}, r"obj\['m'\]"),
        ({frozenset(): 1}, "obj"),
        (collections.defaultdict(list), "obj is of type collections.defaultdict"),
    ],
)
def test_what_cannot_be_saved_is_named_with_its_place(tmp_path, obj, place):
    with pytest.raises(TypeError, match=f"save: {place}"):
        sf.save(obj, tmp_path / "x.pt")
    assert not list(tmp_path.iterdir())


def test_impossible_objects_are_refused(tmp_path):
    ring = []
    ring.append(ring)
    with pytest.raises(ValueError, match="contains itself"):
        sf.save(ring, tmp_path / "x.pt")
    deep = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested more than 500"):
        sf.save(deep, tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match="meta device"):
        sf.save({"w": sf.empty(2, device="meta")}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match="UTF-8"):
        sf.save("\ud800", tmp_path / "x.pt")
    with pytest.raises(TypeError, match="f must be a path"):
        sf.save(1, 2)
    with pytest.raises(RuntimeError, match="cannot create"):
        sf.save(1, tmp_path / "no" / "such" / "x.pt")


def test_arguments_of_load():
    with pytest.raises(ValueError, match="weights_only must be True"):
        sf.load(GOLDEN / "zip.pt", weights_only=False)
    with pytest.raises(FileNotFoundError):
        sf.load(GOLDEN / "absent.pt")
    with pytest.raises(TypeError, match="f must be a path"):
        sf.load(3)
    with pytest.raises(RuntimeError, match="not a regular file"):
        sf.load(GOLDEN)


@pytest.mark.parametrize("file", ["zip.pt", "legacy.pt"])
def test_files_of_torch(file):
    tree = sf.load(GOLDEN / file)
    want = sf.safetensors.load_file(GOLDEN / f"{file}.expected.safetensors")
    assert all(tree["dtypes"][t].double().equal(want[f"dtypes.{t}"].double()) for t in tree["dtypes"])
    assert tree["strided"][0].stride() == (1, 4, 12)
    assert tree["strided"][1].data_ptr() - tree["strided"][2].data_ptr() == 8
    assert tree["channels_last"].is_contiguous(memory_format=sf.channels_last)
    assert [t.note for t in tree["noted"]] == ["kept", "kept"] and isinstance(tree["noted"][0], nn.Parameter)
    assert (
        isinstance(tree["parameter"], nn.Parameter) and not tree["frozen"].requires_grad and tree["leaf"].requires_grad
    )
    assert tree["others"] == [
        "text é",
        b"\x00\xff",
        bytearray(b"ab"),
        1,
        -1,
        300,
        70000,
        2**40,
        2**80,
        -(2**80),
        1.5,
        True,
        None,
        (),
        {1, 2},
        1 + 2j,
    ]
    assert tree["torch"] == (sf.float16, sf.device("cpu"), sf.Size([2, 3]))
    assert tree["collections"] == [collections.OrderedDict(a=1), collections.Counter("aab")]
    assert list(tree["model"]) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    assert tree["model"]._metadata["1"] == {"version": 2}
    assert tree["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
    assert tree["optimizer"]["state"][0]["exp_avg"].equal(want["optimizer.state.0.exp_avg"])


@pytest.mark.parametrize("file", ["numpy.pt", "plain3.pkl", "plain4.pkl", "plain5.pkl"])
def test_pickles_with_numpy(file):
    tree = sf.load(GOLDEN / file)
    assert tree["array"].tolist() == [[0, 1, 2], [3, 4, 5]] and tree["array"].dtype is sf.float64
    assert tree["column"].tolist() == [[0, 1, 2], [3, 4, 5]] and tree["column"].dtype is sf.int16
    assert tree["flags"].tolist() == [True, False]
    assert (tree["scalar"], tree["count"]) == (1.5, 7)
    assert tree["args"] == argparse.Namespace(lr=0.1, name="run")


def test_unknown_classes_are_named_or_become_placeholders():
    import pickle

    data = pickle.dumps({"callback": Unknown(), Unknown: 1}, protocol=2)
    with pytest.raises(ValueError, match="refers to .*Unknown"):
        sf.load(io.BytesIO(data))
    tree = sf.load(io.BytesIO(data), placeholders=True)
    assert isinstance(tree["callback"], sf.io.Placeholder)
    assert tree["callback"].name.endswith("test_serialization.Unknown")


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def test_no_code_of_a_file_is_executed(tmp_path, monkeypatch):
    import pickle

    monkeypatch.chdir(tmp_path)
    for protocol in range(2, 6):
        data = pickle.dumps(Attack(), protocol=protocol)
        with pytest.raises(ValueError, match="system"):
            sf.load(io.BytesIO(data))
        assert isinstance(sf.load(io.BytesIO(data), placeholders=True), sf.io.Placeholder)
    assert not list(tmp_path.iterdir())


def test_map_location():
    from scaffolding.serialization import _placing

    tree = {"x": sf.ones(2)}
    assert round_trip(tree, map_location="cpu")["x"].device.type == "cpu"
    assert round_trip(tree, map_location=sf.device("cpu"))["x"].device.type == "cpu"
    assert round_trip(tree, map_location={"cpu": "cpu"})["x"].device.type == "cpu"
    assert round_trip(tree, map_location=lambda storage, location: storage)["x"].device.type == "cpu"
    assert round_trip(tree, map_location="meta")["x"].device.type == "meta"
    assert _placing({"cuda:0": "cpu"})("cuda:0").type == "cpu"
    if not sf.cuda.is_available():
        with pytest.raises(RuntimeError, match="map_location='cpu'"):
            _placing(None)("cuda:0")


def test_a_safetensors_path_gets_that_format(tmp_path):
    sf.save({"a": sf.ones(2)}, tmp_path / "x.safetensors")
    assert sf.safetensors.load_file(tmp_path / "x.safetensors")["a"].tolist() == [1, 1]
    assert sf.load(tmp_path / "x.safetensors")["a"].tolist() == [1, 1]
    with pytest.raises(TypeError, match="names and tensors"):
        sf.save({"a": {"b": sf.ones(2)}}, tmp_path / "x.safetensors")
    with pytest.raises(TypeError, match="dict of tensors"):
        sf.save(sf.ones(1), tmp_path / "x.safetensors")


def test_a_full_disk_keeps_the_previous_file(tmp_path):
    path = tmp_path / "x.pt"
    sf.save({"x": sf.ones(2)}, path)
    code = f"""
import resource, signal
import scaffolding as sf
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
try:
    sf.save({{"x": sf.ones(1 << 16)}}, {str(path)!r})
except RuntimeError as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout
    assert sf.load(path)["x"].tolist() == [1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


def test_a_process_killed_while_it_saves_leaves_a_whole_file(tmp_path):
    path = tmp_path / "x.pt"
    sf.save({"x": sf.zeros(1 << 20)}, path)
    code = f"""
import scaffolding as sf
print("ready", flush=True)
i = 0
while True:
    i += 1
    sf.save({{"x": sf.full((1 << 20,), float(i))}}, {str(path)!r})
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    try:
        process.wait(timeout=0.3)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.wait()
    x = sf.load(path)["x"]
    assert x.min().item() == x.max().item()


@pytest.mark.parametrize("file", sorted(p.name for p in MALFORMED.glob("*.p*")))
def test_malformed_files_are_errors(file):
    with pytest.raises((ValueError, NotImplementedError)):
        sf.load(MALFORMED / file)
