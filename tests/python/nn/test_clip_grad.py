"""nn.utils from Python; that the numbers are torch's is nn/clip_grad_test.cpp's business."""

import math

import pytest

import scaffolding as sf
from scaffolding.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)


def parameters():
    ps = [sf.nn.Parameter(sf.zeros(2)), sf.nn.Parameter(sf.zeros(3)), sf.nn.Parameter(sf.zeros(1))]
    ps[0].grad = sf.tensor([3.0, 0.0])
    ps[1].grad = sf.tensor([0.0, -4.0, 0.0])
    return ps


def test_norms():
    ps = parameters()
    assert clip_grad_norm_(ps, 10.0).item() == 5 and ps[0].grad.tolist() == [3, 0]
    total = clip_grad_norm_((p for p in ps), max_norm=1, norm_type="inf", error_if_nonfinite=True, foreach=True)
    assert total.shape == () and total.item() == 4 and ps[1].grad.tolist() == pytest.approx([0, -1, 0])
    assert clip_grad_norm_(ps[0], 1, 1.0).item() == pytest.approx(0.75) and clip_grad_norm_([], 1).item() == 0
    assert (
        get_total_norm([sf.tensor([3.0]), sf.tensor([4.0])]).item() == 5 == get_total_norm(sf.tensor([3.0, 4.0])).item()
    )
    ps = parameters()
    clip_grads_with_norm_(ps, 1.0, sf.tensor(5.0))
    assert get_total_norm([p.grad for p in ps if p.grad is not None]).item() == pytest.approx(1)
    ps[0].grad = sf.tensor([math.nan, 0.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    with pytest.warns(UserWarning, match="empty generator"):
        clip_grad_norm_((p for p in []), 1.0)


def test_values():
    ps = parameters()
    clip_grad_value_(ps, 3.5)
    assert ps[0].grad.tolist() == [3, 0] and ps[1].grad.tolist() == [0, -3.5, 0] and ps[2].grad is None
    clip_grad_value_(ps[0], clip_value=1)
    assert ps[0].grad.tolist() == [1, 0]


def test_vectors():
    ps = parameters()
    v = parameters_to_vector(iter(ps))
    assert v.shape == (6,) and v.requires_grad
    vector_to_parameters(sf.arange(6.0), iter(ps))
    assert [p.tolist() for p in ps] == [[0, 1], [2, 3, 4], [5]] and all(
        type(p) is sf.nn.Parameter and p.is_leaf for p in ps
    )
    with pytest.raises(ValueError, match="vector of 6 elements"):
        vector_to_parameters(sf.zeros(5), ps)
