"""The calls of scaffolding.distributed, its groups, stores and launchers' variables."""

import datetime
import math
import os
import subprocess
import sys

import pytest
from processes import free_port, together

import scaffolding as sf
from scaffolding import distributed as dist


def test_every_call():
    outputs = together(
        """
        dist.init_process_group("gloo", timeout=60)
        r, n = dist.get_rank(), dist.get_world_size()
        assert (r, n) == (int(os.environ["RANK"]), 4)
        t = sf.ones(3) * r
        work = dist.all_reduce(t, async_op=True)
        assert work.wait() and work.is_completed() and t.tolist() == [6, 6, 6]
        several = [sf.full((n,), float(r + n)) for n in (3, 0, 500001, 7)] + [sf.ones(4, 6).t() * r]
        dist.all_reduce_coalesced(several, dist.ReduceOp.AVG)
        assert [{x for x in t.flatten().tolist()} for t in several] == [{4.5}, set(), {500002.5}, {8.5}, {1.5}]
        dist.reduce(t := sf.tensor([r]), 2, dist.ReduceOp.MAX)
        assert t.item() == (3 if r == 2 else r)
        out = sf.zeros(4, 2, dtype=sf.bfloat16)
        dist.all_gather_into_tensor(out, sf.ones(1, 2, dtype=sf.bfloat16) * r)
        assert out[:, 1].tolist() == [0, 1, 2, 3]
        dist.reduce_scatter_tensor(mine := sf.zeros(2), sf.arange(8.0))
        assert mine.tolist() == [8 * r, 8 * r + 4]
        dist.reduce_scatter(mine, [sf.ones(2) * i for i in range(4)], dist.ReduceOp.AVG)
        assert mine.tolist() == [r, r]
        dist.all_to_all_single(out := sf.zeros(4, dtype=sf.int64), sf.arange(4) + 10 * r)
        assert out.tolist() == [r, 10 + r, 20 + r, 30 + r]
        rows = sf.ones(sum(range(4)), 2) * r              # i rows to process i
        dist.all_to_all_single(out := sf.zeros(4 * r, 2), rows, [r] * 4, [0, 1, 2, 3])
        assert out[:, 0].tolist() == [float(i) for i in range(4) for _ in range(r)]
        outs = [sf.zeros(r + 1) for _ in range(4)]
        dist.all_to_all(outs, [sf.ones(i + 1) * r for i in range(4)])
        assert [o.tolist() for o in outs] == [[float(i)] * (r + 1) for i in range(4)]
        parts = [sf.zeros(2) for _ in range(4)] if r == 1 else None
        dist.gather(sf.ones(2) * r, parts, dst=1)
        assert parts is None or [p[0].item() for p in parts] == [0, 1, 2, 3]
        dist.scatter(t := sf.zeros(1), [sf.tensor([5.0 * i]) for i in range(4)] if r == 3 else None, src=3)
        assert t.item() == 5 * r
        if r == 0:
            dist.send(sf.tensor([7, 8]), 1)
        if r == 1:
            assert dist.recv(t := sf.zeros(2, dtype=sf.int64), 0) == 0 and t.tolist() == [7, 8]
        big, came = sf.ones(300000) * r, sf.zeros(300000)
        ops = [dist.P2POp(dist.isend, big, (r + 1) % 4), dist.P2POp(dist.irecv, came, (r + 3) % 4)]
        [work.wait() for work in dist.batch_isend_irecv(ops)]
        assert came[-1].item() == (r + 3) % 4
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=60), wait_all_ranks=True)
        for dtype in (sf.uint8, sf.int8, sf.int16, sf.int32, sf.int64, sf.float16, sf.bfloat16, sf.float32, sf.float64,
                      sf.bool, sf.float8_e4m3fn, sf.float8_e5m2):
            t = sf.ones(5).to(dtype)
            dist.all_reduce(t)
            assert t.float().tolist() == [1.0 if dtype == sf.bool else 4.0] * 5, dtype
        dist.barrier()
        print("ok")
        """,
        size=4,
    )
    assert outputs == ["ok"] * 4


