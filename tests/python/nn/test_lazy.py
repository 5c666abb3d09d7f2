"""Lazy layers: the size of the first input makes them what the plain class would have been."""

import copy

import pytest

import scaffolding as sf
from scaffolding import nn

CASES = [
    (lambda: nn.LazyLinear(3), lambda: nn.Linear(4, 3), (2, 4)),
    (lambda: nn.LazyLinear(3, bias=False), lambda: nn.Linear(4, 3, bias=False), (2, 5, 4)),
    (lambda: nn.LazyConv1d(4, 3), lambda: nn.Conv1d(2, 4, 3), (1, 2, 6)),
    (lambda: nn.LazyConv2d(4, 3, padding=1, groups=2), lambda: nn.Conv2d(6, 4, 3, padding=1, groups=2), (1, 6, 5, 5)),
    (lambda: nn.LazyConv2d(4, 3), lambda: nn.Conv2d(2, 4, 3), (2, 5, 5)),
    (lambda: nn.LazyConv3d(4, 2), lambda: nn.Conv3d(2, 4, 2), (1, 2, 3, 3, 3)),
    (lambda: nn.LazyConvTranspose1d(4, 3), lambda: nn.ConvTranspose1d(2, 4, 3), (1, 2, 6)),
    (
        lambda: nn.LazyConvTranspose2d(4, 3, 2, 1, 1, 2, False),
        lambda: nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, 2, False),
        (1, 6, 4, 4),
    ),
    (lambda: nn.LazyConvTranspose3d(4, 2), lambda: nn.ConvTranspose3d(2, 4, 2), (1, 2, 3, 3, 3)),
    (lambda: nn.LazyBatchNorm1d(), lambda: nn.BatchNorm1d(5), (3, 5)),
    (lambda: nn.LazyBatchNorm2d(affine=False), lambda: nn.BatchNorm2d(3, affine=False), (2, 3, 4, 4)),
    (lambda: nn.LazyBatchNorm3d(), lambda: nn.BatchNorm3d(3), (2, 3, 2, 2, 2)),
    (lambda: nn.LazyInstanceNorm1d(), lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (3, 5)),
    (
        lambda: nn.LazyInstanceNorm2d(track_running_stats=False),
        lambda: nn.InstanceNorm2d(3, affine=True),
        (2, 3, 4, 4),
    ),
    (
        lambda: nn.LazyInstanceNorm3d(),
        lambda: nn.InstanceNorm3d(3, affine=True, track_running_stats=True),
        (2, 3, 2, 2, 2),
    ),
]
IDS = [make().__class__.__name__ for make, _, _ in CASES]


@pytest.mark.parametrize("lazy, plain, shape", CASES, ids=IDS)
def test_the_first_input_makes_the_layer(lazy, plain, shape):
    x = sf.randn(*shape)
    layer = lazy()
    assert layer.has_uninitialized_params() == bool(layer.state_dict())
    sf.manual_seed(3)
    y = layer(x)
    sf.manual_seed(3)
    want = plain()
    assert type(layer) is type(want) and repr(layer) == repr(want)
    assert y.tolist() == want(x).tolist()
    assert list(layer.state_dict()) == list(want.state_dict())
    for (name, a), (_, b) in zip(layer.named_parameters(), want.named_parameters()):
        assert type(a) is nn.Parameter and a.tolist() == b.tolist(), name
    assert layer(x).shape == y.shape and copy.deepcopy(layer)(x).shape == y.shape


def test_before_the_first_input():
    layer = nn.LazyLinear(3)
    assert repr(layer) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    assert isinstance(layer.weight, nn.UninitializedParameter)
    with pytest.raises(RuntimeError, match="shape of an uninitialized parameter"):
        layer.weight.shape
    optimizer = sf.optim.SGD(layer.parameters(), lr=0.1)
    layer(sf.ones(2, 4)).sum().backward()
    before = layer.weight.tolist()
    optimizer.step()
    assert layer.weight.tolist() != before, "the optimizer holds the parameter that was made"


def test_loading_makes_the_layer_too():
    for lazy, plain, x in (
        (nn.LazyLinear(3), nn.Linear(4, 3), sf.randn(2, 4)),
        (nn.LazyConv2d(4, 3, groups=2), nn.Conv2d(6, 4, 3, groups=2), sf.randn(1, 6, 5, 5)),
        (nn.LazyBatchNorm1d(), nn.BatchNorm1d(5), sf.randn(3, 5)),
    ):
        lazy.load_state_dict(plain.state_dict())
        assert not lazy.has_uninitialized_params()
        assert lazy(x).tolist() == plain(x).tolist()
        assert type(lazy) is type(plain) and repr(lazy) == repr(plain)


def test_parameters_and_buffers_by_hand():
    p, b = nn.UninitializedParameter(dtype=sf.float64), nn.UninitializedBuffer()
    p.materialize((2, 3))
    b.materialize((4,))
    assert type(p) is nn.Parameter and p.shape == (2, 3) and p.dtype is sf.float64 and p.requires_grad
    assert type(b) is nn.Buffer and b.shape == (4,) and not b.requires_grad
