"""scaffolding.distributed and nn.parallel: several processes, each a fresh interpreter,
joined over this machine's loopback.
"""

import pytest
from processes import together

import scaffolding as sf
from scaffolding import distributed, nn


def test_collective_calls():
    outputs = together(
        """
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
        r, n = dist.get_rank(), dist.get_world_size()
        t = sf.tensor([1.0, 2.0]) * (r + 1)
        dist.all_reduce(t)
        assert t.tolist() == [6, 12], t
        dist.all_reduce(t, op=dist.ReduceOp.AVG)
        assert t.tolist() == [6, 12]
        dist.all_reduce(m := sf.tensor([r, -r]), dist.ReduceOp.MAX)
        assert m.tolist() == [2, 0]
        dist.broadcast(t if r == 1 else (t := sf.zeros(2)), src=1)
        assert t.tolist() == [6, 12]
        parts = [sf.zeros(1, dtype=sf.int64) for _ in range(n)]
        dist.all_gather(parts, sf.tensor([r * 10]))
        dist.barrier()
        print([p.item() for p in parts], dist.get_backend(), dist.is_initialized())
        dist.barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        """,
        size=3,
    )
    assert outputs == ["[0, 10, 20] gloo True"] * 3


def test_gradients_and_training_are_those_of_the_whole_batch():
    outputs = together(
        """
        dist.init_process_group()
        r, n = dist.get_rank(), dist.get_world_size()
        alone = plain()
        model = DistributedDataParallel(plain(seed=r), bucket_cap_mb=0.0002)  # begins as rank 0's, plain(0), on both
        assert len(model._buckets) > 1
        alone.load_state_dict(plain(0).state_dict())
        assert close(model.parameters(), alone.parameters(), 1e-12) and list(model.state_dict())[0] == "module.0.weight"
        a, b = sf.optim.AdamW(model.parameters(), lr=0.05), sf.optim.AdamW(alone.parameters(), lr=0.05)
        for step in range(6):
            whole = slice(step * 4, step * 4 + 4)
            mine = slice(step * 4 + r * 2, step * 4 + r * 2 + 2)
            a.zero_grad(), b.zero_grad()
            nn.functional.cross_entropy(model(X[mine]), Y[mine]).backward()
            nn.functional.cross_entropy(alone(X[whole]), Y[whole]).backward()
            assert close([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()]), step
            a.step(), b.step()
        assert close(model.parameters(), alone.parameters(), 1e-5)
        print(*(f"{v.hex()}" for p in model.parameters() for v in p.detach().flatten().tolist()))
        """
    )
    assert outputs[0] == outputs[1] and len(outputs[0].split()) == 6 * 16 + 16 + 16 * 3 + 3


