"""The backend nccl: on GPUs, one for each process, or on the emulator with its stand-in for NCCL; and NCCL's own
library and header beside what we take them for, where they are.
"""

import ctypes
import glob
import pathlib
import re
import shutil
import subprocess

import pytest
from processes import together

import scaffolding as sf
from scaffolding import cuda
from scaffolding import distributed as dist

ROOT = pathlib.Path(__file__).parents[3]
with_gpu = pytest.mark.skipif(
    not cuda.is_available() or not dist.is_nccl_available(), reason=f"unproven here: {cuda.why_not()}"
)
SETUP = """
from scaffolding import cuda
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = sf.device("cuda", rank % cuda.device_count())
dist.init_process_group("nccl", timeout=float(os.environ.get("TIMEOUT", "60")))
"""


def run(program, size=2, **variables):
    import textwrap

    return together(SETUP + textwrap.dedent(program), size=size, timeout=240, **variables)


CALLS = """
dtypes = [sf.uint8, sf.int8, sf.int16, sf.int32, sf.int64, sf.float16, sf.float32, sf.float64, sf.bool, sf.bfloat16,
          sf.float8_e4m3fn, sf.float8_e5m2]
for deterministic in (False, True):
    dist.group.WORLD._set_deterministic(deterministic)
    for dtype in dtypes:
        for n in (1, 5, 1000):
            g = sf.Generator().manual_seed(n)
            mine = [(sf.rand(n, generator=g) * 3).to(dtype) for _ in range(size)]
            ops = [dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT]
            ops += [dist.ReduceOp.AVG] if dtype.is_floating_point else [dist.ReduceOp.BAND, dist.ReduceOp.BXOR]
            for op in ops:
                host, gpu = mine[rank].clone(), mine[rank].to(device)
                dist.all_reduce(host, op)
                dist.all_reduce(gpu, op)
                same = gpu.cpu().float(), host.float()
                exact = deterministic or not dtype.is_floating_point or dtype.itemsize == 1
                assert sf.equal(*same) if exact else sf.allclose(*same, rtol=2e-2, atol=1e-3), (dtype, op, n, same)
                parts = sf.cat(mine).to(dtype)
                host, gpu = sf.empty(n, dtype=dtype), sf.empty(n, dtype=dtype, device=device)
                dist.reduce_scatter_tensor(host, parts, op)
                dist.reduce_scatter_tensor(gpu, parts.to(device), op)
                assert sf.allclose(gpu.cpu().float(), host.float(), rtol=2e-2, atol=1e-3), (dtype, op, n)
                gpu = mine[rank].to(device)
                dist.reduce(gpu, 1, op)
                if rank == 1:
                    whole = same[1]
                    assert sf.allclose(gpu.cpu().float(), whole, rtol=2e-2, atol=1e-3), (dtype, op, n)
            all_of_them = sf.empty(size, n, dtype=dtype, device=device)
            dist.all_gather_into_tensor(all_of_them, mine[rank].to(device))
            assert sf.equal(all_of_them.cpu().float(), sf.stack(mine).float())
x = sf.arange(6.0, device=device).reshape(2, 3).t() + rank     # strided
dist.broadcast(x, 1)
assert sf.equal(x.cpu(), sf.arange(6.0).reshape(2, 3).t() + 1)
rows = [sf.zeros(2, device=device) for _ in range(size)]
dist.all_gather(rows, sf.full((2,), float(rank), device=device))
assert [r.tolist() for r in rows] == [[float(r)] * 2 for r in range(size)]
out = sf.empty(size * 2, device=device)
dist.all_to_all_single(out, sf.arange(float(size * 2), device=device) + 100 * rank)
assert out.tolist() == [100.0 * p + 2 * rank + i for p in range(size) for i in (0, 1)]
uneven = sf.empty(sum(range(1, size + 1)) if rank == 0 else 0, device=device)
dist.all_to_all_single(uneven, sf.full((rank + 1,), float(rank), device=device),
                       [p + 1 for p in range(size)] if rank == 0 else [0] * size, [rank + 1] + [0] * (size - 1))
assert uneven.tolist() == ([float(p) for p in range(size) for _ in range(p + 1)] if rank == 0 else [])
into = [sf.zeros(3, device=device) for _ in range(size)] if rank == 0 else None
dist.gather(sf.full((3,), float(rank), device=device), into, 0)
assert rank or [t[0].item() for t in into] == list(range(size))
mine = sf.zeros(2, device=device)
dist.scatter(mine, [sf.full((2,), 10.0 + p, device=device) for p in range(size)] if rank == 1 else None, 1)
assert mine.tolist() == [10.0 + rank] * 2
if rank < 2:
    work = dist.isend(sf.full((4,), 5.0 + rank, device=device), 1 - rank) if rank == 0 else None
    got = sf.zeros(4, device=device)
    if rank == 1:
        dist.recv(got, 0)
        assert got.tolist() == [5.0] * 4
    else:
        work.wait()
ts = [sf.full((3,), float(i), device=device) for i in range(5)]
several = [sf.full((n,), float(rank + n), device=device) for n in (3, 0, 5000)]
several += [sf.ones(4, 6, device=device).t() * rank, sf.ones(2, device=device)]
dist.all_reduce_coalesced(several, async_op=True).wait()
ranks = size * (size - 1) / 2
wanted = [{ranks + 3 * size}, set(), {ranks + 5000 * size}, {ranks}, {size}]
assert [set(t.flatten().tolist()) for t in several] == wanted
works = [dist.all_reduce(t, async_op=True) for t in ts]
for w in works:
    w.wait()
assert [t[0].item() for t in ts] == [float(i * size) for i in range(5)]
part = dist.new_group([0, 1])           # split from the world's communicator
if rank < 2:
    dist.all_reduce(t := sf.ones(2, device=device), group=part)
    assert t.tolist() == [2.0, 2.0]
dist.barrier()
cuda.synchronize()
print("ok")
dist.destroy_process_group()
"""


