"""scaffolding.special beside Python's own functions, series and identities; window functions, histogram, frexp."""

import math

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import special
from scaffolding.autograd import gradcheck, gradgradcheck

X = [-29.5, -6.25, -2.5, -1.3, -0.75, -0.2, -1e-6, 1e-6, 0.1, 0.49, 0.5, 0.9, 1.4, 2.6, 5.5, 9.99, 10.0, 19.9, 24.0]


def tensor(values, dtype=sf.float64, grad=False):
    return sf.tensor(values, dtype=dtype, requires_grad=grad)


def bessel(order, x):
    return sum((x / 2) ** (2 * k + order) / math.factorial(k) / math.factorial(k + order) for k in range(90))


def close(got, want, rtol=1e-12, atol=1e-300):
    np.testing.assert_allclose(got.detach().double().numpy(), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "name, reference",
    [
        ("erfc", math.erfc),
        ("gammaln", math.lgamma),
        ("i0", lambda x: bessel(0, x)),
        ("i1", lambda x: bessel(1, x)),
        ("ndtr", lambda x: math.erfc(-x * math.sqrt(0.5)) / 2),
    ],
)
def test_values(name, reference):
    function = getattr(special, name)
    close(function(tensor(X)), [reference(x) for x in X], rtol=1e-11, atol=1e-14 if name == "gammaln" else 1e-300)
    for dtype, exact in ((sf.float32, 2e-7), (sf.bfloat16, 1 / 256)):
        x = tensor(X[2:15]).to(dtype)
        got = function(x)
        assert got.dtype is dtype
        close(got, [reference(v) for v in x.double().tolist()], rtol=exact)
    assert function(sf.tensor([1])).dtype is sf.float32


def test_inverses():
    y = [-1 + 1e-12, -0.999, -0.5, -1e-9, 0.0, 1e-9, 0.3, 0.77, 1 - 1e-9]
    x = special.erfinv(tensor(y))
    close(sf.erf(x[1:-1]), y[1:-1], rtol=1e-14, atol=1e-300)
    close(special.erfc(-x[:1]), [1e-12], rtol=1e-4)  # as exact as 1 - 1e-12 is
    assert special.erfinv(tensor([-1.0, 1.0, 1.5])).tolist()[:2] == [-math.inf, math.inf]
    assert math.isnan(special.erfinv(tensor(1.5)).item())
    shares = [1e-12, 0.01, 0.5, 0.9]
    close(special.ndtr(special.ndtri(tensor(shares))), shares, rtol=1e-4)


def test_digamma_and_its_derivatives():
    x = tensor(X)
    close(special.digamma(x + 1) - special.digamma(x), [1 / v for v in X], rtol=1e-7, atol=1e-9)
    euler = 0.57721566490153286
    close(special.digamma(tensor([1.0, 0.5])), [-euler, -euler - 2 * math.log(2)], rtol=1e-14)
    close(sf.polygamma(1, tensor([1.0, 0.5])), [math.pi**2 / 6, math.pi**2 / 2], rtol=1e-13)
    for n in (1, 2, 3):
        step = sf.polygamma(n, x + 1) - sf.polygamma(n, x)
        close(step, [(-1) ** n * math.factorial(n) / v ** (n + 1) for v in X], rtol=1e-5, atol=1e-8)
    assert sf.polygamma(1, tensor([0.0, -3.0])).tolist() == [math.inf] * 2
    assert special.digamma(tensor([0.0, -0.0])).tolist() == [-math.inf, math.inf]
    assert sf.equal(sf.polygamma(0, x), special.digamma(x)) and sf.equal(x.polygamma(2), sf.polygamma(2, x))
    with pytest.raises(RuntimeError, match="n must be a whole number"):
        sf.polygamma(-1, x)


GRADIENTS = "erfc erfcx erfinv gammaln digamma i0 i0e i1 i1e ndtr ndtri log_ndtr entr".split()


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    x = tensor([0.15, 0.4, 0.9], grad=True)
    assert gradcheck(getattr(special, name), [x]) and gradgradcheck(getattr(special, name), [x])
    if name not in ("erfinv", "ndtri", "entr"):
        assert gradcheck(getattr(special, name), [tensor([-1.3, 2.2, 11.0], grad=True)], rtol=2e-3)


def test_scaled_forms():
    x = tensor(X)
    close(special.i0e(x), [bessel(0, v) * math.exp(-abs(v)) for v in X], rtol=1e-12)
    close(special.i1e(x), [bessel(1, v) * math.exp(-abs(v)) for v in X], rtol=1e-12)
    close(special.erfcx(x[2:]), [math.erfc(v) * math.exp(v * v) for v in X[2:]], rtol=1e-12)
    assert special.i0e(tensor([1e4])).item() == pytest.approx(1 / math.sqrt(2e4 * math.pi), rel=1e-4)
    assert special.log_ndtr(tensor([-40.0])).item() == pytest.approx(-804.608442, rel=1e-9)
    want = math.log(math.pi) / 2 + math.lgamma(3.5) + math.lgamma(3.0)
    assert special.multigammaln(tensor([3.5]), 2).item() == pytest.approx(want, rel=1e-13)


