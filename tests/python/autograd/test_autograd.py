"""backward, grad, modes, in-place rules."""

import threading

import pytest

import scaffolding as sf


def leaf(*values):
    return sf.tensor(list(values), requires_grad=True)


def test_the_promised_example():
    x = leaf(2.0, 3.0)
    y = x * x + x
    y.sum().backward()
    assert x.grad.tolist() == [5, 7]


def test_gradients_accumulate_and_are_reset():
    x = leaf(1.0)
    for want in (2, 4):
        (x * 2).sum().backward()
        assert x.grad.item() == want
    x.grad = None
    assert x.grad is None
    (x * 3).sum().backward()
    assert x.grad.item() == 3
    x.grad.zero_()
    x.grad = sf.tensor([9.0])
    del x.grad
    assert x.grad is None
    with pytest.raises(ValueError, match="shape"):
        x.grad = sf.ones(2)
    with pytest.raises(TypeError):
        x.grad = 3


def test_backward_arguments():
    x = leaf(1.0, 2.0)
    y = x * x
    y.backward(gradient=sf.tensor([1.0, 10.0]), retain_graph=True)
    assert x.grad.tolist() == [2, 40]
    y.backward(sf.ones(2))
    with pytest.raises(RuntimeError, match="second time"):
        y.backward(sf.ones(2))
    with pytest.raises(RuntimeError, match="more than one element"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require"):
        sf.ones(1).backward()
    with pytest.raises(ValueError, match="shape"):
        (x * 2).backward(sf.ones(3))


def test_second_derivatives():
    x = leaf(3.0)
    (g,) = sf.autograd.grad((x**3).sum(), x, create_graph=True)
    assert g.item() == pytest.approx(27) and g.requires_grad
    (h,) = sf.autograd.grad(g.sum(), [x])
    assert h.item() == pytest.approx(18)
    y = (x * x).sum()
    y.backward(create_graph=True)
    assert x.grad.requires_grad


def test_grad_function():
    x, y, z = leaf(1.0), leaf(2.0), leaf(3.0)
    out = (x * y).sum()
    gx, gy = sf.autograd.grad(out, (x, y), retain_graph=True)
    assert (gx.item(), gy.item()) == (2, 1) and x.grad is None
    with pytest.raises(RuntimeError, match="allow_unused"):
        sf.autograd.grad(out, (x, z), retain_graph=True)
    assert sf.autograd.grad(out, (x, z), retain_graph=True, allow_unused=True)[1] is None
    assert sf.autograd.grad(out, z, materialize_grads=True)[0].tolist() == [0]
    with pytest.raises(TypeError):
        sf.autograd.grad(out, [3])


def test_backward_of_several():
    x = leaf(1.0)
    sf.autograd.backward([x * 2, x * 3], [sf.ones(1), sf.ones(1)])
    assert x.grad.item() == 5
    with pytest.raises(ValueError):
        sf.autograd.backward([x * 2], [None, None])


def test_leaves_nodes_and_names():
    x = leaf(1.0)
    y = (x * 2).exp()
    assert x.is_leaf and not y.is_leaf and y.requires_grad and x.grad_fn is None
    assert y.grad_fn.name() == "ExpBackward0" and y.grad_fn == y.grad_fn
    ((mul, nr),) = y.grad_fn.next_functions
    assert mul.name() == "MulBackward0" and nr == 0
    accumulate = mul.next_functions[0][0]
    assert accumulate.name() == "AccumulateGrad" and accumulate.variable is x


def test_requires_grad_switches():
    x = sf.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad
    with pytest.raises(TypeError, match="floating"):
        sf.arange(2).requires_grad_()
    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError):
        y.requires_grad_(False)
    assert not y.detach().requires_grad and y.detach().data_ptr() == y.data_ptr()
    y.detach_()
    assert y.is_leaf and not y.requires_grad


def test_retain_grad():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    assert y.retains_grad and y.grad.item() == 4 and x.grad.item() == 8


# ---- modes


def test_modes_as_context_managers():
    x = leaf(1.0)
    with sf.no_grad():
        assert not sf.is_grad_enabled() and not (x * 2).requires_grad
        with sf.enable_grad():
            assert (x * 2).requires_grad
        assert not sf.is_grad_enabled()
    with sf.inference_mode():
        y = x * 2
        assert sf.is_inference_mode_enabled() and y.is_inference()
    assert not sf.is_inference_mode_enabled()
    with pytest.raises(RuntimeError, match="inference_mode"):
        y * x
    with sf.inference_mode(False):
        assert sf.is_grad_enabled()
    with pytest.raises(ZeroDivisionError):
        with sf.no_grad():
            1 / 0
    assert sf.is_grad_enabled()


