"""Functions made of other ops, beside NumPy's of that name, and their gradients beside differences."""

import itertools
import math

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.autograd import gradcheck

GENERATOR = np.random.default_rng(5)
WITHIN = GENERATOR.uniform(-0.95, 0.95, (4, 5))
X = GENERATOR.normal(size=(4, 5)) * 3
Y = GENERATOR.normal(size=(2, 3, 4))
WHOLE = GENERATOR.integers(-20, 20, (4, 5))
SQUARE = GENERATOR.normal(size=(2, 3, 3))

POINTWISE = {
    "asin": (np.arcsin, WITHIN), "acos": (np.arccos, WITHIN), "atan": (np.arctan, X), "sinh": (np.sinh, X),
    "cosh": (np.cosh, X), "asinh": (np.arcsinh, X), "acosh": (np.arccosh, np.abs(X) + 1.01),
    "atanh": (np.arctanh, WITHIN), "deg2rad": (np.deg2rad, X), "rad2deg": (np.rad2deg, X), "sinc": (np.sinc, X),
    "log10": (np.log10, np.abs(X)), "logit": (lambda p: np.log(p / (1 - p)), (WITHIN + 1) / 2),
}  # fmt: skip
ALIASES = ["sin", "cos", "tan", "sinh", "cosh", "tanh"]


def tensor(array, dtype=None, grad=False):
    return sf.tensor(np.asarray(array), dtype=dtype or sf.float64).requires_grad_(grad)


@pytest.mark.parametrize("name", POINTWISE)
def test_elementwise(name):
    reference, values = POINTWISE[name]
    function = getattr(sf, name)
    np.testing.assert_allclose(function(tensor(values)).numpy(), reference(values), rtol=1e-12, atol=1e-14)
    for dtype, exact in ((sf.float32, 2e-6), (sf.bfloat16, 1 / 256), (sf.float16, 1 / 2048)):
        x = tensor(values).to(dtype)
        got = function(x)
        want = reference(x.double().numpy())
        assert got.dtype is dtype
        # an argument near a pole or a zero of the function may cost float32 a few roundings of it
        np.testing.assert_allclose(got.double().numpy(), want, rtol=exact, atol=exact)
    assert gradcheck(function, [tensor(values[:2], grad=True)])
    written = tensor(values)
    assert getattr(written, name + "_")() is written and written.equal(getattr(tensor(values), name)())
    leaf = tensor(values[:1], grad=True)
    assert gradcheck(lambda x: getattr(x * 1, name + "_")(), [leaf])
    assert function(sf.tensor([1])).dtype is sf.float32


@pytest.mark.parametrize("name", ALIASES)
def test_arc_names(name):
    short, long = "a" + name, "arc" + name
    assert getattr(sf, short) is getattr(sf, long) is getattr(sf.Tensor, long)
    assert getattr(sf.Tensor, short + "_") is getattr(sf.Tensor, long + "_")


def test_elementwise_at_the_edges():
    inf = math.inf
    assert sf.asin(sf.tensor([1.0, -1.0])).tolist() == pytest.approx([math.pi / 2, -math.pi / 2])
    assert sf.acos(sf.tensor([1.0, -1.0])).tolist() == pytest.approx([0, math.pi])
    assert sf.acos(sf.tensor([1.5])).isnan().all() and sf.atanh(sf.tensor([2.0])).isnan().all()
    assert sf.asinh(sf.tensor([inf, -inf, 1e38, -1e-30])).tolist() == pytest.approx([inf, -inf, 88.191383, -1e-30])
    assert sf.acosh(sf.tensor([1.0, 1e38])).tolist() == pytest.approx([0, 88.191383])
    assert sf.atanh(sf.tensor([1.0, -1.0])).tolist() == [inf, -inf]
    assert sf.sinh(sf.tensor([1e-20, 100.0])).tolist() == pytest.approx([1e-20, inf])
    assert sf.sinc(sf.tensor([0, 1, 2])).tolist() == pytest.approx([1, 0, 0], abs=1e-6)
    assert sf.log10(sf.tensor([1.0, 10, 1000, 1e-3, 0])).tolist() == [0, 1, 3, pytest.approx(-3, rel=1e-7), -inf]
    assert sf.logit(sf.tensor([0.0, 1, 0.5]), eps=0.25).tolist() == pytest.approx([-1.098612, 1.098612, 0])
    for function in (sf.sinc, sf.sinh, sf.asinh, sf.atan, sf.asin):
        x = tensor([0.0], grad=True)
        function(x).sum().backward()
        assert x.grad.item() == (0 if function is sf.sinc else 1), function


