"""sf.cuda.CUDAGraph and what is made of it: with a GPU, or with the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY)."""

import gc

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
    rules = [sf.optim.SGD(n.parameters(), lr=0.05, momentum=0.9) for n in (captured, plain)]
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
    scaler = sf.amp.GradScaler("cuda")
    for f, message in (
        (lambda: x.sum().item(), "a copy from or to host memory is not allowed while a CUDA graph is captured"),
        (lambda: sf.tensor([1.0, 2.0], device="cuda"), "a copy from or to host memory is not allowed"),
        (cuda.synchronize, "waiting for the device is not allowed"),
        (lambda: sf.nonzero(x), "a result whose shape depends on values is not allowed"),
        (cuda.empty_cache, "empty_cache: not allowed while"),
        (adamw.step, "step count and learning rate"),
        (sgd.step, "a first step, which starts the momentum anew"),
        (lambda: scaler.unscale_(sgd), "the scale would stay"),
        (lambda: scaler.scale(x), "the scale would stay"),
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
