"""sf.cuda.CUDAGraph and what is made of it: with a GPU,
or with the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY).
"""

import ctypes
import gc
import os

import pytest

import scaffolding as sf
from scaffolding import cuda

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")


def test_replays_compute_with_new_inputs():
    x, w = sf.ones(4, 8, device="cuda"), sf.randn(8, 8).to("cuda")
    plain = sf.nn.functional.silu(x @ w)  # cuBLASLt is loaded by the first product
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        assert cuda.is_current_stream_capturing()
        y = sf.nn.functional.silu(x @ w)
    assert not cuda.is_current_stream_capturing() and cuda.current_stream() == cuda.default_stream()
    g.replay()
    assert y.cpu().tolist() == plain.cpu().tolist()
    for _ in range(3):
        x.copy_(sf.randn(4, 8))
        g.replay()
        assert y.cpu().tolist() == sf.nn.functional.silu(x @ w).cpu().tolist()


def test_dropout_differs_from_replay_to_replay_and_follows_the_seed():
    x = sf.ones(500, device="cuda")
    generator = sf.Generator("cuda")

    def draw():
        return sf.nn.functional.dropout(x, 0.5), sf.randn(7, generator=generator, device="cuda")

    draw()
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        y, z = draw()

    def seeded(step):
        cuda.manual_seed(3)
        generator.manual_seed(4)
        return [[t.cpu().tolist() for t in step()] for _ in range(3)]

    replayed = seeded(lambda: (g.replay(), (y, z))[1])
    assert replayed == seeded(draw)
    assert replayed[0][0] != replayed[1][0] and replayed[0][1] != replayed[1][1]


