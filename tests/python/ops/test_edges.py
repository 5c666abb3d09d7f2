"""What PyTorch gives at the edges: nothing to write, bounds with gradients, bytes, dtypes, the ends of a series."""

import math

import pytest

import scaffolding as sf
from scaffolding.nn import functional as F


def test_nothing_is_written_over_nothing():
    x = sf.ones(0, 3)
    assert x.add_(1).shape == (0, 3) and x.exp_().shape == (0, 3)
    with pytest.raises(RuntimeError, match="expanded"):
        sf.ones(1, 3).expand(2, 3).add_(1)


def test_clamp_has_no_gradient_at_its_bounds():
    x = sf.tensor([0.0, 0.5, 2.0, 3.0], requires_grad=True)
    x.clamp(0, 2).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_bounds_of_clamp_have_gradients():
    x, low, high = (sf.tensor(v, requires_grad=True) for v in ([-2.0, 0.5, 3.0], -1.0, 1.0))
    y = x.clamp(low, high)
    y.sum().backward()
    assert y.tolist() == [-1.0, 0.5, 1.0]
    assert (x.grad.tolist(), low.grad.item(), high.grad.item()) == ([0.0, 1.0, 0.0], 1.0, 1.0)
    x = sf.tensor([-2.0, 3.0])
    assert x.clamp_min_(sf.tensor([0.0, 4.0])).tolist() == [0.0, 4.0] == x.tolist()
    assert x.clamp_max_(sf.tensor([1.0])).tolist() == [0.0, 1.0]
    assert sf.clamp_max(sf.tensor([3, 5]), sf.tensor(4)).tolist() == [3, 4]


def test_a_tensor_that_fills_has_its_gradient():
    value = sf.tensor(2.0, requires_grad=True)
    y = sf.zeros(3).masked_fill(sf.tensor([True, False, True]), value)
    y.sum().backward()
    assert y.tolist() == [2.0, 0.0, 2.0] and value.grad.item() == 2.0
    x = sf.zeros(2)
    x.masked_fill_(sf.tensor([True, False]), value).sum().backward()
    assert x.tolist() == [2.0, 0.0] and value.grad.item() == 3.0
    for wrong in ("2", value.expand(2)):
        with pytest.raises(TypeError, match="masked_fill: value must be a number"):
            x.masked_fill(sf.tensor([True, False]), wrong)
    with pytest.raises(TypeError, match="alpha must be a number"):  # its gradient would be lost
        sf.add(sf.ones(2), sf.ones(2), alpha=value)


def test_bytes_wrap_around():
    x = sf.tensor([9, 2], dtype=sf.uint8)
    other = sf.tensor([5, 4], dtype=sf.uint8)
    assert sf.add(x, other, alpha=-1).tolist() == [4, 254] and sf.sub(x, other, alpha=-1).tolist() == [14, 6]
    assert x.sub_(other, alpha=-1).tolist() == [14, 6]
    assert sf.add(sf.tensor([True, False]), sf.tensor([True, False]), alpha=-1).tolist() == [True, False]


def test_shifts_by_numbers_keep_the_dtype():
    x = sf.tensor(3, dtype=sf.int16)
    assert (x << 2).item() == 12 and (x << 2).dtype == (x << True).dtype == (x >> 1).dtype == sf.int16
    assert (x << -1).item() == (x << 63).item() == (x >> 63).item() == 0


def test_remainders_by_bools_and_numbers():
    assert sf.fmod(sf.tensor([7], dtype=sf.uint8), True).tolist() == [0]
    assert sf.fmod(sf.tensor([4], dtype=sf.uint8), -3).tolist() == [4]  # -3 is 253
    assert sf.fmod(sf.tensor(2.25, dtype=sf.float16), 0.5).dtype == sf.float16


def test_gradients_of_doubles_are_doubles():
    x = sf.tensor([1.0], dtype=sf.float64, requires_grad=True)
    sf.lerp(x, 2 * x, 0.1).sum().backward()
    assert x.grad.item() == pytest.approx(1.1, rel=1e-15)
    assert sf.ldexp(sf.tensor(0.1, dtype=sf.float64), sf.tensor(0.5, dtype=sf.float64)).item() == 0.1 * math.sqrt(2)
    assert sf.xlogy(sf.tensor([1.0], dtype=sf.float64), 2).item() == math.log(2)
    assert sf.ldexp(sf.tensor([1.0], dtype=sf.bfloat16), sf.tensor([3], dtype=sf.int8)).dtype == sf.bfloat16
    assert sf.logaddexp2(sf.tensor([1.0], dtype=sf.float16), sf.tensor([1.0], dtype=sf.float64)).item() == 2.0