def test_pairs_and_signs():
    a, b = X, X[::-1].copy()
    np.testing.assert_allclose(sf.logaddexp2(tensor(a), tensor(b)).numpy(), np.logaddexp2(a, b), rtol=1e-12)
    np.testing.assert_allclose(tensor(np.abs(a)).float_power(2.5).numpy(), np.abs(a) ** 2.5, rtol=1e-12)
    assert sf.float_power(2, sf.tensor([3])).dtype is sf.float64
    np.testing.assert_allclose(tensor(a).ldexp(sf.tensor(WHOLE)).numpy(), np.ldexp(a, WHOLE), rtol=1e-6)
    zeros = sf.tensor([0.0, -0.0, 2, -3])
    assert zeros.signbit().tolist() == [False, True, False, True] and zeros.sgn().tolist() == [0, 0, 1, -1]
    ends = sf.tensor([math.inf, -math.inf, math.nan, 1])
    assert ends.isposinf().tolist() == [True, False, False, False] and ends.isneginf().tolist()[1] is True
    assert ends.isreal().all() and not sf.isneginf(sf.tensor([1])).any() and not sf.is_complex(ends)
    assert sf.is_signed(ends) and not sf.is_signed(sf.tensor([1], dtype=sf.uint8))
    assert ends.positive() is ends and sf.tensor([2]).is_nonzero() and not sf.tensor(0.0).is_nonzero()
    with pytest.raises(TypeError, match="positive: booleans have no sign"):
        sf.positive(sf.tensor([True]))
    with pytest.raises(RuntimeError, match=r"is_nonzero: needs one element, got shape \[4\]"):
        ends.is_nonzero()
    row = WHOLE[:1, ::-1].copy()
    np.testing.assert_array_equal(sf.gcd(sf.tensor(WHOLE), sf.tensor(row)).numpy(), np.gcd(WHOLE, row))
    np.testing.assert_array_equal(sf.lcm(sf.tensor(WHOLE), sf.tensor(7)).numpy(), np.lcm(WHOLE, 7))
    assert sf.gcd(sf.tensor([4, 6], dtype=sf.int32), sf.tensor(4)).dtype is sf.int32  # one without dimensions gives way
    with pytest.raises(TypeError, match="gcd: needs integers, got scaffolding.float32"):
        sf.gcd(zeros, zeros)
    assert sf.tensor([1.0, 2]).apply_(lambda v: v * 3).tolist() == [3, 6]
    assert sf.ones(2, 2).map_(sf.tensor([1.0, 2]), lambda a, b: a - b).tolist() == [[0, -1], [0, -1]]
    with pytest.raises(RuntimeError, match="apply_: has no gradient"):
        sf.ones(2, requires_grad=True).apply_(abs)
    with pytest.raises(ValueError, match=r"ldexp_: the result has shape \[2\], self \[1\]"):
        sf.ones(1).ldexp_(sf.tensor([1, 2]))