@with_gpu
@pytest.mark.parametrize("size", [2, 3])
def test_every_call_and_dtype(size):
    assert run(CALLS, size) == ["ok"] * size


TRAINING = """
import hashlib
sf.manual_seed(5)
x, y = sf.randn(8, 4, 6).to(device), sf.randint(0, 3, (8, 4)).to(device)
model = DistributedDataParallel(plain().to(device), bucket_cap_mb=0.0002)
optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    for part in model.parts(4):
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
    optimizer.step()
values = [v.cpu() for v in model.state_dict().values()]
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in values)).hexdigest())
dist.destroy_process_group()
"""


@with_gpu
def test_parts_end_in_the_same_bits():
    outputs = [out for size in (1, 2, 4) for out in run(TRAINING, size)]
    assert len(outputs) == 7 and len(set(outputs)) == 1, outputs


@with_gpu
def test_ddp_has_the_gradients_of_the_whole_batch():
    program = """
    model, alone = DistributedDataParallel(plain().to(device)), plain().to(device)
    rows = slice(rank * 12, rank * 12 + 12)
    for _ in range(2):
        model.zero_grad()
        alone.zero_grad()
        nn.functional.cross_entropy(model(X[rows].to(device)), Y[rows].to(device)).backward()
        nn.functional.cross_entropy(alone(X.to(device)), Y.to(device)).backward()
        assert close([p.grad.cpu() for p in model.parameters()], [p.grad.cpu() for p in alone.parameters()])
    print("ok")
    dist.destroy_process_group()
    """
    assert run(program) == ["ok", "ok"]


@with_gpu
def test_a_call_in_a_captured_graph():
    program = """
    x = sf.full((5,), float(rank + 1), device=device)
    dist.all_reduce(sf.ones(2, device=device))      # the processes meet outside of captures
    graph = cuda.CUDAGraph(device)
    with cuda.graph(graph):
        y = x * 2
        dist.all_reduce(y)
        z = y + 1
    for step in range(3):
        x.fill_(float(rank + 1 + step))
        graph.replay()
        assert z.tolist() == [2 * (3.0 + 2 * step) + 1] * 5, z
    print("ok")
    dist.destroy_process_group()
    """
    assert run(program) == ["ok", "ok"]


@with_gpu
def test_who_does_not_come_is_an_error_within_the_timeout():
    program = """
    import time
    dist.all_reduce(sf.ones(2, device=device))
    cuda.synchronize()
    if rank == 1:
        time.sleep(8)
        os._exit(0)
    begun = time.time()
    try:
        dist.all_reduce(t := sf.ones(2, device=device))
        cuda.synchronize()
        dist.all_reduce(t)
    except RuntimeError as e:
        assert 1.5 < time.time() - begun < 7, time.time() - begun
        print(e)
    os._exit(0)
    """
    out = run(program.replace("print(e)", "print(e, flush=True)"), TIMEOUT="2")
    assert "all_reduce: this group has failed before: all_reduce: not done within 2" in out[0], out


@with_gpu
def test_who_ends_is_an_error_at_once():
    program = """
    import time
    dist.all_reduce(sf.ones(2, device=device))
    cuda.synchronize()
    if rank == 1:
        os._exit(0)
    begun = time.time()
    try:
        for _ in range(100):
            dist.all_reduce(t := sf.ones(2, device=device))
            cuda.synchronize()
            time.sleep(0.05)
    except RuntimeError as e:
        print(e, flush=True)
    assert time.time() - begun < 20
    os._exit(0)
    """
    out = run(program, TIMEOUT="30")
    assert out[0].startswith("all_reduce: ") and "NCCL: " in out[0], out


