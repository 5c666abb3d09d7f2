"""Names of older programs: typed tensors, storages, torch.autograd.functional."""

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.autograd import functional


def test_typed_tensors():
    made = sf.LongTensor([1, 2])
    assert made.dtype is sf.int64 and made.tolist() == [1, 2] and sf.FloatTensor(2, 3).shape == (2, 3)
    assert sf.DoubleTensor(np.ones(2)).dtype is sf.float64 and sf.FloatTensor().shape == (0,)
    assert isinstance(made, sf.LongTensor) and not isinstance(made, sf.IntTensor) and not isinstance(3, sf.LongTensor)
    assert sf.ones(1).type(sf.HalfTensor).dtype is sf.float16
    with pytest.raises(TypeError, match="FloatTensor: takes sizes, or one list"):
        sf.FloatTensor([1], [2])


def test_storages():
    x = sf.ones(2, 3)
    row, other = x[1], sf.ones(2, 3)
    assert x.untyped_storage().nbytes() == row.untyped_storage().nbytes() == 24
    assert row.untyped_storage().data_ptr() == x.data_ptr() != row.data_ptr()
    assert row.untyped_storage() == x.untyped_storage() != other.untyped_storage()


def test_real_numbers():
    x = sf.tensor([-1.0, 0.0, 2.0, float("nan")])
    assert sf.real(x) is x and x.real is x and x.conj() is x and not x.is_conj() and str(x.layout) == "strided"
    assert sf.angle(x).tolist()[:3] == [pytest.approx(np.pi), 0.0, 0.0] and sf.isnan(x.angle()[3])
    assert sf.typename(x) == "scaffolding.FloatTensor" and sf.typename(sf.nn.Linear(1, 1)).endswith("Linear")


def test_rounding_to_decimals():
    x = sf.tensor([1.2345, -15.05, 250.0], requires_grad=True)
    assert sf.round(x, decimals=2).tolist() == [pytest.approx(1.23), pytest.approx(-15.05), 250.0]
    assert x.round(decimals=-2).tolist() == [0.0, 0.0, 200.0] and sf.equal(sf.round(x, decimals=0), sf.round(x))


def cubes(a):
    return a**3


def product(a, b):
    return (a * b**2).sum()


def test_jacobian():
    v, w = sf.tensor([1.0, 2.0], dtype=sf.float64), sf.tensor([3.0, -1.0], dtype=sf.float64)
    assert functional.jacobian(cubes, v).tolist() == [[3.0, 0.0], [0.0, 12.0]]
    both = functional.jacobian(product, (v, w))
    assert [g.tolist() for g in both] == [[9.0, 1.0], [6.0, -4.0]]
    pair = functional.jacobian(lambda a: (a.sum(), a), v)
    assert pair[0].tolist() == [1.0, 1.0] and pair[1].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    leaf = v.clone().requires_grad_()
    functional.jacobian(cubes, leaf, create_graph=True).sum().backward()
    assert leaf.grad.tolist() == [6.0, 12.0]
    assert functional.jacobian(lambda a: sf.ones(2), v).tolist() == [[0.0, 0.0]] * 2
    with pytest.raises(RuntimeError, match="does not depend on every input"):
        functional.jacobian(lambda a: sf.ones(2, requires_grad=True) * 1, v, strict=True)


def test_products_with_derivatives():
    v, u = sf.tensor([1.0, 2.0], dtype=sf.float64), sf.tensor([0.5, -1.0], dtype=sf.float64)
    value, row = functional.vjp(cubes, v, u)
    assert value.tolist() == [1.0, 8.0] and row.tolist() == [1.5, -12.0]
    assert functional.jvp(lambda a: a * a.sum(), v, u)[1].tolist() == [1.5 - 0.5, -3.0 - 1.0]
    matrix = functional.hessian(lambda a: (a**3).sum() + a[0] * a[1], v)
    assert matrix.tolist() == [[6.0, 1.0], [1.0, 12.0]]
    blocks = functional.hessian(product, (v, u))
    assert blocks[0][0].tolist() == [[0.0, 0.0]] * 2 and blocks[0][1].tolist() == [[1.0, 0.0], [0.0, -2.0]]
    for which in (functional.vhp, functional.hvp):
        value, found = which(lambda a: (a**3).sum() + a[0] * a[1], v, u)
        assert value.item() == 11.0 and found.tolist() == [2.0, -11.5]
    with pytest.raises(RuntimeError, match="vjp: v must be given"):
        functional.vjp(cubes, v)
    with pytest.raises(RuntimeError, match="hessian: func must give a tensor of one element"):
        functional.hessian(cubes, v)
