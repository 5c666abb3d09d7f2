"""Pinned host memory, copies that do not wait, and loading to a GPU:
with a GPU or with the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY).
"""

import collections
import gc
import subprocess
import sys
import warnings

import pytest

import scaffolding as sf
from scaffolding import cuda
from scaffolding.utils.data import DataLoader, TensorDataset

with_gpu = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
without_gpu = pytest.mark.skipif(cuda.is_available(), reason="a GPU, or its emulator, is here")
emulated = cuda.is_available() and "emulator" in cuda.get_device_name()


@without_gpu
def test_without_a_gpu_pinning_says_why_and_asking_is_allowed():
    x = sf.ones(3)
    assert not x.is_pinned()
    for pin in (x.pin_memory, lambda: sf.empty(3, pin_memory=True), lambda: sf.tensor([1.0], pin_memory=True)):
        with pytest.raises(RuntimeError) as error:
            pin()
        assert cuda.why_not() in str(error.value)
    assert x.to("cpu", non_blocking=True) is x
    assert sf.zeros(3).copy_(x, non_blocking=True).tolist() == [1, 1, 1]
    assert cuda.host_memory_stats()["allocated_bytes.current"] == 0


@without_gpu
def test_a_loader_that_cannot_pin_warns_and_goes_on():
    loader = DataLoader(TensorDataset(sf.arange(4)), batch_size=2, pin_memory=True)
    with pytest.warns(UserWarning, match="pin_memory has no effect without a GPU"):
        assert [b[0].tolist() for b in loader] == [[0, 1], [2, 3]]


@with_gpu
def test_pinned_tensors_keep_values_layout_and_gradient():
    x = sf.randn(2, 3, 4, 5).contiguous(memory_format=sf.channels_last).requires_grad_()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.device.type == "cpu"
    assert pinned.stride() == x.stride() and sf.equal(pinned, x)
    assert pinned.pin_memory() is pinned and pinned[1:].is_pinned()
    pinned.sum().backward()
    assert sf.equal(x.grad, sf.ones(2, 3, 4, 5))
    with pytest.raises(ValueError, match="pin_memory: only memory of the CPU can be pinned, got a tensor on cuda:0"):
        x.cuda().pin_memory()
    with pytest.raises(ValueError, match="only memory of the CPU"):
        sf.empty(3, device="cuda", pin_memory=True)


@with_gpu
def test_factories_pin():
    for t in (
        sf.empty(3, 4, pin_memory=True),
        sf.zeros(2, pin_memory=True),
        sf.randn(3, pin_memory=True),
        sf.tensor([1, 2], pin_memory=True),
    ):
        assert t.is_pinned()
    assert sf.empty(0, 4, pin_memory=True).shape == (0, 4)
    assert sf.full((2, 2), 3.0, pin_memory=True).tolist() == [[3, 3], [3, 3]]
    assert not sf.empty(3, pin_memory=False).is_pinned()


@with_gpu
@pytest.mark.skipif(not emulated, reason="only the emulator runs a copy as late as CUDA allows")
def test_a_copy_of_pinned_memory_waits_for_nobody():
    source = sf.arange(1000, dtype=sf.float32).pin_memory()
    cuda.synchronize()
    x = source.to("cuda", non_blocking=True)
    source.fill_(7)  # what a program must not do: the copy is only queued, and takes this
    assert x.cpu().tolist() == [7] * 1000
    source.copy_(sf.arange(1000))
    x.copy_(source, non_blocking=False)
    source.fill_(5)
    assert x.cpu().tolist() == list(range(1000))
    back = x.to("cpu", non_blocking=True)
    assert back.is_pinned()
    event = cuda.Event()
    event.record()
    assert not event.query()  # nothing waited for the copy
    event.synchronize()
    assert back.tolist() == list(range(1000))


@with_gpu
@pytest.mark.parametrize("convert", [sf.float32, sf.float16])
def test_values_are_right_after_a_wait(convert):
    source = sf.randn(3, 50).pin_memory()
    on_gpu = sf.empty(3, 50, dtype=convert, device="cuda").copy_(source, non_blocking=True)
    host = sf.empty(50, 3, pin_memory=True, dtype=convert).t()
    host.copy_(on_gpu, non_blocking=True)
    cuda.synchronize()
    assert sf.equal(host, source.to(convert))
    pageable = sf.randn(100)
    x = pageable.to("cuda", non_blocking=True)
    expected = pageable.clone()
    pageable.zero_()  # pageable memory was read when the call returned
    assert sf.equal(x.cpu(), expected)
    assert sf.equal(sf.zeros(100).copy_(x, non_blocking=True), expected)  # and is written when it returns


