"""GradientMap: gradients as values of the user's own."""

import math

import pytest

import scaffolding as sf


@pytest.fixture
def setting():
    w = sf.tensor([3.0, 4.0], requires_grad=True)
    b = sf.tensor([1.0], requires_grad=True)
    loss = (w * w).sum() / 2 + b.sum() * 12
    return w, b, loss


def test_a_mapping_of_leaves(setting):
    w, b, loss = setting
    g = loss.backward_map()
    assert len(g) == 2 and w in g and loss not in g and "w" not in g
    assert g[w].tolist() == [3, 4] and g.get(b).tolist() == [12] and g.get(loss) is None and g.get(loss, 7) == 7
    assert {id(k) for k in g} == {id(w), id(b)} == {id(k) for k in g.keys()} and len(g.values()) == 2
    assert dict((id(k), v.tolist()) for k, v in g.items())[id(b)] == [12]
    assert w.grad is None and b.grad is None
    with pytest.raises(KeyError):
        g[loss]
    with pytest.raises(TypeError):
        g["w"]


def test_backward_with_return_map(setting):
    w, b, loss = setting
    g = sf.autograd.backward(loss, return_map=True)
    assert isinstance(g, sf.autograd.GradientMap) and g[w].tolist() == [3, 4] and w.grad is None


def test_set_take_and_apply(setting):
    w, b, loss = setting
    g = loss.backward_map()
    g[w] = sf.ones(2)
    assert g.take(b).tolist() == [12] and b not in g
    g.apply_to_grads()
    assert w.grad.tolist() == [1, 1] and b.grad is None
    g.apply_to_grads(accumulate=True)
    assert w.grad.tolist() == [2, 2] and g[w].tolist() == [1, 1]
    del g[w]
    assert len(g) == 0
    with pytest.raises(KeyError):
        g.take(w)
    with pytest.raises(ValueError):
        g[w] = sf.ones(3)


def test_clipping_and_scaling(setting):
    w, b, loss = setting
    g = loss.backward_map(retain_graph=True)
    assert g.norm() == pytest.approx(13) and g.norm(math.inf) == 12
    assert (
        g.clip_norm(1.3) == pytest.approx(13)
        and g.norm() == pytest.approx(1.3, rel=1e-4)
        and g[w].tolist() == pytest.approx([0.3, 0.4], rel=1e-4)
    )
    g = loss.backward_map(retain_graph=True)
    g.clip_value(3.5)
    assert g[w].tolist() == [3, 3.5] and g[b].tolist() == [3.5]
    g.scale(2)
    assert g[b].tolist() == [7]
    g.normalize()
    assert g.norm() == pytest.approx(1)
    g = loss.backward_map(retain_graph=True)
    g.clip_adaptive(0.1)
    assert g[w].tolist() == pytest.approx([0.3, 0.4], rel=1e-4)
    g.normalize(each=True)
    assert g[w].norm().item() == pytest.approx(1) and g[b].norm().item() == pytest.approx(1)


def test_transform_noise_and_statistics(setting):
    w, b, loss = setting
    g = loss.backward_map()
    g.transform(lambda leaf, grad: None if leaf is b else grad * 10)
    assert len(g) == 1 and g[w].tolist() == [30, 40]
    s = g.statistics(w)
    assert (s.norm, s.abs_max, s.mean, s.count, s.nan, s.inf) == (50, 40, 35, 2, 0, 0) and "norm=50" in repr(s)
    g.add_noise(1.0, generator=sf.Generator().manual_seed(1))
    assert g[w].tolist() != [30, 40] and not g.has_invalid_values()
    g[w] = sf.tensor([float("nan"), float("inf")])
    assert g.has_invalid_values() and g.statistics().nan == 1 and g.statistics().inf == 1
    with pytest.raises(TypeError):
        g.transform(lambda leaf, grad: 3)
    with pytest.raises(ZeroDivisionError):
        g.transform(lambda leaf, grad: 1 / 0)