def test_buffers_accumulation_and_evaluation():
    outputs = together(
        """
        dist.init_process_group()
        r = dist.get_rank()
        model, alone = DistributedDataParallel(net()), plain()
        half = slice(r * 12, r * 12 + 12)
        for _ in range(2):
            nn.functional.cross_entropy(model(X[half]), Y[half]).backward()
        means = [sf.zeros(16) for _ in range(2)]
        dist.all_gather(means, model.module[1].running_mean)
        assert not close([means[0]], [means[1]])        # each has seen its own samples since the last forward began
        model(X[half])
        dist.all_gather(means, model.module[1].running_mean * 0 + model.module[1].num_batches_tracked)
        model.eval()(X[half])                            # nothing travels: rank 1 may leave it out
        if r == 0:
            with sf.no_grad():
                model(X)
        dist.barrier()

        model = DistributedDataParallel(plain())
        with model.no_sync():
            nn.functional.cross_entropy(model(X[half][:6]), Y[half][:6]).backward()
        first = [p.grad.clone() for p in model.parameters()]
        others = [sf.zeros(16, 6) for _ in range(2)]
        dist.all_gather(others, first[0])
        assert not close([others[0]], [others[1]])       # still each process's own
        nn.functional.cross_entropy(model(X[half][6:]), Y[half][6:]).backward()
        (nn.functional.cross_entropy(alone(X), Y) * 2).backward()
        assert close([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()])
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_a_parameter_without_gradient_is_named():
    outputs = together(
        """
        dist.init_process_group()

        class Half(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

            def forward(self, x):
                return self.used(x)

        model = DistributedDataParallel(Half(), bucket_cap_mb=1e-6)
        model(X).sum().backward()
        try:
            model(X)
        except RuntimeError as e:
            print(e)
        """
    )
    assert all("'unused.bias' and 1 more got no gradient" in out for out in outputs), outputs


def test_a_group_of_one_changes_nothing():
    module = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(module)
    with pytest.raises(ValueError, match="has not been initialized"):
        distributed.get_rank()
    with pytest.raises(
        ValueError, match="rank is not given and none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID is set"
    ):
        distributed.init_process_group()
    distributed.init_process_group(init_method="tcp://127.0.0.1:29511", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="twice"):
            distributed.init_process_group(rank=0, world_size=1)
        model = nn.parallel.DistributedDataParallel(module)
        model(sf.ones(4, 3)).sum().backward()
        assert module.bias.grad.tolist() == [4, 4] and list(model.state_dict()) == ["module.weight", "module.bias"]
        with pytest.raises(RuntimeError, match="not needed when a module doesn't have any parameters"):
            nn.parallel.DistributedDataParallel(nn.ReLU())
        with pytest.raises(TypeError, match="AVG needs floating tensors, got bool"):
            distributed.all_reduce(sf.ones(2, dtype=sf.bool), distributed.ReduceOp.AVG)
    finally:
        distributed.destroy_process_group()
    for arguments, text in [
        ({"backend": "nix"}, "backend must be 'gloo', 'mpi' or 'fake', got 'nix'"),
        ({"backend": "tcp"}, "got 'tcp'; use 'gloo', which has taken its place"),
        ({"init_method": "http://x"}, "init_method must be 'env://', 'tcp://address:port' or 'file:///path'"),
        ({"rank": 3, "world_size": 2}, "rank must be 0 to 1, got 3"),
    ]:
        with pytest.raises(ValueError, match=text):
            distributed.init_process_group(**arguments)
    assert not distributed.is_initialized()


def test_data_parallel_calls_the_module():
    module = nn.Linear(3, 2)
    model = nn.DataParallel(module)
    x = sf.ones(4, 3)
    assert (
        model(x).equal(module(x))
        and model.module is module
        and list(model.state_dict()) == ["module.weight", "module.bias"]
    )
    assert nn.DataParallel(module, ["cpu"])(x).equal(module(x))
    with pytest.raises(NotImplementedError, match="one device for a process, got 2"):
        nn.DataParallel(module, ["cpu", "cpu"])


def test_batch_norm_of_all_processes():
    outputs = together(
        """
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
        rank = dist.get_rank()
        plain = nn.BatchNorm2d(4)
        sf.manual_seed(5)
        plain.weight.data, plain.bias.data = sf.randn(4), sf.randn(4)
        synced = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()))[0]
        assert isinstance(synced, nn.SyncBatchNorm)
        synced.load_state_dict(plain.state_dict())
        x, out = sf.randn(6, 4, 3, 5) * 2 + 1, sf.randn(6, 4, 3, 5)
        mine = slice(0, 4) if rank == 0 else slice(4, 6)  # batches of different sizes
        whole, part = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
        for _ in range(2):
            whole.grad = part.grad = None
            want, got = plain(whole), synced(part)
            plain.zero_grad(), synced.zero_grad()
            want.backward(out), got.backward(out[mine])
        for p in synced.parameters():
            dist.all_reduce(p.grad)
        assert close([got.detach(), part.grad], [want.detach()[mine], whole.grad[mine]], 2e-6)
        assert close([p.grad for p in synced.parameters()], [p.grad for p in plain.parameters()], 2e-5)
        assert close([b.float() for b in synced.buffers()], [b.float() for b in plain.buffers()])
        plain.eval(), synced.eval()
        assert close([synced(part).detach()], [plain(part).detach()])
        print("equal", int(synced.num_batches_tracked))
        """
    )
    assert outputs == ["equal 2", "equal 2"]