def test_a_training_step_of_sgd_is_one_graph():
    def net():
        sf.manual_seed(0)
        return sf.nn.Sequential(sf.nn.Linear(6, 16), sf.nn.GELU(), sf.nn.LayerNorm(16), sf.nn.Linear(16, 3)).to("cuda")

    captured, plain = net(), net()
    rules = [sf.optim.SGD(n.parameters(), lr=0.05, momentum=0.9, capturable=True) for n in (captured, plain)]
    x, target = sf.zeros(5, 6, device="cuda"), sf.zeros(5, 3, device="cuda")

    def step(network, optimizer):
        optimizer.zero_grad(set_to_none=False)
        loss = sf.nn.functional.mse_loss(network(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for network, optimizer in zip((captured, plain), rules):  # gradients and momenta exist from here on
        step(network, optimizer)
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        loss = step(captured, rules[0])
    sf.manual_seed(1)
    reserved = None
    for i in range(10):
        x.copy_(sf.randn(5, 6))
        target.copy_(sf.randn(5, 3))
        g.replay()
        assert loss.item() == step(plain, rules[1]).item()
        reserved = reserved or cuda.memory_reserved()
    assert cuda.memory_reserved() == reserved
    for a, b in zip(captured.parameters(), plain.parameters()):
        assert a.cpu().tolist() == b.cpu().tolist()


def test_memory_comes_back_with_the_graph():
    gc.collect()
    cuda.empty_cache()
    x = sf.ones(1 << 19, device="cuda")
    before = cuda.memory_allocated()
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        y = (x + 1) * 2
    kept = cuda.memory_stats()["graph_pool_bytes"]
    assert kept >= 2 * 2**20 and "of captured graphs" in cuda.memory_summary()
    second = cuda.CUDAGraph()
    with cuda.graph(second, pool=g.pool()):
        z = y + 1
    second.reset()
    del y, z
    g.reset()
    assert cuda.memory_stats()["graph_pool_bytes"] == 0
    assert cuda.memory_allocated() == before


def test_what_cannot_be_captured_is_named():
    x = sf.ones(3, device="cuda")
    adamw = sf.optim.AdamW([sf.nn.Parameter(sf.ones(3, device="cuda"))])
    adamw.param_groups[0]["params"][0].grad = sf.ones(3, device="cuda")
    sgd = sf.optim.SGD(adamw.param_groups[0]["params"], lr=0.1, momentum=0.9)
    adamw8bit = sf.optim.AdamW8bit(adamw.param_groups[0]["params"], min_8bit_size=0)
    adafactor = sf.optim.Adafactor(adamw.param_groups[0]["params"])
    schedule = sf.optim.lr_scheduler.StepLR(sgd, 3)
    averages = sf.optim.EMAModel([x])
    scaler = sf.amp.GradScaler("cuda")
    on_host = sf.Generator("cuda", algorithm="cpu")
    for f, message in (
        (lambda: x.sum().item(), "a copy from or to host memory is not allowed while a CUDA graph is captured"),
        (lambda: sf.tensor([1.0, 2.0], device="cuda"), "a copy from or to host memory is not allowed"),
        (cuda.synchronize, "waiting for the device is not allowed"),
        (lambda: sf.nonzero(x), "a result whose shape depends on values is not allowed"),
        (cuda.empty_cache, "empty_cache: not allowed while"),
        (adamw.step, "step count and learning rate"),
        (sgd.step, "learning rate and momentum are numbers of the host"),
        (lambda: scaler.unscale_(sgd), "the scale would stay"),
        (lambda: scaler.scale(x), "the scale would stay"),
        (adamw8bit.step, "step count and learning rate"),
        (adafactor.step, "Adafactor.step: cannot be part of a CUDA graph"),
        (lambda: sf.rand(3, generator=on_host, device="cuda"), "rand: is drawn on the host"),
        (lambda: sf.randperm(5, generator=on_host, device="cuda"), "randperm: is drawn on the host"),
        (schedule.step, "a schedule counts on the host"),
        (lambda: averages.step([x]), "call step\\(\\) once before the capture"),
    ):
        g = cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match=message), cuda.graph(g):
            f()
        assert not cuda.is_current_stream_capturing() and cuda.current_stream() == cuda.default_stream()
        with pytest.raises(RuntimeError, match="nothing was captured"):
            g.replay()
    with pytest.raises(RuntimeError, match="the default stream cannot be captured"):
        cuda.CUDAGraph().capture_begin()
    with pytest.raises(ValueError, match="capture_error_mode must be one of"):
        cuda.CUDAGraph().capture_begin(capture_error_mode="never")
    y = x + 1  # and all goes on
    assert y.cpu().tolist() == [2, 2, 2]


def test_tensors_used_on_other_streams_wait_for_them():
    side = cuda.Stream()
    x = sf.ones(1000, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        y = x * 3
    x.record_stream(side)
    del x
    others = [sf.full((1000,), 7.0, device="cuda") for _ in range(3)]
    side.synchronize()
    assert y.cpu().tolist() == [3.0] * 1000 and others[0].cpu().tolist() == [7.0] * 1000
    with pytest.raises(ValueError):
        sf.ones(3).record_stream(side)


def _gradients(f, x, parameters):
    for p in parameters:
        p.grad = None
    x = x.to("cuda").requires_grad_()
    y = f(x)
    (y * y).sum().backward()
    return [t.detach().cpu().tolist() for t in (y, x.grad, *(p.grad for p in parameters))]


def test_graphed_functions_and_modules_train_as_plain_ones():
    sf.manual_seed(0)
    module = sf.nn.Sequential(sf.nn.Linear(4, 8), sf.nn.SiLU(), sf.nn.Linear(8, 2)).to("cuda")
    function = lambda x: sf.nn.functional.softmax(x * 2, -1)  # noqa: E731
    inputs = [sf.randn(3, 4) for _ in range(3)]
    want = [_gradients(lambda x: module(function(x)), x, list(module.parameters())) for x in inputs]
    sample = sf.zeros(3, 4, device="cuda", requires_grad=True)
    graphed, same = cuda.make_graphed_callables((function, module), ((sample,), (sample.detach().requires_grad_(),)))
    assert same is module
    assert [_gradients(lambda x: same(graphed(x)), x, list(module.parameters())) for x in inputs] == want
    with pytest.raises(ValueError, match="capture another one for each shape"):
        graphed(sf.zeros(2, 4, device="cuda"))
    with pytest.raises(ValueError, match="capture another one for each shape"):
        module(sf.zeros(2, 4, device="cuda"))
    module.eval()
    assert module(sf.zeros(9, 4, device="cuda")).shape == (9, 2)  # the other mode is not captured
    with pytest.raises(TypeError, match="must be tuples of CUDA tensors"):
        cuda.make_graphed_callables(function, (sf.zeros(3),))


class _ScaledTraining:
    """A network with AdamW, clipping, a schedule and a loss scale, all of whose numbers are on the device."""

    def __init__(self):
        sf.manual_seed(0)
        self.net = sf.nn.Sequential(sf.nn.Linear(6, 16), sf.nn.GELU(), sf.nn.Linear(16, 3)).to("cuda")
        self.optimizer = sf.optim.AdamW(self.net.parameters(), lr=sf.tensor(0.02, device="cuda"), capturable=True)
        self.schedule = sf.optim.lr_scheduler.StepLR(self.optimizer, step_size=4, gamma=0.5)
        self.scaler = sf.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=5, capturable=True)
        self.x, self.target = sf.ones(5, 6, device="cuda"), sf.zeros(5, 3, device="cuda")

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = sf.nn.functional.mse_loss(self.net(self.x), self.target)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        sf.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def run(self, one_step, steps=20, overflow_at=7):
        history = []
        for i in range(steps):
            generator = sf.Generator().manual_seed(i)
            x = sf.randn(5, 6, generator=generator)
            self.x.copy_(x * 1e30 if i == overflow_at else x)
            self.target.copy_(sf.randn(5, 3, generator=generator))
            loss = one_step()
            self.schedule.step()
            values = [p.detach().cpu().tolist() for p in self.net.parameters()]
            history.append((loss.item(), self.scaler.get_scale(), self.schedule.get_last_lr(), values))
        return history


def test_a_scaled_training_step_of_adamw_is_one_graph():
    plain, captured = _ScaledTraining(), _ScaledTraining()
    for training in (plain, captured):
        training.step()  # makes gradients, moments and counts
    want = plain.run(plain.step)
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        loss = captured.step()
    got = captured.run(lambda: (g.replay(), loss)[1])
    assert [h[1:3] for h in got] == [h[1:3] for h in want]
    assert got[:7] == want[:7] and got[8:] == want[8:] and got[7][3] == want[7][3]  # the loss of the eighth may be NaN
    scales = [h[1] for h in want]
    assert scales[7] == scales[6] / 2 and max(scales) > 2.0**10
    assert want[7][3] == want[6][3] and want[8][3] != want[7][3]  # an overflow changes nothing
    steps = {state["step"].item() for state in captured.optimizer.state.values()}
    assert steps == {20.0}  # 21 less the one that was skipped


def test_capturable_adamw_equals_adamw_and_goes_on_from_its_state():
    def run(capturable, restart):
        sf.manual_seed(0)
        net = sf.nn.Linear(4, 3).to("cuda")
        make = lambda: sf.optim.AdamW(net.parameters(), lr=0.01, capturable=capturable)  # noqa: E731
        optimizer = make()
        for i in range(6):
            if restart and i == 3:
                state = optimizer.state_dict()
                optimizer = make()
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            net(sf.full((2, 4), float(i + 1), device="cuda")).square().mean().backward()
            optimizer.step()
        return sf.cat([p.detach().flatten() for p in net.parameters()]).cpu().tolist()

    plain = run(False, False)
    assert run(True, False) == pytest.approx(plain, rel=1e-5, abs=1e-7)
    assert run(True, True) == run(True, False)


def test_capturable_optimizers_refuse_what_would_be_frozen():
    p = sf.nn.Parameter(sf.ones(3, device="cuda"))
    p.grad = sf.ones(3, device="cuda")
    adamw = sf.optim.AdamW([p], lr=0.1, capturable=True)
    with pytest.raises(RuntimeError, match="the first step makes the state"), cuda.graph(cuda.CUDAGraph()):
        adamw.step()
    adamw.step()
    with pytest.raises(ValueError, match="needs parameters on CUDA"):
        sf.optim.AdamW([sf.nn.Parameter(sf.ones(2))], capturable=True)
    with pytest.raises(ValueError, match="lr as a tensor needs capturable=True"):
        sf.optim.AdamW([p], lr=sf.tensor(0.1))
    with pytest.raises(ValueError, match="lr as a tensor must be on CUDA"):
        sf.optim.SGD([p], lr=sf.tensor(0.1))
    scaler = sf.amp.GradScaler("cuda", capturable=True)
    scaler.scale(p.sum())
    with pytest.raises(RuntimeError, match="needs an optimizer with capturable=True"):
        scaler.step(sf.optim.SGD([p], lr=0.1))


def _optimizers(lr):
    rate = lambda: sf.tensor(lr, device="cuda")  # noqa: E731
    return {
        "Adam": lambda p: sf.optim.Adam(p, lr=rate(), weight_decay=0.01, capturable=True),
        "AdamW": lambda p: sf.optim.AdamW(p, lr=rate(), amsgrad=True, capturable=True),
        "AdamW8bit": lambda p: sf.optim.AdamW8bit(p, lr=rate(), min_8bit_size=0, capturable=True),
        "AdamW8bit of small tensors": lambda p: sf.optim.AdamW8bit(p, lr=rate(), capturable=True),
        "SGD": lambda p: sf.optim.SGD(p, lr=rate(), momentum=0.9, nesterov=True),
    }


def _run(make_optimizer, graphed, batches, clear=True):
    sf.manual_seed(0)
    net = sf.nn.Sequential(sf.nn.Linear(6, 48), sf.nn.GELU(), sf.nn.Linear(48, 3)).to("cuda")
    optimizer = make_optimizer(net.parameters())
    schedule = sf.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def step(x, target):
        optimizer.zero_grad(set_to_none=clear)
        loss = sf.nn.functional.mse_loss(net(x), target)
        loss.backward()
        norm = sf.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return {"loss": loss, "norm": norm}

    run = cuda.make_graphed_step(step) if graphed else step
    history = []
    for i, size in enumerate(batches):
        generator = sf.Generator().manual_seed(i)
        results = run(
            sf.randn(size, 6, generator=generator).to("cuda"), sf.randn(size, 3, generator=generator).to("cuda")
        )
        schedule.step()
        history.append({k: v.detach().item() for k, v in results.items()})
    return history, [p.detach().cpu().tolist() for p in net.parameters()], run.statistics if graphed else None


@pytest.mark.parametrize("name", list(_optimizers(0.1)))
@pytest.mark.parametrize("clear", [True, False], ids=["new gradients", "the same gradients"])
def test_graphed_steps_are_the_plain_ones_and_a_new_shape_is_captured_once(name, clear):
    batches = [5, 5, 5, 3, 3, 5, 3, 3, 5, 5]
    make = _optimizers(0.05)[name]
    want, got = _run(make, False, batches, clear), _run(make, True, batches, clear)
    assert got[:2] == want[:2]
    assert got[2] == {"eager": 2, "captures": 2, "replays": 8, "kept": 2}
    assert want[0][0]["loss"] != want[0][5]["loss"]


_WITH_NUMBERS = {
    "Adam": lambda p, **k: sf.optim.Adam(p, lr=0.05, weight_decay=0.01, **k),
    "AdamW": lambda p, **k: sf.optim.AdamW(p, lr=0.05, amsgrad=True, **k),
    "AdamW8bit": lambda p, **k: sf.optim.AdamW8bit(p, lr=0.05, min_8bit_size=100, **k),
    "SGD": lambda p, **k: sf.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=0.01, **k),
}