def test_products():
    m, v, w = X, X[0], X[:, 0]
    close = lambda got, want: np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)  # noqa: E731
    close(tensor(w).addmv(tensor(m), tensor(v), beta=0.5, alpha=2), 0.5 * w + 2 * (m @ v))
    close(tensor(m).addr(tensor(w), tensor(v), alpha=-1), m - np.outer(w, v))
    close(tensor(np.full((4, 5), np.nan)).addr(tensor(w), tensor(v), beta=0), np.outer(w, v))
    b1, b2 = GENERATOR.normal(size=(3, 4, 2)), GENERATOR.normal(size=(3, 2, 5))
    close(tensor(m).addbmm(tensor(b1), tensor(b2), beta=2), 2 * m + (b1 @ b2).sum(0))
    for name, parts in (("addmv", (w, m, v)), ("addr", (m, w, v)), ("addbmm", (m, b1, b2))):
        parts = [tensor(p) for p in parts]
        want = getattr(parts[0], name)(*parts[1:], beta=3, alpha=2)
        assert getattr(parts[0], name + "_")(*parts[1:], beta=3, alpha=2) is parts[0] and parts[0].equal(want)
    close(tensor(m).inner(tensor(m[:2] + 1)), np.inner(m, m[:2] + 1))
    close(sf.inner(tensor(2.0), tensor(m)), 2 * m)
    close(sf.vdot(tensor(v), tensor(v)), np.vdot(v, v))
    close(sf.ger(tensor(w), tensor(v)), np.outer(w, v))
    for dims, size in ((0, (2, 3)), (1, (4, 2)), (2, (3, 4, 2)), (([2, 0], [0, 1]), (4, 2, 3)), (([-1], [-2]), (4, 2))):
        other = GENERATOR.normal(size=size)
        close(sf.tensordot(tensor(Y), tensor(other), dims), np.tensordot(Y, other, dims))
    close(tensor(m).kron(tensor(Y)), np.kron(m, Y))
    close(sf.cross(tensor(Y), tensor(Y[:1] * 2 + 1), dim=1), np.cross(Y, Y[:1] * 2 + 1, axis=1))
    for n in (0, 1, 2, 5):
        close(tensor(SQUARE).matrix_power(n), np.linalg.matrix_power(SQUARE, n))
    close(sf.chain_matmul(tensor(m), tensor(m.T), tensor(m)), m @ m.T @ m)
    close(tensor(m).dist(tensor(m[::-1].copy()), 3), (np.abs(m - m[::-1]) ** 3).sum() ** (1 / 3))
    norms = np.linalg.norm(m, axis=1, keepdims=True)
    close(tensor(m).renorm(2, 0, 4.0), np.where(norms > 4, m * 4 / (norms + 1e-7), m))
    assert gradcheck(sf.kron, [tensor(m[:2, :2], grad=True), tensor(v[:2], grad=True)])
    assert gradcheck(lambda x: sf.tensordot(x, x, ([0], [0])), [tensor(m[:2, :3], grad=True)])
    assert gradcheck(sf.cross, [tensor(m[:2, :3], grad=True), tensor(m[2:, :3], grad=True)])


def test_covariance():
    counts, weights = np.array([1, 2, 1, 3, 1]), np.array([0.1, 0.5, 0.3, 0.2, 0.9])
    for correction, f, a in itertools.product((0, 1), (None, counts), (None, weights)):
        given = {"fweights": None if f is None else sf.tensor(f), "aweights": None if a is None else tensor(a)}
        got = sf.cov(tensor(X), correction=correction, **given)
        np.testing.assert_allclose(got.numpy(), np.cov(X, ddof=correction, fweights=f, aweights=a), rtol=1e-10)
    np.testing.assert_allclose(tensor(X[0]).cov().item(), np.cov(X[0]), rtol=1e-12)
    np.testing.assert_allclose(tensor(X).corrcoef().numpy(), np.corrcoef(X), rtol=1e-10)
    with pytest.raises(ValueError, match=r"cov: aweights must have shape \[5\], got \[4\]"):
        sf.cov(tensor(X), aweights=sf.ones(4))


