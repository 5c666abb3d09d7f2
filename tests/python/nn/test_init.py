"""nn.init from Python; that the numbers are torch's is nn/init_test.cpp's business."""

import math
import warnings

import pytest

import scaffolding as sf
from scaffolding.nn import init


def test_each_function_fills_a_parameter_and_returns_it():
    calls = {
        "uniform_": (-1, 1),
        "normal_": (0, 2),
        "trunc_normal_": (),
        "constant_": (2.5,),
        "ones_": (),
        "zeros_": (),
        "eye_": (),
        "xavier_uniform_": (),
        "xavier_normal_": (2,),
        "kaiming_uniform_": (math.sqrt(5),),
        "kaiming_normal_": (0, "fan_out", "relu"),
        "orthogonal_": (),
        "sparse_": (0.5,),
    }
    for name, arguments in calls.items():
        p = sf.nn.Parameter(sf.full((6, 4), 7.0))
        version = p._version
        assert getattr(init, name)(p, *arguments) is p and p.requires_grad and p.is_leaf and p._version > version, name
        assert (p != 7).all(), name
    p = sf.nn.Parameter(sf.zeros(4, 4, 3))
    assert init.dirac_(p) is p and p.sum().item() == 4


def test_a_seed_or_a_generator_decides_the_numbers():
    sf.manual_seed(3)
    a = init.kaiming_uniform_(sf.empty(3, 3))
    g = sf.Generator().manual_seed(3)
    b = init.kaiming_uniform_(sf.empty(3, 3), generator=g)
    assert (
        a.tolist() == b.tolist()
        and a.abs().max().item() <= math.sqrt(2)
        and init.kaiming_uniform_(sf.empty(3, 3), generator=g).tolist() != a.tolist()
    )
    with pytest.raises(TypeError, match="normal_: generator must be a Generator"):
        init.normal_(sf.empty(3), generator=3)


def test_fans_and_gains():
    assert init._calculate_fan_in_and_fan_out(sf.empty(6, 5, 3, 3)) == (45, 54)
    assert init._calculate_correct_fan(sf.empty(6, 5), "FAN_OUT") == 6
    assert init.calculate_gain("leaky_relu", 1) == 1 and init.calculate_gain("relu") == math.sqrt(2)
    with pytest.raises(
        ValueError, match="fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
    ):
        init.xavier_uniform_(sf.empty(3))
    with pytest.raises(ValueError, match="mode 'fan' is not supported"):
        init._calculate_correct_fan(sf.empty(6, 5), "fan")


def test_warnings_are_torchs():
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(sf.empty(3), 0, 1, 3, 4)
    with pytest.warns(UserWarning, match="without elements"):
        init.kaiming_normal_(sf.empty(0, 3))
    with pytest.warns(FutureWarning, match="in favor of nn.init.xavier_normal_"):
        init.xavier_normal(sf.empty(3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        init.trunc_normal_(sf.empty(3))