def test_sinc_has_a_gradient_near_0():
    x = sf.tensor([0.0, 1e-30, 0.01, 0.04], dtype=sf.float32, requires_grad=True)
    sf.sinc(x).sum().backward()
    expected = [0.0, -(math.pi**2) / 3 * 1e-30] + [
        (math.cos(math.pi * v) - math.sin(math.pi * v) / (math.pi * v)) / v for v in (0.01, 0.04)
    ]
    assert x.grad.tolist() == pytest.approx(expected, rel=1e-4)


def test_powers_of_0_have_infinite_gradients():
    e = sf.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    sf.pow(sf.zeros(3), e).sum().backward()
    assert e.grad.tolist() == [-math.inf, 0.0, 0.0]


def test_pieces():
    assert [p.tolist() for p in sf.tensor_split(sf.arange(5), [-2, 4])] == [[0, 1, 2], [3], [4]]
    assert [p.shape for p in sf.ones(2, 0).chunk(3, 1)] == [(2, 0)] * 3
    assert [p.tolist() for p in sf.where(sf.tensor(5))] == [[0]]
    assert [p.tolist() for p in sf.tensor(0).nonzero(as_tuple=True)] == [[]]


def test_products_over_nothing():
    assert (sf.ones(1, 3, 0) @ sf.ones(0)).tolist() == [[0.0] * 3]
    assert F.linear(sf.ones(2, 4, 3), sf.tensor([1.0, 2.0, 3.0]), sf.tensor(1.0)).tolist() == [[7.0] * 4] * 2


@pytest.mark.parametrize("dims", [1, 2])
def test_transposed_convolutions_padded_beyond_their_stride(dims):
    """The result is that of a longer input with zeros, cut; so are the gradients."""
    conv = getattr(F, f"conv_transpose{dims}d")
    x, w = (sf.randn(2, 3, *[n] * dims, dtype=sf.float64, requires_grad=True) for n in (4, 2))
    w = w.detach()[:1].expand(3, 3, *[2] * dims).clone().requires_grad_()
    y = conv(x, w, None, stride=1, padding=2, dilation=3, output_padding=2)
    longer = F.pad(x, (0, 2) * dims)
    assert sf.testing.assert_close(y, conv(longer, w, None, stride=1, padding=2, dilation=3)) is None
    assert sf.autograd.gradcheck(lambda a, b: conv(a, b, None, 1, 2, 2, 1, 3), (x, w))


def test_adaptive_pools_keep_sides():
    x = sf.randn(1, 2, 5, 6)
    assert F.adaptive_avg_pool2d(x, (None, 2)).shape == (1, 2, 5, 2)
    assert F.adaptive_max_pool2d(x, (3, None), return_indices=True)[1].shape == (1, 2, 3, 6)


@pytest.mark.parametrize("dtype", [sf.float16, sf.bfloat16, sf.float32])
def test_the_epsilon_of_rms_norm_is_float32s(dtype):
    x = sf.tensor([[0.01, 0.02]], dtype=dtype)
    assert F.rms_norm(x, [2]).tolist()[0] == pytest.approx([0.6323, 1.2646], rel=4e-3)


def test_masks_of_several_dimensions_name_elements_of_any_layout():
    base = sf.arange(7 * 4 * 5).reshape(7, 4, 5).float()
    mask = (sf.arange(20).reshape(4, 5) % 3) == 0
    where = [tuple(p) for p in mask.nonzero().tolist()]
    for x in (base.permute(1, 2, 0), base.permute(1, 2, 0).contiguous(), base.transpose(0, 2).transpose(0, 1)):
        want = [x[i, j].tolist() for i, j in where]
        assert x[mask].tolist() == want
        y = x.clone() if x.is_contiguous() else x
        y[mask] = -1.0
        assert all((y[i, j] == -1).all() for i, j in where) and (y == -1).sum() == 7 * len(where)
    inner = base[:, mask]
    assert inner.shape == (7, len(where))
    g = sf.ones(4, 5).requires_grad_()
    (g[mask] * 2).sum().backward()
    assert g.grad.tolist() == (mask.float() * 2).tolist()


def test_shifts_promote_and_wrap_as_the_ops_do():
    x = sf.tensor([4, -8, 127], dtype=sf.int8)
    for by in (sf.tensor([True, False, True]), sf.tensor([1, 0, 1], dtype=sf.int8)):
        assert (x << by).dtype == (x >> by).dtype == sf.int8
        assert (x << by).tolist() == [8, -8, -2] and (x >> by).tolist() == [2, -8, 63]
    assert (x >> 1).dtype == sf.int8 and (x << 9).tolist() == [0, 0, 0] and (1 << sf.tensor([3])).tolist() == [8]
    y = x.clone()
    y <<= 1
    y >>= 2
    assert y.tolist() == [2, -4, -1]
    with pytest.raises(TypeError, match="needs integer"):
        x << 0.5