def _scheduled(make_optimizer, captured):
    """Losses, weights and averages of a run in which a schedule moves lr and momentum,
    and weight decay is changed by hand.
    """
    sf.manual_seed(0)
    net = sf.nn.Sequential(sf.nn.Linear(6, 48), sf.nn.GELU(), sf.nn.Linear(48, 3)).to("cuda")
    optimizer = make_optimizer(net.parameters(), capturable=captured)
    schedule = sf.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=12)
    averages = sf.optim.EMAModel(net.parameters(), update_after_step=2)

    def step(x, target):
        optimizer.zero_grad()
        for half in (0, 1):  # accumulated
            loss = sf.nn.functional.mse_loss(net(x[half::2]), target[half::2]) / 2
            loss.backward()
        sf.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        averages.step(net.parameters())
        return loss

    run = cuda.make_graphed_step(step) if captured else step
    losses = []
    for i in range(10):
        generator = sf.Generator().manual_seed(i)
        losses.append(
            run(sf.randn(6, 6, generator=generator).to("cuda"), sf.randn(6, 3, generator=generator).to("cuda")).item()
        )
        schedule.step()
        if i == 5:
            optimizer.param_groups[0]["weight_decay"] = 0.3
    assert not captured or run.statistics["replays"] == 9
    return (
        losses,
        [p.detach().cpu().tolist() for p in net.parameters()],
        [p.cpu().tolist() for p in averages.shadow_params],
        averages.cur_decay_value,
    )