def test_objects():
    outputs = together(
        """
        import math
        dist.init_process_group(timeout=60)
        r, n = dist.get_rank(), dist.get_world_size()
        thing = {"rank": r, 3: (1, -2.5, None, True, math.inf), "bytes": b"\\0x", "set": {1, 2}, "dtype": sf.bfloat16,
                 "tensors": [sf.arange(3) * r, sf.ones(2, 2, dtype=sf.bfloat16)], "text": "ä" * (r * 1000)}
        all_of_them = [None] * n
        dist.all_gather_object(all_of_them, thing)
        for i, got in enumerate(all_of_them):
            assert got["rank"] == i and got[3] == thing[3] and got["bytes"] == b"\\0x" and got["set"] == {1, 2}
            assert got["tensors"][0].tolist() == [0, i, 2 * i] and got["tensors"][1].dtype == sf.bfloat16
            assert got["dtype"] == sf.bfloat16 and len(got["text"]) == i * 1000
        objects = [r, "x" * r] if r == 1 else [None, None]
        dist.broadcast_object_list(objects, src=1)
        assert objects == [1, "x"]
        got = [None] * n if r == 2 else None
        dist.gather_object(r * 2, got, dst=2)
        assert got is None or got == [0, 2, 4]
        out = [None]
        dist.scatter_object_list(out, [{"i": i} for i in range(n)] if r == 0 else None, src=0)
        assert out == [{"i": r}]
        if r == 0:
            dist.send_object_list(["a", 1], 2)
        if r == 2:
            dist.recv_object_list(got := [None, None], 0)
            assert got == ["a", 1]
        try:
            dist.all_gather_object([None] * n, print)
        except TypeError as e:
            assert "builtin_function_or_method cannot be sent" in str(e)
        dist.barrier()
        print("ok")
        """,
        size=3,
    )
    assert outputs == ["ok"] * 3


def test_objects_that_are_damaged_are_refused():
    from scaffolding.distributed._objects import _from_bytes, _to_bytes

    good = _to_bytes({"a": [1, sf.ones(3)]})
    assert _from_bytes(good)["a"][1].tolist() == [1, 1, 1]
    for bad in (
        b"",
        good[:7],
        good[:20],
        good[:-4],
        (2).to_bytes(8, "little") + b"{}" + b"x",
        (1 << 60).to_bytes(8, "little"),
        (20).to_bytes(8, "little") + b'{"dtype": "__name__"',
        (15).to_bytes(8, "little") + b'{"tensor": 100}',
    ):
        with pytest.raises(ValueError):
            _from_bytes(bad)