def test_turns_and_splits():
    y = tensor(Y)
    for k, dims in itertools.product(range(-2, 6), ((0, 1), (1, 2), (2, 0))):
        assert np.array_equal(y.rot90(k, dims).numpy(), np.rot90(Y, k, dims))
    assert np.array_equal(y.fliplr().numpy(), np.fliplr(Y)) and np.array_equal(y.flipud().numpy(), np.flipud(Y))
    for name, sections in (("hsplit", 3), ("hsplit", [1, 2]), ("vsplit", 2), ("dsplit", 2), ("dsplit", [3])):
        pieces = getattr(y, name)(sections)
        for got, want in zip(pieces, getattr(np, name)(Y, sections), strict=True):
            assert np.array_equal(got.numpy(), want)
    assert (
        [p.shape[2] for p in y.split_with_sizes([1, 3], 2)]
        == [1, 3]
        == [p.shape[2] for p in y.unsafe_split_with_sizes([1, 3], 2)]
    )
    assert len(y.unsafe_split(2, 2)) == 2 == len(y.unsafe_chunk(2, 1))
    with pytest.raises(ValueError, match=r"hsplit: dimension 1 of \[2, 3, 4\] cannot be split into 2 equal pieces"):
        y.hsplit(2)
    with pytest.raises(ValueError, match=r"rot90: dims must be two dimensions, got \[0, -3\]"):
        y.rot90(1, (0, -3))


def test_joining():
    parts = [np.float64(2), X[0], X, Y]
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        for got, part in zip(getattr(sf, name)([tensor(p) for p in parts]), parts, strict=True):
            assert np.array_equal(got.numpy(), getattr(np, name)(part))
    vectors, matrices = [X[0], X[1]], [X, X + 1]
    for name, group in itertools.product(("column_stack", "dstack", "row_stack"), (vectors, matrices)):
        reference = np.vstack if name == "row_stack" else getattr(np, name)
        assert np.array_equal(getattr(sf, name)([tensor(p) for p in group]).numpy(), reference(group))
    blocks = sf.block_diag(tensor(X), tensor(X[0, :2]), tensor(3.0))
    assert blocks.shape == (6, 8) and np.array_equal(blocks[:4, :5].numpy(), X) and blocks[5, 7].item() == 3
    assert blocks.count_nonzero().item() == 23
    got = sf.cartesian_prod(tensor([1, 2]), tensor([3, 4, 5]))
    assert got.tolist() == [list(p) for p in itertools.product([1, 2], [3, 4, 5])]
    letters = sf.tensor([5, 6, 7, 8])
    for r, again in itertools.product((1, 2, 3), (False, True)):
        choose = itertools.combinations_with_replacement if again else itertools.combinations
        assert sf.combinations(letters, r, again).tolist() == [list(p) for p in choose([5, 6, 7, 8], r)]
    for increasing, count in itertools.product((False, True), (None, 0, 2, 6)):
        got = sf.vander(tensor(X[0]), count, increasing)
        np.testing.assert_allclose(got.numpy(), np.vander(X[0], count, increasing), rtol=1e-12)


def test_diagonals_and_slices_of_copies():
    x, y = tensor(X), tensor(Y)
    for offset, (first, second) in itertools.product((0, 1, -2), ((-2, -1), (0, 2), (3, 1))):
        matrices = y.diag_embed(offset, first, second)
        assert np.array_equal(matrices.diagonal(offset, first, second).numpy(), Y)
        assert matrices.count_nonzero().item() == Y.size
    assert np.array_equal(x.diagflat(-1).numpy(), np.diagflat(X, -1))
    for got, place, src in (
        (lambda s: x.diagonal_scatter(s, 1), lambda a: np.einsum("ii->i", a[:, 1:]), X[0, :4] * 2),
        (lambda s: x.select_scatter(s, 1, -2), lambda a: a[:, -2], X[:, 0] * 2),
        (lambda s: x.slice_scatter(s, 1, 0, 5, 2), lambda a: a[:, 0:5:2], X[:, :3] * 2),
        (lambda s: x.as_strided_scatter(s, (2, 2), (5, 1), 3), lambda a: a[:2, 3:], X[:2, :2] * 2),
    ):
        want = X.copy()
        place(want)[...] = src
        assert np.array_equal(got(tensor(src)).numpy(), want) and np.array_equal(x.numpy(), X)
    with pytest.raises(ValueError, match=r"src must have shape \[4\], got \[5\]"):
        x.select_scatter(x[0], 1, 0)
    assert gradcheck(sf.diag_embed, [tensor(X[:2, :2], grad=True)])
    assert gradcheck(
        lambda a, b: a.select_scatter(b, 1, 0), [tensor(X[:2, :3], grad=True), tensor(X[:2, 0], grad=True)]
    )
    mask, values = X > 0, np.arange(20.0)
    want = X.copy()
    want[mask] = values[: mask.sum()]
    assert np.array_equal(x.masked_scatter(sf.tensor(mask), tensor(values)).numpy(), want)
    assert np.array_equal(tensor(X).masked_scatter_(sf.tensor(mask), tensor(values)).numpy(), want)
    with pytest.raises(ValueError, match="masked_scatter: mask has .* places, source only 1 elements"):
        x.masked_scatter(sf.tensor(mask), sf.ones(1))