@pytest.mark.parametrize("name", list(_WITH_NUMBERS))
def test_replays_take_rates_momentum_decay_and_averages_as_they_are_then(name):
    assert _scheduled(_WITH_NUMBERS[name], True) == _scheduled(_WITH_NUMBERS[name], False)


@pytest.mark.parametrize("name", list(_WITH_NUMBERS))
def test_a_replay_refuses_an_optimizer_that_is_not_the_captured_one_any_more(name):
    p = sf.nn.Parameter(sf.ones(300, device="cuda"))
    optimizer = _WITH_NUMBERS[name]([p], capturable=True)

    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()

    run = cuda.make_graphed_step(step)
    x = sf.ones(300, device="cuda")
    for change in (
        lambda: optimizer.load_state_dict(optimizer.state_dict()),
        lambda: optimizer.param_groups[0].update(maximize=True),
        lambda: optimizer.add_param_group({"params": [sf.nn.Parameter(sf.ones(2, device="cuda"))]}),
    ):
        for _ in range(3):
            run(x)
        change()
        before = p.detach().cpu().tolist()
        with pytest.raises(RuntimeError, match="changed since the graph was captured"):
            run(x)
        assert p.detach().cpu().tolist() == before
        run.reset()


def test_averages_that_were_loaded_are_not_left_behind_by_a_replay():
    p = sf.nn.Parameter(sf.ones(3, device="cuda"))
    averages = sf.optim.EMAModel([p])
    run = cuda.make_graphed_step(lambda x: averages.step([p]))
    for _ in range(3):
        run(p.detach())
    assert averages.optimization_step == 3
    averages.load_state_dict(averages.state_dict())
    with pytest.raises(RuntimeError, match="averages were loaded or moved since"):
        run(p.detach())


