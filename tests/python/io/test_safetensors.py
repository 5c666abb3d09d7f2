import io
import json
import pathlib
import resource
import types

import folders
import pytest

import scaffolding as sf
from scaffolding.safetensors import load, load_file, safe_open, save, save_file

GOLDEN = folders.GOLDEN / "checkpoints"


# ---- the interface of the package safetensors


def test_save_file_and_load_file(tmp_path):
    tensors = {"b": sf.arange(6).reshape(2, 3).t(), "a": sf.ones(2, dtype=sf.bfloat16), "none": sf.empty(0, 3)}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    back = load_file(tmp_path / "x.safetensors")
    assert sorted(back) == ["a", "b", "none"]
    for name, tensor in tensors.items():
        assert back[name].dtype is tensor.dtype
        assert back[name].equal(tensor)
    assert load(save(tensors))["b"].equal(tensors["b"])
    assert save(tensors, {"format": "pt"}) == (tmp_path / "x.safetensors").read_bytes()


def test_safe_open(tmp_path):
    save_file({"b": sf.arange(6.0).reshape(2, 3), "a": sf.ones(1)}, tmp_path / "x.safetensors", {"k": "v"})
    with safe_open(tmp_path / "x.safetensors", framework="pt", device="cpu") as f:
        assert f.keys() == ["a", "b"]
        assert sorted(f.offset_keys()) == ["a", "b"]
        assert f.metadata() == {"k": "v"}
        assert f.get_tensor("b").tolist() == [[0, 1, 2], [3, 4, 5]]
        part = f.get_slice("b")
        assert part.get_shape() == [2, 3]
        assert part.get_dtype() == "F32"
        assert part[:, 1:].tolist() == [[1, 2], [4, 5]]
        with pytest.raises(ValueError, match="there is no tensor 'x'"):
            f.get_tensor("x")
        with pytest.raises(ValueError, match="there is no tensor 'x'"):
            f.get_slice("x")
    with pytest.raises(RuntimeError, match="closed"):
        f.keys()
    save_file({}, tmp_path / "empty.safetensors")
    assert safe_open(tmp_path / "empty.safetensors", "pt").metadata() is None


def test_wrong_arguments(tmp_path):
    with pytest.raises(TypeError, match="must be a dict"):
        save_file([sf.ones(1)], tmp_path / "x")
    with pytest.raises(TypeError, match="names and tensors"):
        save_file({"a": [1]}, tmp_path / "x")
    with pytest.raises(TypeError, match="metadata must be strings"):
        save_file({"a": sf.ones(1)}, tmp_path / "x", {"step": 3})
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "absent")
    with pytest.raises(ValueError, match="8 bytes"):
        load(b"")
    assert not list(tmp_path.iterdir())


class TiedModel:
    """What save_model and load_model ask of a module."""

    def __init__(self, value):
        self.weight = sf.full((2, 3), value)

    def state_dict(self):
        return {"encoder.weight": self.weight, "decoder.weight": self.weight, "bias": sf.ones(1)}

    def load_state_dict(self, state, strict):
        assert not strict
        self.weight.copy_(state["decoder.weight"])
        own = self.state_dict()
        return types.SimpleNamespace(
            missing_keys=[k for k in own if k not in state], unexpected_keys=[k for k in state if k not in own]
        )


def test_models_with_tied_weights(tmp_path):
    from scaffolding.safetensors.torch import load_model, save_model

    save_model(TiedModel(3.0), tmp_path / "m.safetensors", {"format": "pt"})
    with safe_open(tmp_path / "m.safetensors", "pt") as f:
        assert f.keys() == ["bias", "decoder.weight"]
        assert f.metadata() == {"format": "pt", "encoder.weight": "decoder.weight"}
    model = TiedModel(0.0)
    assert load_model(model, tmp_path / "m.safetensors") == ([], [])
    assert model.weight.sum().item() == 18
    save_file({"decoder.weight": model.weight, "more": sf.ones(1)}, tmp_path / "m.safetensors")
    with pytest.raises(RuntimeError, match="lacks .*'bias'.*'more'"):
        load_model(model, tmp_path / "m.safetensors")
    assert load_model(model, tmp_path / "m.safetensors", strict=False) == (["bias", "encoder.weight"], ["more"])


