"""Hooks on gradients and on saved tensors."""

import gc
import weakref

import pytest

import scaffolding as sf


def leaf(*values):
    return sf.tensor(list(values), requires_grad=True)


def test_hooks_see_and_replace_gradients():
    x = leaf(1.0, 2.0)
    y = x * 2
    seen = []
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert seen == [("x", [20, 20])] and x.grad.tolist() == [20, 20]


def test_hooks_run_in_order_and_can_be_removed():
    x = leaf(1.0)
    first = x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g * 10)
    (x * 1).sum().backward()
    assert x.grad.item() == 20
    first.remove()
    first.remove()
    x.grad = None
    (x * 1).sum().backward()
    assert x.grad.item() == 10


def test_a_hook_may_remove_itself():
    x = leaf(1.0)
    calls = []

    def once(g):
        calls.append(1)
        handle.remove()

    handle = x.register_hook(once)
    (x * 1).sum().backward()
    (x * 1).sum().backward()
    assert calls == [1]


def test_handles_are_context_managers():
    x = leaf(1.0)
    with x.register_hook(lambda g: g * 5):
        (x * 1).sum().backward()
    (x * 1).sum().backward()
    assert x.grad.item() == 6


def test_post_accumulate_hooks():
    x = leaf(1.0)
    steps = []

    def step(p):
        steps.append(p.grad.item())
        p.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert steps == [2, 3] and x.grad is None
    handle.remove()
    (x * 2).sum().backward()
    assert steps == [2, 3]
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).register_post_accumulate_grad_hook(step)


def test_errors_in_hooks_keep_their_type():
    x = leaf(1.0)
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 1).sum().backward()
    y = leaf(1.0)
    y.register_hook(lambda g: "no tensor")
    with pytest.raises(TypeError, match="hook"):
        (y * 1).sum().backward()
    with pytest.raises(TypeError):
        y.register_hook(3)
    with pytest.raises(RuntimeError, match="does not require"):
        sf.ones(1).register_hook(print)


def test_hooks_keep_their_objects_until_the_tensor_dies():
    class Thing:
        def __call__(self, g):
            return None

    thing = Thing()
    ref = weakref.ref(thing)
    x = leaf(1.0)
    x.register_hook(thing)
    del thing
    gc.collect()
    assert ref() is not None
    del x
    gc.collect()
    assert ref() is None


def test_saved_tensors_hooks():
    packed, x = [], leaf(2.0, 3.0)
    with sf.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t.shape) or t.tolist(), lambda values: sf.tensor(values)
    ):
        a = x * 1
        y = (a * a).sum()
    assert (2,) in packed and y.requires_grad
    y.backward()
    assert x.grad.tolist() == [4, 6]
    x.grad = None
    with sf.autograd.graph.save_on_cpu():
        y = ((x * 1) ** 2).sum()
    y.backward()
    assert x.grad.tolist() == [4, 6]
    with pytest.raises(TypeError, match="unpack"):
        with sf.autograd.graph.saved_tensors_hooks(lambda t: 1, lambda one: one):
            y = (x * 1).exp().sum()
        y.backward()


def test_hooks_that_use_their_own_tensor_are_collected():
    def with_hooks(x):
        x.register_hook(lambda g: g * x)
        if x.is_leaf:
            x.register_post_accumulate_grad_hook(lambda p: x)
        (x * 2).sum().backward()
        return weakref.ref(x)

    refs = [with_hooks(leaf(1.0)), with_hooks(leaf(1.0) * 2)]
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_hooks_that_backward_needs_are_not_collected():
    def tripled(x):
        y = x * 3
        y.register_hook(lambda g: g * y.detach())
        return y.sum()

    x = leaf(1.0)
    z = tripled(x)
    gc.collect()
    z.backward()
    assert x.grad.item() == 9