def test_half_precision_with_a_loss_scale_is_one_graph():
    def run(captured):
        sf.manual_seed(0)
        net = sf.nn.Sequential(sf.nn.Linear(6, 16), sf.nn.GELU(), sf.nn.Linear(16, 3)).to("cuda")
        optimizer = sf.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, capturable=captured)
        # the first ones overflow
        scaler = sf.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=3, capturable=captured)

        def step(x, target):
            optimizer.zero_grad()
            with sf.autocast("cuda", sf.float16):
                loss = sf.nn.functional.mse_loss(net(x), target)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            sf.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return loss

        graphed = cuda.make_graphed_step(step) if captured else step
        history = []
        for i in range(16):
            generator = sf.Generator().manual_seed(i)
            loss = graphed(
                sf.randn(5, 6, generator=generator).to("cuda"), sf.randn(5, 3, generator=generator).to("cuda")
            )
            history.append((loss.item(), scaler.get_scale(), [p.detach().cpu().tolist() for p in net.parameters()]))
        return history, scaler.state_dict()

    want, got = run(False), run(True)
    assert got == want
    scales = [h[1] for h in want[0]]
    # shrinks, and grows again
    assert scales[0] == 2.0**23 and scales[-1] < scales[0] and any(b > a for a, b in zip(scales, scales[1:]))


