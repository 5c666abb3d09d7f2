"""What DistributedDataParallel does besides the mean: unused parameters, hooks, uneven ends, loss scaling."""

import pytest
from processes import together


@pytest.fixture(autouse=True, params=["copied", "in place"])
def how_gradients_travel(request, monkeypatch):
    if request.param == "in place":
        monkeypatch.setenv("SF_TEST_IN_PLACE", "1")


def test_hooks_see_what_this_process_adds():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r = dist.get_rank()
        model, own = DistributedDataParallel(plain()), plain()
        seen = {}
        for name, p in model.module.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, name=name: seen.update({name: p.grad.clone()}))
        for _ in range(3):
            model.zero_grad()
            model(X * (r + 1)).sum().backward()
            own.zero_grad()
            own(X * (r + 1)).sum().backward()
            assert all(seen[name].equal(p.grad) for name, p in own.named_parameters())
            means = {name: p.grad.clone() for name, p in own.named_parameters()}
            for mean in means.values():
                dist.all_reduce(mean, dist.ReduceOp.AVG)
            assert close(means.values(), [p.grad for p in model.parameters()])
        dist.barrier()
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_gradients_are_the_users():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r = dist.get_rank()
        model = DistributedDataParallel(plain())
        weight = model.module[0].weight

        def backward(scale):
            model(X * (scale * (r + 1))).sum().backward()

        for _ in range(2):  # the first one settles the order of the buckets
            model.zero_grad()
            backward(1)
        first, seen = weight.grad, weight.grad.clone()
        model.zero_grad()  # sets to none: what was held is left alone
        backward(2)
        assert first.equal(seen) and not weight.grad.equal(seen)
        second, seen = weight.grad, weight.grad.clone()
        model.zero_grad(set_to_none=False)
        backward(2)
        assert weight.grad.data_ptr() == second.data_ptr() and second.equal(seen)  # what is there is written to
        with model.no_sync():
            backward(2)
        backward(2)  # and added to; the parts of processes differ, their mean does not
        grads = [sf.zeros(*seen.shape) for _ in range(2)]
        dist.all_gather(grads, weight.grad)
        assert grads[0].equal(grads[1]) and weight.grad.data_ptr() == second.data_ptr()
        assert (second - 3 * seen).abs().max() < 1e-4 * seen.abs().max(), (second, seen)
        model.zero_grad()
        weight.grad = sf.ones(*weight.shape)  # users may put one there
        own = weight.grad
        backward(2)
        assert own.data_ptr() == weight.grad.data_ptr() and (own - 1 - seen).abs().max() < 1e-4 * seen.abs().max()
        dist.barrier()
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_unused_parameters_keep_or_share_their_gradients():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r = dist.get_rank()

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.both, self.one, self.none = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 3)

            def forward(self, x):
                h = self.both(x)
                return {"out": [self.one(h) if r == 0 else h[:, :3]]}

        model = DistributedDataParallel(Net(), find_unused_parameters=True)
        for step in range(3):
            model.zero_grad()
            model(X)["out"][0].sum().backward()
            grad = model.module.one.bias.grad
            assert grad.tolist() == [12, 12, 12], grad        # half of rank 0's, on both
            assert model.module.none.weight.grad is None
        grads = [sf.zeros(6, 6) for _ in range(2)]
        dist.all_gather(grads, model.module.both.weight.grad)
        assert grads[0].equal(grads[1])
        dist.barrier()
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_static_graphs_may_use_a_parameter_in_several_backwards():
    outputs = together(
        """
        from scaffolding.utils.checkpoint import checkpoint
        dist.init_process_group(timeout=60)
        r = dist.get_rank()
        for reentrant in (False, True):
            model, alone = DistributedDataParallel(plain(), static_graph=True), plain()

            def twice(net, x):
                x = x.clone().requires_grad_()
                first = checkpoint(net[0], x, use_reentrant=reentrant)
                return net[2](net[1](first + checkpoint(net[0], x, use_reentrant=reentrant)))

            class Whole(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.net = plain()

                def forward(self, x):
                    return twice(self.net, x)

            model = DistributedDataParallel(Whole(), static_graph=True)
            half = slice(r * 12, r * 12 + 12)
            for step in range(3):
                model.zero_grad(), alone.zero_grad()
                nn.functional.cross_entropy(model(X[half]), Y[half]).backward()
                nn.functional.cross_entropy(twice(alone, X), Y).backward()
                assert close([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()]), step
        dist.barrier()
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_errors_name_the_parameter_and_the_rank():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r = dist.get_rank()
        try:
            DistributedDataParallel(nn.Linear(3, 2 + r))
        except RuntimeError as e:
            assert "rank 0 has ('weight', [2, 3]" in str(e) and "rank 1 has ('weight', [3, 3]" in str(e), e
        model = DistributedDataParallel(plain())
        loss = model(X).sum()
        loss.backward(retain_graph=True)
        try:
            loss.backward()
        except RuntimeError as e:
            assert "was marked ready twice" in str(e), e
        for wrong, kind in (([1], TypeError), ([print, print], RuntimeError)):
            try:
                [model.register_comm_hook(None, w) for w in wrong]
                raise AssertionError
            except kind:
                pass
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_hooks_on_buckets():
    outputs = together(
        """
        from scaffolding.distributed.algorithms.ddp_comm_hooks import default_hooks
        dist.init_process_group(timeout=60)
        r = dist.get_rank()
        half, seen = slice(r * 12, r * 12 + 12), []

        def doubled(state, bucket):
            seen.append((bucket.index(), bucket.is_last(), [list(p.shape) for p in bucket.parameters()]))
            future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return future.then(lambda f: bucket.buffer() / state)

        model, alone = DistributedDataParallel(plain(), bucket_cap_mb=0.0003), plain()
        model.register_comm_hook(2, doubled)
        for hooked in (None, default_hooks.allreduce_hook, default_hooks.bf16_compress_hook):
            if hooked:
                model = DistributedDataParallel(plain())
                model.register_comm_hook(None, hooked)
            nn.functional.cross_entropy(model(X[half]), Y[half]).backward()
            alone.zero_grad()
            nn.functional.cross_entropy(alone(X), Y).backward()
            limit = 1e-3 if hooked is default_hooks.bf16_compress_hook else 1e-6
            assert close([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()], limit)
        assert [s[0] for s in seen] == list(range(len(seen))) and [s[1] for s in seen][-1] and len(seen) > 1, seen
        dist.barrier()
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_buckets_take_the_order_of_the_gradients():
    outputs = together(
        """
        dist.init_process_group(timeout=60)

        class Net(nn.Module):           # registered in another order than used
            def __init__(self):
                super().__init__()
                self.c, self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x):
                return self.c(self.b(self.a(x)))

        model = DistributedDataParallel(Net(), bucket_cap_mb=1e-6)
        for _ in range(2):
            model(X).sum().backward()
        print([name[0] for b in model._buckets for name in b.names])
        """
    )
    assert outputs == ["['c', 'c', 'b', 'b', 'a', 'a']"] * 2


def test_uneven_ends():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r, n = dist.get_rank(), dist.get_world_size()
        for by_all in (True, False):
            model, alone = DistributedDataParallel(plain(), bucket_cap_mb=0.0003), plain()
            a, b = sf.optim.SGD(model.parameters(), lr=0.1), sf.optim.SGD(alone.parameters(), lr=0.1)
            batches = [1, 4, 2]
            with model.join(divide_by_initial_world_size=by_all):
                for step in range(batches[r]):
                    a.zero_grad()
                    nn.functional.cross_entropy(model(X[step * 3 + r :][:2]), Y[step * 3 + r :][:2]).backward()
                    a.step()
            for step in range(4):
                b.zero_grad()
                alive = [i for i in range(3) if batches[i] > step]
                for i in alive:
                    loss = nn.functional.cross_entropy(alone(X[step * 3 + i :][:2]), Y[step * 3 + i :][:2])
                    (loss / (3 if by_all else len(alive))).backward()
                b.step()
            assert close(model.parameters(), alone.parameters()), by_all
        model = DistributedDataParallel(net())            # with buffers
        with model.join():
            for step in range(1 + r):
                model(X[: 4 + r]).sum().backward()
        counts = [sf.zeros(1, dtype=sf.int64) for _ in range(n)]
        dist.all_gather(counts, model.module[1].num_batches_tracked.reshape(1))
        assert len({int(c) for c in counts}) == 1, counts
        try:
            with model.join(throw_on_early_termination=True):
                for step in range(1 + r):
                    model(X[:4]).sum().backward()
        except RuntimeError as e:
            assert "throw_on_early_termination" in str(e)
            print("ok")
        dist.barrier()
        """,
        size=3,
    )
    assert outputs == ["ok"] * 3


def test_a_scaler_skips_everywhere():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        r = dist.get_rank()
        model = DistributedDataParallel(plain())
        optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        scaler = sf.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
        for step in range(3):
            optimizer.zero_grad()
            before = [p.detach().clone() for p in model.parameters()]
            x = X * float("inf") if step == 1 and r == 1 else X       # one process alone overflows
            with sf.autocast("cpu", dtype=sf.bfloat16):
                loss = nn.functional.cross_entropy(model(x), Y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            moved = not close(before, model.parameters(), 1e-12)
            assert moved == (step != 1), step
        assert scaler.get_scale() == 512
        dist.barrier()
        print(*(v.hex() for p in model.parameters() for v in p.detach().flatten().tolist()))
        """
    )
    assert outputs[0] == outputs[1] and len(outputs[0]) > 100