def test_the_shared_collection():
    folder = folders.SHARED / "safetensors_malformed"
    if not folder.exists():
        pytest.skip("no shared/data/safetensors_malformed beside the repository")
    for line in (folder / "MANIFEST.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["valid"]:
            load_file(folder / row["file"])
        else:
            with pytest.raises(ValueError, match=row["file"]):
                load_file(folder / row["file"])


# ---- scaffolding.io


@pytest.mark.parametrize(("size", "files"), [("5GB", 1), (100, 2), ("80B", 2), ("0.08KB", None), (0, None)])
def test_save_sharded(tmp_path, size, files):
    tensors = {f"layer.{i}": sf.full((10,), float(i)) for i in range(4)}
    if files is None:
        with pytest.raises(ValueError, match="max_shard_size"):
            sf.io.save_sharded(tensors, tmp_path / "model.safetensors", size)
        return
    path = sf.io.save_sharded(tensors, tmp_path / "model.safetensors", size)
    names = sorted(p.name for p in tmp_path.iterdir())
    if files == 1:
        assert names == ["model.safetensors"]
    else:
        assert names == [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ]
        index = json.loads(pathlib.Path(path).read_text())
        assert index["metadata"] == {"total_size": 160}
        assert index["weight_map"]["layer.3"] == "model-00002-of-00002.safetensors"
    for where in (path, tmp_path):
        back = sf.io.load_checkpoint(where)
        assert sorted(back) == sorted(tensors)
        assert all(back[name].equal(tensor) for name, tensor in tensors.items())


def resident():
    """Bytes of physical memory that the process has."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="reads /proc")
def test_one_tensor_of_a_large_sharded_checkpoint_costs_its_own_memory(tmp_path):
    """Two shards of 2.5 GB, sparse, so that they need no room on the disk."""
    rows, weight_map = 1 << 20, {}
    for shard in (1, 2):
        file = f"model-0000{shard}-of-00002.safetensors"
        size, header = 2_500_000_000 // 25, {}
        for i in range(25):
            header[f"layer.{shard}.{i}"] = {
                "dtype": "F32",
                "shape": [size // 4],
                "data_offsets": [i * size, (i + 1) * size],
            }
            weight_map[f"layer.{shard}.{i}"] = file
        header[f"small.{shard}"] = {"dtype": "F32", "shape": [rows], "data_offsets": [25 * size, 25 * size + 4 * rows]}
        weight_map[f"small.{shard}"] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(tmp_path / file, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            f.truncate(8 + len(text) + 25 * size + 4 * rows)
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 5_000_000_000}, "weight_map": weight_map})
    )
    before = resident()
    file = sf.io.open_checkpoint(tmp_path / "model.safetensors.index.json")
    assert len(file) == 52
    assert file.get_tensor("small.2").sum().item() == 0
    assert resident() - before < 50e6


def test_open_checkpoint():
    file = sf.io.open_checkpoint(GOLDEN / "types.gguf")
    assert file.kind == "gguf"
    assert "Q4_K" in file and "x" not in file
    assert file.get_dtype("Q4_K") == "Q4_K"
    assert file.get_shape("Q4_K") == (2, 256)
    assert sf.io.open_checkpoint(GOLDEN / "zip.pt").get_tensor("model.0.bias").shape == (3,)


def test_gguf():
    want = load_file(GOLDEN / "types.gguf.expected.safetensors")
    got = sf.io.load_gguf(GOLDEN / "types.gguf")
    assert sorted(got) == sorted(want)
    assert all(got[name].equal(want[name]) for name in want)
    file = sf.io.GGUFFile(GOLDEN / "types.gguf")
    assert file.get_tensor("Q6_K", sf.bfloat16).dtype is sf.bfloat16
    metadata = file.metadata()
    assert metadata["u64"] == 2**64 - 1
    assert metadata["words"] == ["a", "", "bc"]
    assert metadata["yes"] is True


def test_numpy_files_both_ways(tmp_path):
    np = pytest.importorskip("numpy")
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(3, dtype=np.int16), "c": np.zeros((0, 2), dtype=bool)}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    tensors = sf.io.load_npz(tmp_path / "x.npz")
    sf.io.save_npz(tensors, tmp_path / "y.npz")
    back = np.load(tmp_path / "y.npz")
    for name, array in arrays.items():
        assert tensors[name].numpy().dtype == array.dtype
        assert np.array_equal(back[name], array) and back[name].dtype == array.dtype
    np.save(tmp_path / "f.npy", np.asfortranarray(arrays["a"]))
    tensor = sf.io.load_npy(tmp_path / "f.npy")
    assert tensor.stride() == (1, 2) and tensor.tolist() == arrays["a"].tolist()
    file = io.BytesIO()
    sf.io.save_npy(tensor, file)
    file.seek(0)
    assert np.array_equal(np.load(file), arrays["a"])
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(NotImplementedError, match="type 'O'"):
        sf.io.load_npy(tmp_path / "o.npy")
    with pytest.raises(TypeError, match="bfloat16"):
        sf.io.save_npy(sf.ones(1, dtype=sf.bfloat16), tmp_path / "x.npy")