def test_graphed_steps_say_what_they_take():
    step = cuda.make_graphed_step(lambda x: None)
    assert step(sf.ones(2, device="cuda")) is None and step(sf.ones(2, device="cuda")) is None
    with pytest.raises(TypeError, match="inputs must be tensors"):
        step(3)
    with pytest.raises(ValueError, match="on one CUDA device"):
        step(sf.ones(2))
    with pytest.raises(ValueError, match="needs inputs"):
        step()
    with pytest.raises(TypeError, match="must return tensors"):
        cuda.make_graphed_step(lambda x: [3])(sf.ones(2, device="cuda"))
    y = cuda.make_graphed_step(lambda x: (x + 1, x * 2))
    for k in (1.0, 2.0, 3.0):
        kept = y(sf.full((2,), k, device="cuda"))
        assert isinstance(kept, tuple) and [t.tolist() for t in kept] == [[k + 1] * 2, [k * 2] * 2]
    y.reset()
    assert y.statistics["kept"] == 0 and y.statistics["captures"] == 1
    layer = sf.nn.Linear(2, 2).to("cuda")
    outside = cuda.make_graphed_step(layer)
    with sf.autocast("cuda", dtype=sf.bfloat16):
        outside(sf.ones(1, 2, device="cuda"))
        with pytest.raises(RuntimeError, match="enter it inside of the step"):
            outside(sf.ones(1, 2, device="cuda"))


@pytest.mark.skipif(
    "emulator" not in os.environ.get("SF_CUDA_LIBRARY", ""), reason="the emulator's memory can be made small"
)
def test_running_out_of_memory_in_backward_names_the_op():
    library = ctypes.CDLL(os.environ["SF_CUDA_LIBRARY"])
    library.sf_cuda_emulator_set_memory.argtypes = [ctypes.c_size_t]
    x = sf.ones(1 << 22, device="cuda", requires_grad=True)
    y = x.exp().sum()
    gc.collect()
    cuda.empty_cache()
    free, total = cuda.mem_get_info()
    library.sf_cuda_emulator_set_memory(total - free + (1 << 20))
    try:
        with pytest.raises(cuda.OutOfMemoryError, match="16.0 MiB asked for by the gradient of (sum|exp), "):
            y.backward()
    finally:
        library.sf_cuda_emulator_set_memory(total)


def test_running_out_of_memory_names_the_module():
    net = sf.nn.Sequential(sf.nn.Linear(4, 8), sf.nn.Sequential(sf.nn.ReLU(), sf.nn.Linear(8, 1 << 20))).to("cuda")
    rows = cuda.mem_get_info()[1] // (4 << 20) + 1  # of 4 MiB each
    with pytest.raises(cuda.OutOfMemoryError) as e:
        net(sf.ones(rows, 4, device="cuda"))
    assert "MiB asked for by 1.1 (a Linear) of a Sequential" in str(e.value) and "tensors of this process" in str(
        e.value
    )
    assert issubclass(cuda.OutOfMemoryError, RuntimeError) and sf.OutOfMemoryError is cuda.OutOfMemoryError
    assert net[0](sf.ones(1, 4, device="cuda")).shape == (1, 8)
