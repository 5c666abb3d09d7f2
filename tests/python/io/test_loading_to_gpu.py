"""Checkpoints to a GPU through the ring of pinned buffers:
with a GPU or with the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY).
"""

import importlib.util
import os
import subprocess
import sys

import folders
import pytest

import scaffolding as sf
from scaffolding import cuda
from scaffolding.models import AutoencoderTiny, UNet2DConditionModel
from scaffolding.safetensors import load_file, safe_open, save_file

with_gpu = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
emulated = cuda.is_available() and "emulator" in cuda.get_device_name()


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
        assert (
            loaded[name].device.type == "cuda" and loaded[name].dtype == t.dtype and sf.equal(loaded[name].cpu(), t)
        ), name
    assert cuda.host_memory_stats()["allocated_bytes.current"] <= before  # the ring went with the file
    with safe_open(tmp_path / "x.safetensors", framework="pt", device="cuda:1" if cuda.device_count() > 1 else 0) as f:
        assert sf.equal(f.get_tensor("larger than the ring").cpu(), expected["larger than the ring"])
        assert sf.equal(f.get_slice("half")[2:4].cpu(), expected["half"][2:4])


@with_gpu
def test_a_torch_file_keeps_what_is_shared(tmp_path, small_ring):
    x = sf.randn(700, 500)
    sf.save({"a": x, "rows": x[3:5], "turned": x.t(), "other": [sf.ones(3)]}, tmp_path / "x.pt")
    loaded = sf.load(tmp_path / "x.pt", map_location="cuda")
    assert (
        sf.equal(loaded["a"].cpu(), x)
        and sf.equal(loaded["turned"].cpu(), x.t())
        and loaded["other"][0].device.type == "cuda"
    )
    loaded["a"][3] = 0
    assert loaded["rows"].cpu()[0].abs().sum() == 0


@with_gpu
@pytest.mark.parametrize("dtype", [None, sf.bfloat16])
def test_a_model_is_loaded_where_it_is_wanted(tmp_path, small_ring, dtype):
    model = AutoencoderTiny(
        encoder_block_out_channels=[8, 8],
        decoder_block_out_channels=[8, 8],
        num_encoder_blocks=[1, 1],
        num_decoder_blocks=[1, 1],
    )
    model.save_pretrained(tmp_path)
    expected = AutoencoderTiny.from_pretrained(tmp_path, torch_dtype=dtype)
    for how in ({"device": "cuda"}, {"device_map": "cuda:0"}, {"device": sf.device("cuda")}):
        loaded = AutoencoderTiny.from_pretrained(tmp_path, torch_dtype=dtype, **how)
        assert loaded.device.type == "cuda" and loaded.dtype == expected.dtype
        for (name, got), want in zip(loaded.state_dict().items(), expected.state_dict().values()):
            assert sf.equal(got.cpu(), want), name


def test_devices_that_make_no_sense_are_refused(tmp_path):
    AutoencoderTiny(
        encoder_block_out_channels=[8], decoder_block_out_channels=[8], num_encoder_blocks=[1], num_decoder_blocks=[1]
    ).save_pretrained(tmp_path)
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