def test_products_with_logarithms():
    assert special.entr(tensor([0.0, 1.0, -1.0])).tolist() == [0.0, 0.0, -math.inf]
    assert special.xlog1py(tensor([0.0, 2.0]), tensor([-1.0, 1.0])).tolist() == [0.0, pytest.approx(2 * math.log(2))]
    assert special.xlog1py(3.0, tensor([1.0])).item() == pytest.approx(3 * math.log(2))


def test_names_at_the_top_and_of_tensors():
    x = tensor([0.3, 0.7])
    for name, of in {"erfc": "erfc", "lgamma": "gammaln", "digamma": "digamma", "erfinv": "erfinv", "i0": "i0"}.items():
        want = getattr(special, of)(x)
        assert sf.equal(getattr(sf, name)(x), want) and sf.equal(getattr(x, name)(), want)
        written = x.clone()
        assert getattr(written, name + "_")() is written and sf.equal(written, want)


@pytest.mark.parametrize("dtype", [sf.float32, sf.float64])
def test_parts_of_numbers(dtype):
    tiny = np.finfo(np.float32 if dtype is sf.float32 else np.float64).smallest_subnormal
    values = [1.0, -3.75, 0.0, 1e-30, 6.5e20, float(tiny), float(tiny) * 12345, math.inf]
    x = sf.tensor(values, dtype=dtype)
    mantissa, exponent = sf.frexp(x)
    want = [np.frexp(v) for v in x.numpy()]
    assert mantissa.tolist() == [float(m) for m, _ in want] and exponent.dtype is sf.int32
    assert exponent.tolist()[:-1] == [int(e) for _, e in want][:-1] and exponent[-1].item() == 0
    others = x.flip(0)
    assert sf.nextafter(x, others).tolist() == np.nextafter(x.numpy(), others.numpy()).tolist()
    assert sf.nextafter(x, -x.abs() - 1).tolist()[:2] == np.nextafter(x.numpy(), -np.abs(x.numpy()) - 1).tolist()[:2]
    assert sf.isnan(sf.nextafter(x, x * math.nan)).all()
    wide = sf.nextafter(x, others.to(sf.float64))
    assert wide.tolist() == np.nextafter(x.numpy().astype(np.float64), others.numpy().astype(np.float64)).tolist()
    assert sf.nextafter(x, sf.tensor(7)).dtype == dtype
    leaf = sf.tensor([3.0], dtype=dtype, requires_grad=True)
    sf.frexp(leaf).mantissa.sum().backward()
    assert leaf.grad.item() == 0.25
    with pytest.raises(RuntimeError, match="nextafter: has no gradient"):
        sf.nextafter(leaf, leaf)
    with pytest.raises(TypeError, match="needs float32 or float64, got .*int64"):
        sf.frexp(sf.tensor([1]))


@pytest.mark.parametrize(
    "name, reference", [("hann", "hanning"), ("hamming", "hamming"), ("blackman", "blackman"), ("bartlett", "bartlett")]
)
def test_windows(name, reference):
    window = getattr(sf, f"{name}_window")
    close(window(9, False, dtype=sf.float64), getattr(np, reference)(9), rtol=1e-12, atol=1e-15)
    close(window(8, dtype=sf.float64), getattr(np, reference)(9)[:-1], rtol=1e-12, atol=1e-15)
    assert window(0).shape == (0,) and window(1).tolist() == [1.0] and window(4, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="window_length must not be negative"):
        window(-1)


def test_kaiser_window():
    close(sf.kaiser_window(9, False, beta=8.0, dtype=sf.float64), np.kaiser(9, 8.0), rtol=1e-12)


def test_histogram():
    values, weights = np.random.default_rng(3).normal(size=(4, 50)), np.random.default_rng(4).uniform(size=(4, 50))
    x, w = tensor(values), tensor(weights)
    for how in ({"bins": 7}, {"bins": 4, "range": (-1.0, 1.5)}, {"bins": [-2.0, -0.5, 0.0, 3.0]}):
        given = {**how, "bins": tensor(how["bins"]) if isinstance(how["bins"], list) else how["bins"]}
        for density in (False, True):
            got = sf.histogram(x, **given, weight=w, density=density)
            want = np.histogram(values, **how, weights=weights, density=density)
            close(got.hist, want[0], rtol=1e-12)
            close(got.bin_edges, want[1], rtol=1e-12, atol=1e-15)
        close(x.histogram(**given).hist, np.histogram(values, **how)[0])