@with_gpu
@pytest.mark.skipif(
    "emulator" not in str(sf.cuda.is_available() and cuda.get_device_name()).lower(), reason="NCCL hangs"
)
def test_calls_that_differ_are_refused_by_the_stand_in():
    program = """
    import time
    dist.all_reduce(sf.ones(2, device=device))
    try:
        for i in range(100):
            dist.all_reduce(sf.ones(2 + rank, device=device))
            cuda.synchronize()
            time.sleep(0.05)
    except RuntimeError as e:
        print(e, flush=True)
    os._exit(0)
    """
    assert all("NCCL: " in out for out in run(program, TIMEOUT="20"))


def found_nccl():
    places = ["/usr/local/cuda*/lib*/libnccl.so.2", "/usr/lib/*/libnccl.so.2"]
    return [path for place in places for path in glob.glob(place)]


@pytest.mark.skipif(not found_nccl(), reason="libnccl.so.2 is not here")
def test_the_real_library_has_what_is_called():
    nccl = ctypes.CDLL(found_nccl()[0])
    source = (ROOT / "scaffolding/distributed/nccl_engine.nccl.cpp").read_text()
    names = [word.split('"')[1] for word in source.split("lib.find(")[1:]]
    assert len(names) == 17 and all(hasattr(nccl, name) for name in names)
    version = ctypes.c_int()
    assert nccl.ncclGetVersion(ctypes.byref(version)) == 0 and version.value >= 21800
    ids = [(ctypes.c_byte * 128)() for _ in range(2)]
    assert [nccl.ncclGetUniqueId(i) for i in ids] == [0, 0] and bytes(ids[0]) != bytes(ids[1]) != bytes(128)


def found_headers():
    return [str(pathlib.Path(path).parent) for path in glob.glob("/usr/local/cuda*/include/nccl.h")]


@pytest.mark.skipif(not found_headers() or not shutil.which("c++"), reason="nccl.h is not here")
def test_the_header_says_what_we_take_it_for(tmp_path):
    source = tmp_path / "same.cpp"
    source.write_text(
        """
        #include <nccl.h>
        #include <cstddef>
        #include "scaffolding/distributed/nccl_api.h"
        using namespace sf::distributed::nccl;
        static_assert(int(Result::InvalidArgument) == ncclInvalidArgument && int(Result::InProgress) == ncclInProgress);
        static_assert(int(Result::InvalidUsage) == ncclInvalidUsage && int(Result::RemoteError) == ncclRemoteError);
        static_assert(int(Op::Sum) == ncclSum && int(Op::Prod) == ncclProd && int(Op::Avg) == ncclAvg);
        static_assert(int(Op::Max) == ncclMax && int(Op::Min) == ncclMin);
        static_assert(int(Type::Int8) == ncclInt8 && int(Type::UInt8) == ncclUint8 && int(Type::Int32) == ncclInt32);
        static_assert(int(Type::Int64) == ncclInt64 && int(Type::Half) == ncclHalf && int(Type::Float) == ncclFloat);
        static_assert(int(Type::Double) == ncclDouble && int(Type::BFloat) == ncclBfloat16);
        static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && kNoColor == NCCL_SPLIT_NOCOLOR);
        static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
        static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
        static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
        constexpr ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
        constexpr Config ours;
        static_assert(ours.magic == theirs.magic && ours.blocking == theirs.blocking && ours.size <= theirs.size);
        """
    )
    command = ["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", "-isystem", found_headers()[0], str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "source, why",
    [
        (
            'extern "C" int ncclGetVersion(int* v) { return *v = 2 * 10000 + 17 * 100 + 1, 0; }',
            "needs NCCL 2.18 .* 2.17",
        ),
        ("int nothing;", "has no ncclGetVersion: it is of another version"),
    ],
)
def test_an_nccl_that_does_not_fit_is_said(tmp_path, source, why):
    (tmp_path / "old.cpp").write_text(source)
    command = ["c++", "-shared", "-fPIC", "-o", str(tmp_path / "libnccl.so.2"), str(tmp_path / "old.cpp")]
    subprocess.run(command, check=True)
    program = """
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    except RuntimeError as e:
        print(e)
    """
    said = together(program, size=1, timeout=60, SF_CUDA_LIBRARY_PATH=str(tmp_path))
    assert re.search(f"init_process_group: backend 'nccl' is not available: .*{why}", said[0]), said