def test_set_grad_enabled():
    with sf.set_grad_enabled(False):
        assert not sf.is_grad_enabled()
    assert sf.is_grad_enabled()
    sf.set_grad_enabled(False)
    assert not sf.is_grad_enabled()
    sf.set_grad_enabled(True)

    @sf.set_grad_enabled(False)
    def f():
        return sf.is_grad_enabled()

    assert f() is False and sf.is_grad_enabled()


def test_modes_as_decorators():
    @sf.no_grad()
    def off(depth=1):
        """Doc."""
        return off(depth - 1) if depth else sf.is_grad_enabled()

    @sf.no_grad
    def bare():
        return sf.is_grad_enabled()

    @sf.inference_mode()
    def inference():
        return sf.is_inference_mode_enabled()

    @sf.enable_grad()
    def on():
        return sf.is_grad_enabled()

    assert (
        off() is False and bare() is False and inference() is True and off.__name__ == "off" and off.__doc__ == "Doc."
    )
    with sf.no_grad():
        assert on() is True


def test_modes_decorate_generators():
    @sf.no_grad()
    def numbers():
        got = yield sf.is_grad_enabled()
        try:
            yield (got, sf.is_grad_enabled())
        except ValueError:
            yield sf.is_grad_enabled()
        return "end"

    g = numbers()
    assert next(g) is False and sf.is_grad_enabled()
    assert g.send(5) == (5, False) and sf.is_grad_enabled()
    assert g.throw(ValueError()) is False and sf.is_grad_enabled()
    with pytest.raises(StopIteration) as stop:
        next(g)
    assert stop.value.value == "end"


# ---- in-place writes


def test_in_place_misuse_is_an_error():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified in place"):
        y.sum().backward()
    a = leaf(1.0) * 1
    b = a * a
    a.mul_(2)
    with pytest.raises(RuntimeError, match="modified in place"):
        b.sum().backward()


def test_leaves_may_not_be_written():
    x = leaf(1.0)
    for write in (
        lambda: x.add_(1),
        lambda: x.__imul__(2),
        lambda: x.zero_(),
        lambda: x.copy_(sf.ones(1)),
        lambda: x.relu_(),
        lambda: x.fill_(2),
    ):
        with pytest.raises(RuntimeError, match="leaf"):
            write()
    with sf.no_grad():
        x.add_(1)
    assert x.item() == 2 and x.requires_grad


def test_in_place_ops_are_recorded():
    x = leaf(1.0, 2.0)
    y = x * 1
    y.mul_(3).add_(x)
    y.sum().backward()
    assert x.grad.tolist() == [4, 4]
    x.grad = None
    y = x * 1
    v = y[0:1]
    v.mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [5, 1]


def test_a_million_nodes_are_freed():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    del y


def test_backward_in_several_threads():
    grads = []

    def work():
        x = sf.ones(100, requires_grad=True)
        for _ in range(50):
            (x.exp() * x).sum().backward()
        grads.append(x.grad[0].item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(set(grads)) == 1


def test_gradcheck():
    x = sf.randn(3, dtype=sf.float64, requires_grad=True)
    y = sf.randn(2, 3, dtype=sf.float64, requires_grad=True)
    assert sf.autograd.gradcheck(lambda a, b: (a * b).exp().sum(0), (x, y))
    assert sf.autograd.gradgradcheck(lambda a: a.sin() * a, (x,))
    with pytest.raises(TypeError, match="float64"):
        sf.autograd.gradcheck(lambda a: a, (leaf(1.0),))

    class Wrong(sf.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 3

    with pytest.raises(RuntimeError, match="gradcheck"):
        sf.autograd.gradcheck(Wrong.apply, (x,))
    assert not sf.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)


def test_backward_into_chosen_inputs():
    x, y = leaf(1.0), leaf(2.0)
    (x * y).sum().backward(inputs=[x])
    assert x.grad.item() == 2 and y.grad is None
    sf.autograd.backward((x * y).sum(), inputs=y)
    assert x.grad.item() == 2 and y.grad.item() == 1


def test_detect_anomaly_names_the_op():
    x = leaf(-1.0)
    with sf.autograd.detect_anomaly():
        assert sf.is_anomaly_enabled()
        with pytest.raises(RuntimeError, match="sqrt"):
            x.sqrt()
        (x * 2).sum().backward()
    assert not sf.is_anomaly_enabled() and x.sqrt().isnan().item()
    sf.autograd.set_detect_anomaly(True)
    assert sf.is_anomaly_enabled()
    sf.autograd.set_detect_anomaly(False)
    assert not sf.is_anomaly_enabled()