def test_elements_by_number():
    x, where = tensor(X), np.array([[0, -1], [7, 3]])
    assert np.array_equal(x.take(sf.tensor(where)).numpy(), np.take(X, where))
    want = X.copy()
    np.put(want, where, [1, 2, 3, 4])
    assert np.array_equal(x.put(sf.tensor(where), tensor([[1, 2], [3, 4]])).numpy(), want)
    assert np.array_equal(tensor(X).put_(sf.tensor(where), tensor([1, 2, 3, 4])).numpy(), want)
    added = x.put(sf.tensor([0, 0]), tensor([1.0, 2.0]), accumulate=True)
    assert added[0, 0].item() == pytest.approx(X[0, 0] + 3) and np.array_equal(added.numpy()[1:], X[1:])
    with pytest.raises(IndexError, match="take: index 20 is out of range for 20 elements"):
        x.take(sf.tensor([20]))
    with pytest.raises(ValueError, match="put: index has 4 elements, source 1"):
        x.put(sf.tensor(where), sf.ones(1))
    mask = sf.tensor(X > 0)
    assert np.array_equal(mask.argwhere().numpy(), np.argwhere(X > 0))
    found = mask.nonzero_static(size=19, fill_value=-7)
    assert found.shape == (19, 2) and found[-1].tolist() == [-7, -7] and mask.nonzero_static(size=2).shape == (2, 2)
    numbers, shape = [[0, 5], [23, 11]], (2, 3, 4)
    axes = zip(sf.unravel_index(sf.tensor(numbers), shape), np.unravel_index(numbers, shape), strict=True)
    assert all(np.array_equal(got.numpy(), axis) for got, axis in axes)
    for offset in (-1, 0, 2):
        assert np.array_equal(sf.tril_indices(3, 4, offset).numpy(), np.tril_indices(3, offset, 4))
        assert np.array_equal(sf.triu_indices(3, 4, offset).numpy(), np.triu_indices(3, offset, 4))
    assert sf.tril_indices(0, 3).shape == (2, 0)
    assert np.array_equal(x.msort().numpy(), np.sort(X, 0)) and x.narrow_copy(1, 1, 2).shape == (4, 2)
    np.testing.assert_allclose(tensor(Y).sum_to_size(3, 1).numpy(), Y.sum((0, 2))[:, None], rtol=1e-12)
    with pytest.raises(ValueError, match=r"sum_to_size: \[2, 4\] does not broadcast to \[2, 3, 4\]"):
        tensor(Y).sum_to_size(2, 4)
    np.testing.assert_allclose(sf.logspace(-1, 3, 5, dtype=sf.float64).numpy(), np.logspace(-1, 3, 5), rtol=1e-12)
    assert sf.ones(2).new_empty_strided((2, 3), (1, 2)).stride() == (1, 2)


def test_the_shape_in_place():
    x = sf.arange(6.0).reshape(2, 3)
    alias = x.view(6)
    assert x.t_() is x and x.shape == (3, 2) and x.unsqueeze_(0).shape == (1, 3, 2) and x.squeeze_(0).shape == (3, 2)
    assert x.transpose_(0, 1).tolist() == [[0, 1, 2], [3, 4, 5]] and x.swapaxes_(0, 1).swapdims_(0, 1).shape == (2, 3)
    x[0, 0] = 9  # the memory is the same
    assert alias[0].item() == 9 and x.as_strided_((2,), (3,)).tolist() == [9, 3]
    with pytest.raises(RuntimeError, match="t_: a tensor with gradients keeps its shape"):
        sf.ones(2, 2, requires_grad=True).t_()
