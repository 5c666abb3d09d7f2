"""scaffolding.cuda: with a GPU, with the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY), and without either."""

import ctypes
import gc
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding import cuda

with_gpu = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
without_gpu = pytest.mark.skipif(cuda.is_available(), reason="a GPU, or its emulator, is here")


@without_gpu
@pytest.mark.parametrize(
    "ask",
    [
        cuda.current_device,
        cuda.get_device_name,
        cuda.get_device_properties,
        cuda.get_device_capability,
        cuda.synchronize,
        cuda.memory_allocated,
        cuda.max_memory_allocated,
        cuda.memory_reserved,
        cuda.max_memory_reserved,
        cuda.mem_get_info,
        cuda.memory_summary,
        cuda.reset_peak_memory_stats,
        cuda.current_stream,
        cuda.Stream,
        cuda.Event,
    ],
)
def test_without_a_gpu_the_reason_is_raised(ask):
    with pytest.raises(RuntimeError) as error:
        ask()
    assert cuda.why_not() and cuda.why_not() in str(error.value)


@without_gpu
def test_without_a_gpu_asking_is_allowed():
    assert not cuda.is_available() and cuda.device_count() == 0
    cuda.empty_cache()
    cuda.manual_seed(1)
    cuda.manual_seed_all(1)


def test_tf32_is_asked_for():
    assert sf.backends.cuda.matmul.allow_tf32 is False
    sf.backends.cuda.matmul.allow_tf32 = True
    try:
        assert sf.backends.cuda.matmul.allow_tf32 is True
    finally:
        sf.backends.cuda.matmul.allow_tf32 = False


@with_gpu
def test_devices_say_what_they_are():
    assert cuda.device_count() >= 1 and cuda.current_device() == 0
    properties = cuda.get_device_properties("cuda:0")
    assert cuda.get_device_name(0) == properties.name and cuda.get_device_capability() == (
        properties.major,
        properties.minor,
    )
    assert (
        properties.total_memory > 0
        and properties.multi_processor_count > 0
        and properties.max_threads_per_multi_processor % 256 == 0
    )
    with pytest.raises(RuntimeError, match="this machine has"):
        cuda.get_device_properties(99)
    with pytest.raises(ValueError, match="needs a CUDA device"):
        cuda.get_device_properties("cpu")


@with_gpu
def test_memory_is_counted():
    gc.collect()
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    before, reserved = cuda.memory_allocated(), cuda.memory_reserved()
    x = sf.zeros(1 << 20, device="cuda")
    assert cuda.memory_allocated() == before + 4 * 2**20
    free, total = cuda.mem_get_info()
    assert 0 < free < total
    del x
    assert cuda.memory_allocated() == before and cuda.max_memory_allocated() == before + 4 * 2**20
    assert cuda.max_memory_reserved() >= cuda.memory_reserved() >= before
    assert "in tensors" in cuda.memory_summary()
    cuda.empty_cache()
    assert cuda.memory_reserved() == reserved


@with_gpu
def test_a_process_may_take_a_part_of_the_device():
    gc.collect()
    cuda.empty_cache()
    total = cuda.mem_get_info()[1]
    allowed = cuda.memory_reserved() + (64 << 20)
    cuda.set_per_process_memory_fraction(allowed / total)
    try:
        kept = sf.ones(8 << 20, device="cuda")  # 32 MiB
        with pytest.raises(cuda.OutOfMemoryError, match="set_per_process_memory_fraction"):
            sf.ones(12 << 20, device="cuda")
        assert cuda.memory_reserved() <= allowed and kept[-1].item() == 1
    finally:
        cuda.set_per_process_memory_fraction(1.0)
    assert sf.ones(12 << 20, device="cuda")[-1].item() == 1


@with_gpu
def test_a_full_device_gives_the_cache_back_and_tries_again():
    try:
        limit = ctypes.CDLL(os.environ.get("SF_CUDA_LIBRARY", "")).sf_cuda_emulator_set_memory
    except (OSError, AttributeError):
        pytest.skip("unproven here: needs the emulator, whose memory can be made small")
    limit.argtypes = [ctypes.c_size_t]
    gc.collect()
    cuda.empty_cache()
    free, total = cuda.mem_get_info()
    before = cuda.memory_stats()
    limit(total - free + (48 << 20))
    try:
        small = [sf.ones(8 << 18, device="cuda") for _ in range(4)]  # 32 MiB in blocks of their own
        small.clear()
        assert cuda.memory_reserved() >= before["reserved_bytes.all.current"] + (32 << 20)
        large = sf.ones(10 << 20, device="cuda")  # 40 MiB: only where the cache is given back
        assert cuda.memory_stats()["num_alloc_retries"] == before["num_alloc_retries"] + 1
        assert cuda.memory_stats()["num_ooms"] == before["num_ooms"]
        with pytest.raises(cuda.OutOfMemoryError):
            sf.ones(10 << 20, device="cuda")
        assert cuda.memory_stats()["num_ooms"] == before["num_ooms"] + 1
        assert large[-1].item() == 1
    finally:
        limit(total)