@with_gpu
def test_memory_is_kept_and_reused_after_the_copies_that_read_it():
    gc.collect()
    cuda.synchronize()
    model = sf.nn.Linear(2, 2)
    model._release_cpu_shadows()
    assert cuda.host_memory_stats()["allocated_bytes.current"] == cuda.host_memory_stats()["active_bytes.current"]
    before = cuda.host_memory_stats()["active_bytes.current"]
    first = sf.ones(100_000, pin_memory=True)
    place = first.data_ptr()
    on_gpu = first.to("cuda", non_blocking=True)
    del first
    second = sf.empty(100_000, pin_memory=True)
    if emulated:
        assert second.data_ptr() != place  # the copy still reads the first one
    second.fill_(3)
    assert on_gpu.cpu().tolist()[:3] == [1, 1, 1]
    third = sf.empty(100_000, pin_memory=True)
    if emulated:
        assert third.data_ptr() == place
    stats = cuda.host_memory_stats()
    assert stats["active_bytes.current"] - before >= 800_000
    del second, third
    assert cuda.host_memory_stats()["active_bytes.current"] == before
    assert cuda.host_memory_stats()["allocated_bytes.current"] >= before + 800_000
    model._release_cpu_shadows()
    assert cuda.host_memory_stats()["allocated_bytes.current"] == before


@with_gpu
def test_a_graph_copies_what_pinned_memory_holds_at_each_replay():
    source, result = sf.zeros(64, pin_memory=True), sf.zeros(64, pin_memory=True)
    x = sf.zeros(64, device="cuda")
    pageable = sf.zeros(64)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        x.copy_(source, non_blocking=True)
        result.copy_(x * 2, non_blocking=True)
    for value in (1, 5):
        source.fill_(value)
        graph.replay()
        cuda.synchronize()
        assert result.tolist() == [2 * value] * 64
    place = result.data_ptr()
    del result  # the graph still writes there
    assert sf.empty(64, pin_memory=True).data_ptr() != place
    with pytest.raises(
        RuntimeError, match="host memory that is not pinned is not allowed while a CUDA graph is captured"
    ):
        with cuda.graph(cuda.CUDAGraph()):
            x.copy_(pageable, non_blocking=True)


@with_gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_loader_are_pinned(workers):
    Pair = collections.namedtuple("Pair", "a b")

    class Own:
        pinned = False

        def pin_memory(self):
            self.pinned = True
            return self

    def collate(samples):
        x = sf.stack([s[0] for s in samples])
        return {"x": x, "list": [x, "text"], "pair": Pair(x, 3), "own": Own()}

    for batch in DataLoader(
        TensorDataset(sf.arange(6)), batch_size=3, num_workers=workers, collate_fn=collate, pin_memory=True
    ):
        assert batch["x"].is_pinned() and batch["list"][0].is_pinned() and batch["list"][1] == "text"
        assert (
            type(batch["pair"]) is Pair and batch["pair"].a.is_pinned() and batch["pair"].b == 3 and batch["own"].pinned
        )
        assert batch["x"].to("cuda", non_blocking=True).cpu().tolist() in ([0, 1, 2], [3, 4, 5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert next(iter(DataLoader(TensorDataset(sf.arange(6)), batch_size=3, pin_memory=True)))[0].is_pinned()


@with_gpu
def test_saved_tensors_wait_in_pinned_memory():
    x = sf.randn(4, 4, device="cuda", requires_grad=True)
    with sf.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x.exp() * x).sum()
    y.backward()
    assert sf.allclose(x.grad.cpu(), (x.exp() * (1 + x)).detach().cpu())


@with_gpu
def test_out_of_pinned_memory_is_an_error():
    if not emulated:
        pytest.skip("only the emulator can be short of memory on demand")
    code = """
import ctypes, scaffolding as sf
sf.empty(1, pin_memory=True)
fail = ctypes.CDLL(None)
from scaffolding import _core
import os
ctypes.CDLL(os.environ["SF_CUDA_LIBRARY"]).sf_cuda_emulator_fail_allocations_after(ctypes.c_int64(0))
try:
    sf.empty(1 << 20, pin_memory=True)
except RuntimeError as e:
    print(e)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pin_memory: the system pins no more host memory: 4096 KiB asked for" in said.stdout, said
