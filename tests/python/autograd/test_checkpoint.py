"""Checkpointing: the same gradients, less memory."""

import collections

import pytest

import scaffolding as sf
from scaffolding.backends import cpu
from scaffolding.utils.checkpoint import checkpoint, checkpoint_offload, checkpoint_sequential


def block(x, w):
    return ((x @ w).tanh() @ w).sigmoid()


def gradients(run):
    sf.manual_seed(1)
    x, w = sf.randn(8, 8, requires_grad=True), sf.nn.Parameter(sf.randn(8, 8))
    y = run(x, w)
    y.sum().backward()
    return y.tolist(), x.grad.tolist(), w.grad.tolist()


@pytest.mark.parametrize("kind", [checkpoint, checkpoint_offload])
def test_values_and_gradients_are_the_same(kind):
    assert gradients(lambda x, w: kind(block, x, w)) == gradients(block)
    assert gradients(lambda x, w: kind(lambda a: block(a, w), x)) == gradients(block)  # a parameter that is no argument
    assert gradients(lambda x, w: kind(block, x, w=w)) == gradients(block)


def test_forward_runs_twice_and_only_when_needed():
    runs = []

    def f(x):
        runs.append(sf.is_grad_enabled())
        return x.exp()

    x = sf.ones(3, requires_grad=True)
    y = checkpoint(f, x, use_reentrant=False)
    assert len(runs) == 1
    y.sum().backward()
    assert len(runs) == 2
    with sf.no_grad():
        checkpoint(f, x)
    assert len(runs) == 3


def test_random_numbers_are_drawn_again():
    def dropout(x):
        return x * (sf.rand(100) > 0.5).float()

    x = sf.ones(100, requires_grad=True)
    y = checkpoint(dropout, x)
    after = sf.rand(1).item()
    y.sum().backward()
    assert x.grad.tolist() == y.tolist() and sf.rand(1).item() != after


def test_structures_of_arguments_and_results():
    Pair = collections.namedtuple("Pair", "a b")

    def f(x, n, *, scale=None):
        assert n == 3
        return {"pair": Pair(x * n, None), "list": [x * scale, "text"]}

    x, s = sf.ones(2, requires_grad=True), sf.tensor(2.0)
    out = checkpoint(f, x, 3, scale=s)
    assert out["pair"].b is None and out["list"][1] == "text" and isinstance(out["pair"], Pair)
    (out["pair"].a + out["list"][0]).sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_nesting_grad_and_second_derivatives():
    x = sf.tensor([0.5], dtype=sf.float64, requires_grad=True)

    def nested(a):
        return checkpoint(lambda b: checkpoint(sf.exp, b * b), a)

    assert sf.autograd.gradcheck(nested, (x,))
    (g,) = sf.autograd.grad(nested(x).sum(), x)
    (h,) = sf.autograd.grad((x * x).exp().sum(), x)
    assert g.item() == h.item()
    assert sf.autograd.gradgradcheck(nested, (x,))


def test_errors_pass_through():
    x = sf.ones(1, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        checkpoint(lambda a: 1 / 0, x)
    calls = []

    def second_fails(a):
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("second")
        return a.exp()

    with pytest.raises(KeyError):
        checkpoint(second_fails, x).sum().backward()


def test_sequential():
    x = sf.full((4,), 0.5, requires_grad=True)
    functions = [sf.exp, sf.sin, lambda t: t * t, sf.tanh]
    checkpoint_sequential(functions, 2, x).sum().backward()
    got, x.grad = x.grad.tolist(), None
    y = x
    for f in functions:
        y = f(y)
    y.sum().backward()
    assert got == x.grad.tolist()
    with pytest.raises(ValueError):
        checkpoint_sequential(functions, 9, x)


def test_memory_falls():
    def peak(run):
        x = sf.ones(100_000, requires_grad=True)
        cpu.reset_peak_memory_stats()
        before = cpu.memory_allocated()
        y = run(x)
        kept = cpu.memory_allocated() - before
        y.sum().backward()
        return kept, cpu.max_memory_allocated() - before

    def segment(x):
        for _ in range(10):
            x = x.tanh()
        return x

    def deep(call):
        def run(x):
            for _ in range(5):
                x = call(segment, x)
            return x

        return peak(run)

    kept, top = deep(lambda f, x: f(x))
    kept_checkpointed, top_checkpointed = deep(checkpoint)
    assert kept > 40 * 400_000 and kept_checkpointed < 7 * 400_000
    assert top_checkpointed < top / 2


def test_offloading_to_a_smaller_dtype():
    x = sf.randn(2048, requires_grad=True)
    checkpoint_offload(lambda a: (a.tanh() * a).sin(), x, dtype=sf.bfloat16, min_bytes=0).sum().backward()
    rough, x.grad = x.grad, None
    (x.tanh() * x).sin().sum().backward()
    assert (rough - x.grad).abs().max().item() < 0.05
    with pytest.raises(TypeError):
        checkpoint_offload(sf.exp, x, dtype="bfloat16")