@with_gpu
def test_streams_run_in_order_and_events_see_it():
    side, start, end = cuda.Stream(), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert cuda.current_stream() == cuda.default_stream() and side != cuda.default_stream()
    x = sf.ones(64, 64, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        assert cuda.current_stream() == side
        start.record()
        y = x @ x
        end.record()
    assert cuda.current_stream() == cuda.default_stream()
    end.synchronize()
    assert end.query() and side.query() and start.elapsed_time(end) >= 0
    cuda.current_stream().wait_event(end)
    assert y.cpu().tolist() == (sf.ones(64, 64) @ sf.ones(64, 64)).tolist()
    side.synchronize()
    cuda.synchronize()
    with pytest.raises(RuntimeError, match="enable_timing"):
        cuda.Event().elapsed_time(end)


class Producer:
    """Gives a tensor by DLPack and notes how it was asked."""

    def __init__(self, x):
        self.x, self.asked = x, []

    def __dlpack__(self, **how):
        self.asked.append(how)
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


@with_gpu
def test_dlpack_shares_device_memory_in_the_order_of_streams():
    x = sf.arange(6, device="cuda").reshape(2, 3)
    assert x.__dlpack_device__() == (2, 0)
    given = Producer(x.t())
    y = sf.from_dlpack(given)
    assert given.asked[-1]["stream"] == 1  # the default one
    assert y.data_ptr() == x.data_ptr() and y.device == x.device and y.stride() == (1, 3)
    del x
    gc.collect()
    assert y.cpu().tolist() == [[0, 3], [1, 4], [2, 5]]
    side = cuda.Stream()
    ones = sf.ones(32, 32, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        sf.from_dlpack(given)
        assert given.asked[-1]["stream"] == side.cuda_stream
        product = ones @ ones
        shared = sf.from_dlpack(product.__dlpack__(stream=1))  # for a consumer on the default stream, which then waits
    assert set(shared.cpu().flatten().tolist()) == {32.0}
    assert sf.from_dlpack(product.__dlpack__(stream=-1)).data_ptr() == product.data_ptr()
    for wrong in (0, 2, -3):
        with pytest.raises(ValueError, match="stream must be 1"):
            product.__dlpack__(stream=wrong)
    with pytest.raises(ValueError, match="belongs to tensors on CUDA"):
        sf.ones(2).__dlpack__(stream=1)


@with_gpu
@pytest.mark.skipif("emulator" in (cuda.get_device_name() if cuda.is_available() else ""), reason="CuPy needs a GPU")
def test_dlpack_with_cupy():
    cupy = pytest.importorskip("cupy")
    x = sf.arange(6, device="cuda").reshape(2, 3)
    a = cupy.from_dlpack(x)
    assert a.data.ptr == x.data_ptr() and a.get().tolist() == x.cpu().tolist()
    y = sf.from_dlpack(a * 2)
    assert y.cpu().tolist() == [[0, 2, 4], [6, 8, 10]]


@with_gpu
def test_seeds_start_the_devices_numbers():
    cuda.manual_seed(5)
    first = sf.randn(1000, device="cuda")
    cuda.manual_seed_all(5)
    assert first.cpu().tolist() == sf.randn(1000, device="cuda").cpu().tolist()
    state = sf.Generator("cuda").manual_seed(5)
    assert first.cpu().tolist() == sf.randn(1000, generator=state, device="cuda").cpu().tolist()


@with_gpu
def test_a_network_trains_as_on_the_cpu():
    def losses(device):
        sf.manual_seed(0)
        net = sf.nn.Sequential(
            sf.nn.Conv2d(3, 8, 3, padding=1),
            sf.nn.GroupNorm(2, 8),
            sf.nn.SiLU(),
            sf.nn.Flatten(),
            sf.nn.Linear(8 * 6 * 6, 5),
        ).to(device)
        x, y = sf.randn(4, 3, 6, 6).to(device), sf.randn(4, 5).to(device)
        optimizer, values = sf.optim.AdamW(net.parameters(), lr=1e-2), []
        for _ in range(3):
            loss = sf.nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values

    assert losses("cuda") == pytest.approx(losses("cpu"), rel=1e-4)


@with_gpu
def test_a_product_without_cublaslt_says_so(tmp_path):
    """The library without its stand-in beside it: either no cuBLASLt is found, or the machine's own,
    which finds no GPU.
    """
    library = pathlib.Path(os.environ.get("SF_CUDA_LIBRARY", ""))
    if "emulator" not in cuda.get_device_name():
        pytest.skip("a GPU is here, not the emulator")
    shutil.copy(library, tmp_path / library.name)
    program = "import scaffolding as sf; x = sf.ones(2, 2, device='cuda'); print((x + x).sum().item()); x @ x"
    environment = {**os.environ, "SF_CUDA_LIBRARY": str(tmp_path / library.name), "SF_CUDA_LIBRARY_PATH": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and done.stdout.split() == ["8.0"]
    missing = "libcublasLt.so" in done.stderr and "/nowhere" in done.stderr and "SF_CUDA_LIBRARY_PATH" in done.stderr
    assert missing or "cuBLASLt: it could not start" in done.stderr


@with_gpu
def test_ranges_are_the_cpus_and_part_of_graphs():
    calls = [
        lambda **on: sf.arange(0, 160, **on),
        lambda **on: sf.arange(7, -3, -2, **on),
        lambda **on: sf.arange(0, dtype=sf.float32, **on),
        lambda **on: sf.arange(0, 1, 0.0625, dtype=sf.float16, **on),
        lambda **on: sf.arange(0.1, 30, 0.3, dtype=sf.float64, **on),
        lambda **on: sf.arange(0.5, 9.5, 1.5, dtype=sf.int32, **on),
        lambda **on: sf.linspace(-1, 3, 9, **on),
        lambda **on: sf.linspace(0.1, 0.7, 1000, dtype=sf.bfloat16, **on),
        lambda **on: sf.linspace(2, 5, 1, **on),
    ]
    for i, call in enumerate(calls):
        want, got = call(), call(device="cuda")
        assert got.dtype is want.dtype and got.cpu().tolist() == want.tolist(), i
        g = cuda.CUDAGraph()
        with cuda.graph(g):
            y = call(device="cuda")
        g.replay()
        assert y.cpu().tolist() == want.tolist(), i