def test_groups_and_meshes():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r, n = dist.get_rank(), dist.get_world_size()
        odd, even = dist.new_group([1, 3]), dist.new_group([2, 0])
        mine = odd if r % 2 else even
        other = even if r % 2 else odd
        assert other == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(other) == -1
        assert dist.get_process_group_ranks(mine) == ([1, 3] if r % 2 else [0, 2])
        dist.all_reduce(t := sf.tensor([r]), group=mine)
        dist.all_reduce(t, group=other)               # nothing
        assert t.item() == (4 if r % 2 else 2)
        dist.broadcast(t := sf.tensor([r]), src=3 if r % 2 else 2, group=mine)
        assert t.item() == (3 if r % 2 else 2)
        dist.broadcast(t := sf.tensor([r]), group_src=0, group=mine)
        assert t.item() == r % 2
        assert dist.get_global_rank(mine, 1) == (3 if r % 2 else 2) and dist.get_group_rank(mine, r) == r // 2
        try:
            dist.broadcast(t, src=0 if r % 2 else 1, group=mine)
        except ValueError as e:
            assert "is not in the group of the ranks" in str(e)
        dist.destroy_process_group(mine)
        dist.all_reduce(t := sf.tensor([1]))
        assert t.item() == 4
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        assert mesh.get_coordinate() == [r // 2, r % 2] and mesh["shard"].get_local_rank() == r % 2
        dist.all_reduce(t := sf.tensor([r]), group=mesh.get_group("replicate"))
        assert t.item() == (2 if r % 2 == 0 else 4)
        dist.all_reduce(t := sf.tensor([r]), group=mesh["shard"].get_group())
        assert t.item() == (1 if r < 2 else 5)
        assert mesh.shape == (2, 2) and mesh.mesh.tolist() == [[0, 1], [2, 3]] and mesh.size() == 4
        own, all_of_them = dist.new_subgroups(2)
        assert dist.get_process_group_ranks(own) == [r // 2 * 2, r // 2 * 2 + 1] and len(all_of_them) == 2
        dist.barrier()
        print("ok")
        dist.destroy_process_group()
        assert not dist.is_initialized()
        """,
        size=4,
    )
    assert outputs == ["ok"] * 4


def test_a_call_that_differs_is_told_to_all():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        try:
            dist.all_reduce(sf.ones(2 + (dist.get_rank() == 1)))
        except RuntimeError as e:
            print(e)
        """,
        size=3,
    )
    for out in outputs:
        assert "rank 0 makes all_reduce of 2 float32 by ReduceOp.SUM, rank 1 makes all_reduce of 3 float32" in out, out


def test_a_process_that_dies_or_hangs_is_named(tmp_path):
    outputs = together(
        """
        import signal, time
        dist.init_process_group(timeout=60)
        if dist.get_rank() == 1:
            print("dies", flush=True)
            os._exit(0)
        begun = time.time()
        try:
            while True:
                dist.all_reduce(sf.ones(100000))
        except RuntimeError as e:
            assert "rank 1 is gone" in str(e), e
            assert time.time() - begun < 20
            print("told")
        """,
        size=3,
    )
    assert outputs == ["told", "dies", "told"]
    outputs = together(
        """
        import signal, time
        dist.init_process_group(timeout=4)
        if dist.get_rank() == 1:
            dist.barrier()
            print("hangs", flush=True)
            begun = time.time()
            while time.time() < begun + 12 and len(os.listdir(os.environ["TOLD"])) < 2:
                time.sleep(0.05)
            os._exit(0)
        dist.barrier()
        try:
            dist.all_reduce(sf.ones(100000))
        except RuntimeError as e:
            assert "rank 1 did not come before the timeout" in str(e) and "all_reduce" in str(e), e
            print("told")
            open(os.path.join(os.environ["TOLD"], os.environ["RANK"]), "w").close()
        """,
        size=3,
        TOLD=str(tmp_path),
    )
    assert outputs == ["told", "hangs", "told"]


def launched(tmp_path, variables, size=2, count=None):
    """The outputs of processes that env:// or a file joins, with each one's variables."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nfrom scaffolding import distributed as dist\nimport scaffolding as sf\n"
        "method = os.environ.get('METHOD')\n"
        "known = {'rank': int(os.environ['R']), 'world_size': 2} if method else {}\n"
        "dist.init_process_group(init_method=method, timeout=60, **known)\n"
        "dist.all_reduce(t := sf.tensor([dist.get_rank() + 1]))\n"
        "dist.barrier()\nprint(dist.get_rank(), dist.get_world_size(), t.item())\n"
    )
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "MASTER", "SLURM", "OMPI", "PMI"))
    }
    clean["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    runs = [
        subprocess.Popen(
            [sys.executable, script],
            env=clean | variables(rank),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [run.communicate(timeout=120) for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert all(run.returncode == 0 for run in runs), outputs
    return [out.strip() for out, _ in outputs]


def test_variables_of_launchers(tmp_path):
    expected = ["0 2 3", "1 2 3"]
    for names in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        port = str(free_port())
        assert launched(tmp_path, lambda r: {names[0]: str(r), names[1]: "2", "MASTER_PORT": port}) == expected
    port = str(free_port())
    slurm = {"SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "localhost,far[1-3]", "MASTER_PORT": port}
    assert launched(tmp_path, lambda r: slurm | {"SLURM_PROCID": str(r)}) == expected
    assert launched(tmp_path, lambda r: {"METHOD": f"file://{tmp_path}/store", "R": str(r)}) == expected
    assert not (tmp_path / "store").exists()
    port = free_port()
    assert launched(tmp_path, lambda r: {"METHOD": f"tcp://127.0.0.1:{port}", "R": str(r)}) == expected


def test_wrong_arguments(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="backend must be a name or 'cpu:name,cuda:name', got 'cpu:gloo,x'"):
        dist.init_process_group("cpu:gloo,x")
    with pytest.raises(ValueError, match="timeout must be a timedelta or seconds"):
        dist.init_process_group(timeout=-1)
    with pytest.raises(ValueError, match="with a store, rank and world_size must be given"):
        dist.init_process_group(store=dist.HashStore())
    with pytest.raises(TypeError, match="store must be a Store, got int"):
        dist.init_process_group(store=3, rank=0, world_size=1)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ValueError, match="RANK must be a number from 0 on, got 'one'"):
        dist.init_process_group()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    try:
        with pytest.raises(ValueError, match="ranks must be different ones of 0 to 0"):
            dist.new_group([0, 0])
        with pytest.raises(ValueError, match="needs src or group_src, one of them"):
            dist.broadcast(sf.ones(1))
        with pytest.raises(TypeError, match="group must be a ProcessGroup, got str"):
            dist.all_reduce(sf.ones(1), group="world")
        with pytest.raises(RuntimeError, match="mesh_shape \\(2,\\) has 2 processes, the world 1"):
            dist.init_device_mesh("cpu", (2,))
        with pytest.raises(ValueError, match="op must be isend or irecv"):
            dist.P2POp(print, sf.ones(1), 0)
    finally:
        dist.destroy_process_group()


def test_stores_of_python(tmp_path):
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=datetime.timedelta(seconds=5))
    client = dist.TCPStore("127.0.0.1", server.port)
    for a, b in [(server, client), (dist.FileStore(str(tmp_path / "s")), dist.FileStore(str(tmp_path / "s")))]:
        a.set("k", "text")
        assert b.get("k") == b"text" and b.add("n", 2) == 2 and a.num_keys() == 2
        a.multi_set(["x", "y"], ["1", b"\0"])
        assert b.multi_get(["y", "x"]) == [b"\0", b"1"]
        with pytest.raises(RuntimeError, match="'absent' did not come within 0.05 s"):
            b.wait(["absent"], datetime.timedelta(seconds=0.05))
    prefixed = dist.PrefixStore("p", server)
    prefixed.set("k", "other")
    assert server.get("k") == b"text" and prefixed.get("k") == b"other" and server.get("p/k") == b"other"
    assert server.timeout == datetime.timedelta(seconds=5) and math.isclose(prefixed.timeout.total_seconds(), 5)


def test_the_fake_backend_counts():
    dist.init_process_group("fake", rank=0, world_size=8)
    try:
        dist.all_reduce(t := sf.ones(10))
        dist.all_gather_into_tensor(out := sf.zeros(80), t)
        assert t.tolist() == [1] * 10 and out.sum().item() == 80
        assert dist.group.WORLD._counts() == (2, 80)
    finally:
        dist.destroy_process_group()


def test_a_library_that_is_missing_is_named():
    program = "from scaffolding import distributed as d; d.init_process_group('gloo', rank=0, world_size=1)"
    environment = os.environ | {
        "SF_GLOO_LIBRARY": "/nowhere/libscaffolding_gloo.so",
        "MASTER_PORT": str(free_port()),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 1 and "apt install libgloo-dev" in run.stderr, run.stderr