class Net(sf.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = sf.nn.Conv2d(64, 80, 3)
        self.wide = sf.nn.Linear(900, 700)
        self.tied = sf.nn.Linear(900, 700)
        self.tied.weight = self.wide.weight
        self.frozen = sf.nn.Parameter(sf.randn(300, 7).t(), requires_grad=False)
        self.register_buffer("count", sf.tensor(7))
        self.register_buffer("flags", sf.tensor([True, False, True]))


@with_gpu
@pytest.mark.parametrize("dtype", [None, sf.bfloat16])
def test_a_module_moves_through_the_ring(small_ring, dtype):
    sf.manual_seed(4)
    net = Net().to(memory_format=sf.channels_last)
    net.conv.weight.grad = sf.randn(80, 64, 3, 3)
    expected = {name: x.clone() for name, x in net.state_dict().items()}
    gradient, strides, weight = net.conv.weight.grad.clone(), net.conv.weight.stride(), net.wide.weight
    assert strides != gradient.stride()
    pinned = cuda.host_memory_stats()["allocated_bytes.current"]
    assert net.to("cuda", dtype) is net
    assert cuda.host_memory_stats()["allocated_bytes.current"] <= pinned  # the ring went when it had done its work
    assert net.wide.weight is weight and net.tied.weight is weight and weight.device.type == "cuda"
    assert net.conv.weight.stride() == strides and net.frozen.stride() == (1, 7)
    for name, x in net.state_dict().items():
        assert x.device.type == "cuda", name
        assert x.dtype == (dtype or expected[name].dtype if x.is_floating_point() else expected[name].dtype), name
        assert sf.equal(x.cpu(), expected[name].to(x.dtype)), name
    assert sf.equal(net.conv.weight.grad.cpu(), gradient.to(dtype or sf.float32))


@with_gpu
def test_a_small_module_moves_without_the_ring(monkeypatch):
    monkeypatch.setenv("SF_UPLOAD_BUFFER_MB", "2000")
    sf.nn.Linear(900, 900).to("cuda")
    assert cuda.host_memory_stats()["allocated_bytes.peak"] < 2000 << 20


@with_gpu
def test_weights_that_were_changed_after_loading_arrive_changed(tmp_path, small_ring):
    save_file({"a": sf.zeros(700, 1000), "b": sf.zeros(700, 1000)}, tmp_path / "x.safetensors")
    state = load_file(tmp_path / "x.safetensors")  # the file's pages
    net = sf.nn.ParameterList(sf.nn.Parameter(x) for x in state.values())
    with sf.no_grad():
        net[0][300:310] += 3
        net[1] += 1
    net.to("cuda")
    assert sf.equal(net[0].detach().cpu().sum(), sf.tensor(30000.0)) and (net[1].detach().cpu() == 1).all()
    assert state["a"].sum() == 30000 and (state["b"] == 1).all()  # the same memory, which others may use


@with_gpu
def test_tensors_keep_their_layout_from_device_to_device():
    x = sf.randn(2, 3, 4, 5)
    for t in (
        x.contiguous(memory_format=sf.channels_last),
        x.permute(3, 0, 2, 1),
        x.transpose(0, 1)[:, :1],
        x[:, :, 1:3],
        sf.randn(4, 1).expand(4, 3),
    ):
        dense = t.clone()
        for there in (t.to("cuda"), t.pin_memory().to("cuda", non_blocking=True)):
            assert there.stride() == dense.stride() and sf.equal(there.cpu(), t)
            assert (
                there.cpu().stride() == dense.stride() and there.to("cpu", non_blocking=True).stride() == dense.stride()
            )
        onto = sf.empty(t.shape, device="cuda")
        assert sf.equal(onto.copy_(t).cpu(), t) and onto.is_contiguous()
        back = sf.empty(t.shape)
        assert sf.equal(back.copy_(t.to("cuda")), t)


@with_gpu
@pytest.mark.parametrize("way", ["file", "module"])
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_host_memory_is_the_ring_and_not_the_file(tmp_path, monkeypatch, kind, way):
    if not emulated:
        pytest.skip("the driver's own memory is in the figure; benchmarks/load_to_gpu.py prints it")
    monkeypatch.setenv("SF_CUDA_EMULATOR_MEMORY", "apart")
    monkeypatch.setenv("SF_UPLOAD_BUFFER_MB", "4")
    spec = importlib.util.spec_from_file_location("load_to_gpu", folders.ROOT / "benchmarks" / "load_to_gpu.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    path = os.fspath(tmp_path / f"model.{kind}")
    bench.write(path, 0.2, 20 << 20, kind)
    m = bench.measured(path, way=way)
    # Two buffers and a buffer's worth of pages; the rest is the allocator's and the interpreter's. The file has 200 MB.
    assert m["bytes"] > 190e6 and m["everything"] - m["before"] < 40


@with_gpu
def test_host_memory_of_a_model_does_not_grow_with_it(tmp_path, monkeypatch):
    if not emulated:
        pytest.skip("the driver's own memory is in the figure; benchmarks/load_to_gpu.py prints it")
    monkeypatch.setenv("SF_CUDA_EMULATOR_MEMORY", "apart")
    monkeypatch.setenv("SF_UPLOAD_BUFFER_MB", "4")
    program = """
import pathlib, sys
import scaffolding as sf
from scaffolding.diffusion import UNet2DConditionModel
def status(name):
    return int(pathlib.Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) / 1024
sf.ones(1, device="cuda").cpu()
before = status("VmRSS")
unet = UNet2DConditionModel.from_pretrained(sys.argv[1], torch_dtype=sf.float16, device="cuda")
print(status("VmHWM") - before, sum(p.numel() for p in unet.parameters()) * 2 / 1048576)
"""
    took = []
    for width in (128, 384):
        folder = tmp_path / str(width)
        channels = (width, 2 * width)
        UNet2DConditionModel(
            block_out_channels=channels,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=64,
        ).half().save_pretrained(folder)
        done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        took.append([float(word) for word in done.stdout.split()])
    (small, small_model), (large, large_model) = took
    assert large_model > 5 * small_model > 30 and large < small + 16 and large < large_model / 2, took
