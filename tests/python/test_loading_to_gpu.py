"""Checkpoints to a GPU through the ring of pinned buffers: with a GPU or with the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY)."""

import importlib.util
import os
import pathlib

import pytest

import scaffolding as sf
from scaffolding import cuda
from scaffolding.models import AutoencoderTiny
from scaffolding.safetensors import load_file, safe_open, save_file

with_gpu = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
emulated = cuda.is_available() and "emulator" in cuda.get_device_name()
root = pathlib.Path(__file__).parents[2]


@pytest.fixture
def small_ring(monkeypatch):
    monkeypatch.setenv("SF_UPLOAD_BUFFER_MB", "1")


def tensors():
    sf.manual_seed(3)
    return {
        "larger than the ring": sf.randn(900, 1000),
        "one": sf.tensor(4.0),
        "half": sf.randn(7, 11).half(),
        "none": sf.empty(0, 3),
        "flags": sf.tensor([True, False, True]),
        "bytes": sf.arange(1_100_000, dtype=sf.int32).to(sf.uint8),
        "last": sf.randn(3),
    }


@with_gpu
def test_a_safetensors_file_arrives_whole(tmp_path, small_ring):
    expected = tensors()
    save_file(expected, tmp_path / "x.safetensors")
    before = cuda.host_memory_stats()["allocated_bytes.current"]
    loaded = load_file(tmp_path / "x.safetensors", device="cuda")
    assert list(loaded) == sorted(expected)
    for name, t in expected.items():
        assert loaded[name].device.type == "cuda" and loaded[name].dtype == t.dtype and sf.equal(loaded[name].cpu(), t), name
    assert cuda.host_memory_stats()["allocated_bytes.current"] <= before  # the ring went with the file
    with safe_open(tmp_path / "x.safetensors", framework="pt", device="cuda:1" if cuda.device_count() > 1 else 0) as f:
        assert sf.equal(f.get_tensor("larger than the ring").cpu(), expected["larger than the ring"])
        assert sf.equal(f.get_slice("half")[2:4].cpu(), expected["half"][2:4])


@with_gpu
def test_a_torch_file_keeps_what_is_shared(tmp_path, small_ring):
    x = sf.randn(700, 500)
    sf.save({"a": x, "rows": x[3:5], "turned": x.t(), "other": [sf.ones(3)]}, tmp_path / "x.pt")
    loaded = sf.load(tmp_path / "x.pt", map_location="cuda")
    assert sf.equal(loaded["a"].cpu(), x) and sf.equal(loaded["turned"].cpu(), x.t()) and loaded["other"][0].device.type == "cuda"
    loaded["a"][3] = 0
    assert loaded["rows"].cpu()[0].abs().sum() == 0


@with_gpu
@pytest.mark.parametrize("dtype", [None, sf.bfloat16])
def test_a_model_is_loaded_where_it_is_wanted(tmp_path, small_ring, dtype):
    model = AutoencoderTiny(encoder_block_out_channels=[8, 8], decoder_block_out_channels=[8, 8], num_encoder_blocks=[1, 1], num_decoder_blocks=[1, 1])
    model.save_pretrained(tmp_path)
    expected = AutoencoderTiny.from_pretrained(tmp_path, torch_dtype=dtype)
    for how in ({"device": "cuda"}, {"device_map": "cuda:0"}, {"device": sf.device("cuda")}):
        loaded = AutoencoderTiny.from_pretrained(tmp_path, torch_dtype=dtype, **how)
        assert loaded.device.type == "cuda" and loaded.dtype == expected.dtype
        for (name, got), want in zip(loaded.state_dict().items(), expected.state_dict().values()):
            assert sf.equal(got.cpu(), want), name


def test_devices_that_make_no_sense_are_refused(tmp_path):
    AutoencoderTiny(encoder_block_out_channels=[8], decoder_block_out_channels=[8], num_encoder_blocks=[1], num_decoder_blocks=[1]).save_pretrained(tmp_path)
    with pytest.raises(NotImplementedError, match="device_map must be one device, such as \"cuda\", got 'auto'"):
        AutoencoderTiny.from_pretrained(tmp_path, device_map="auto")
    with pytest.raises(TypeError, match="device and device_map are two names of one argument"):
        AutoencoderTiny.from_pretrained(tmp_path, device_map="cpu", device="cpu")
    assert AutoencoderTiny.from_pretrained(tmp_path, device_map="cpu").device.type == "cpu"


@with_gpu
def test_settings_of_the_ring_are_checked(tmp_path, monkeypatch):
    save_file({"x": sf.ones(3)}, tmp_path / "x.safetensors")
    monkeypatch.setenv("SF_UPLOAD_BUFFERS", "1")
    with pytest.raises(ValueError, match="SF_UPLOAD_BUFFERS must lie between 2 and 64, got 1"):
        load_file(tmp_path / "x.safetensors", device="cuda")


@with_gpu
def test_loading_is_no_part_of_a_graph(tmp_path):
    save_file({"x": sf.ones(3)}, tmp_path / "x.safetensors")
    with pytest.raises(RuntimeError, match="load: not allowed while a CUDA graph is captured"):
        with cuda.graph(cuda.CUDAGraph()):
            load_file(tmp_path / "x.safetensors", device="cuda")


@with_gpu
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_host_memory_is_the_ring_and_not_the_file(tmp_path, monkeypatch, kind):
    if not emulated:
        pytest.skip("the driver's own memory is in the figure; benchmarks/load_to_gpu.py prints it")
    monkeypatch.setenv("SF_CUDA_EMULATOR_MEMORY", "apart")
    monkeypatch.setenv("SF_UPLOAD_BUFFER_MB", "4")
    spec = importlib.util.spec_from_file_location("load_to_gpu", root / "benchmarks" / "load_to_gpu.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    path = os.fspath(tmp_path / f"model.{kind}")
    bench.write(path, 0.2, 20 << 20, kind)
    m = bench.measured(path)
    # Two buffers and a buffer's worth of pages; the rest is the allocator's and the interpreter's. The file has 200 MB.
    assert m["bytes"] > 190e6 and m["everything"] - m["before"] < 40
