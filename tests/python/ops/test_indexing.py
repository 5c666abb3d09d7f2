"""x[...] and x[...] = v, compared with NumPy on many random expressions."""

import random

import numpy as np
import pytest

import scaffolding as sf

SHAPES = [(5,), (4, 3), (3, 4, 5), (2, 3, 4, 2), (1, 5), (3, 0, 2)]


def basic_item(n):
    kind = random.choice(["int", "slice", "full", "none", "step"])
    if kind == "int" and n > 0:
        return random.randrange(-n, n)
    if kind == "slice":
        return slice(
            random.choice([None, random.randrange(-n - 1, n + 2)]),
            random.choice([None, random.randrange(-n - 1, n + 2)]),
        )
    if kind == "step":
        return slice(random.choice([None, 0, 1]), None, random.randrange(1, 4))
    return slice(None) if kind == "full" or n == 0 else None


def random_basic(shape):
    items, dims = [], list(shape)
    for n in dims[: random.randrange(len(dims) + 1)]:
        item = basic_item(n)
        items.append(item)
        if item is None:
            items.append(slice(None))
    if random.random() < 0.3 and len([i for i in items if i is not None]) < len(shape):
        items.append(Ellipsis)
    return tuple(items) if len(items) != 1 or random.random() < 0.5 else items[0]


def random_advanced(shape):
    """Adjacent advanced indices (and slices): NumPy and torch agree there.
    Ints with advanced indices differ and are tested below.
    """
    dims, items = list(shape), []
    at, length = 0, random.randrange(1, 4)
    while at < len(dims):
        n = dims[at]
        kind = random.choice(["list", "array", "mask", "slice", "slice"])
        if kind == "list" and n:
            items.append([random.randrange(-n, n) for _ in range(length)])
        elif kind == "array" and n:
            items.append(np.random.randint(-n, n, (2, length)))
        elif kind == "mask":
            many = random.random() < 0.3 and at + 1 < len(dims)
            items.append(np.random.rand(*(dims[at : at + 2] if many else dims[at : at + 1])) < 0.5)
            at += many
        else:
            items.append(basic_item(n) if random.random() < 0.5 else slice(None))
            if not isinstance(items[-1], slice):
                items[-1] = slice(None)
        at += 1
    return tuple(items)


def as_ours(index):
    if isinstance(index, tuple):
        return tuple(as_ours(i) for i in index)
    if isinstance(index, np.ndarray) and random.random() < 0.7:
        return sf.from_numpy(index)
    return index


def both(shape):
    a = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    return a, sf.tensor(a)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [random_basic, random_advanced])
def test_reading_equals_numpy(shape, make):
    checked = 0
    for _ in range(150):
        a, x = both(shape)
        index = make(shape)
        try:
            want = a[index]
        except IndexError:
            with pytest.raises((IndexError, ValueError)):
                x[as_ours(index)]
            continue
        got = x[as_ours(index)]
        assert got.shape == want.shape, (index, got.shape, want.shape)
        assert np.array_equal(got.numpy(), want), index
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [random_basic, random_advanced])
def test_writing_equals_numpy(shape, make):
    for _ in range(100):
        a, x = both(shape)
        index = make(shape)
        try:
            part = a[index]
        except IndexError:
            continue
        value = random.choice([7.5, np.random.rand(*part.shape), np.random.rand(*part.shape[-1:])])
        try:
            a[index] = value
        except ValueError:
            continue
        x[as_ours(index)] = sf.tensor(value) if isinstance(value, np.ndarray) and random.random() < 0.5 else value
        assert np.array_equal(x.numpy(), a), index


def test_basic_indexing_gives_views():
    x = sf.zeros(3, 4)
    x[1][2] = 5
    x[:, 0].fill_(1)
    assert x.tolist() == [[1, 0, 0, 0], [1, 0, 5, 0], [1, 0, 0, 0]]
    assert x[...].data_ptr() == x.data_ptr() and x[...] is not x
    y = x[[0, 1]]
    y.zero_()
    assert x.sum().item() == 8


def test_ints_go_before_advanced_indices_as_in_torch():
    x = sf.arange(24).reshape(2, 3, 4)
    assert x[0, :, [1, 2]].shape == (3, 2)
    assert x[[0, 1], :, [1, 2]].shape == (2, 3)
    assert x[:, [0, 1], [1, 2]].shape == (2, 2)
    assert x[[0], :, sf.tensor(1)].shape == (1, 3)


def test_masks():
    x = sf.arange(6).reshape(2, 3)
    assert x[x > 2].tolist() == [3, 4, 5]
    x[x > 2] = 0
    assert x.tolist() == [[0, 1, 2], [0, 0, 0]]
    x[x == 0] = sf.tensor([7, 8, 9, 10])
    assert x.tolist() == [[7, 1, 2], [8, 9, 10]]
    assert sf.arange(24).reshape(2, 3, 4)[sf.ones(2, 3).bool(), 1:].shape == (6, 3)
    assert x[sf.tensor([False, True])].tolist() == [[8, 9, 10]]
    assert x[[True, False]].tolist() == [[7, 1, 2]]


def test_bool_scalars():
    x = sf.arange(3)
    assert x[True].shape == (1, 3) and x[False].shape == (0, 3)
    x[True] = 4
    assert x.tolist() == [4, 4, 4]
    x[False] = 9
    assert x.tolist() == [4, 4, 4]


def test_numpy_scalars_and_0d_tensors_are_ints():
    x = sf.arange(5)
    assert x[np.int64(2)].item() == 2 and x[sf.tensor(3)].item() == 3 and x[np.array(1)].item() == 1


def test_empty_list():
    assert sf.arange(3)[[]].shape == (0,) and sf.arange(6).reshape(2, 3)[:, []].shape == (2, 0)


@pytest.mark.parametrize(
    "index, error, words",
    [
        (5, IndexError, "5 is out of range for dimension 0"),
        (-4, IndexError, "out of range"),
        ((0, 0, 0), IndexError, "too many indices"),
        (slice(None, None, -1), ValueError, "step"),
        (0.5, IndexError, "must be an integer"),
        ("a", IndexError, "must be an integer"),
        ([0, 9], IndexError, "9"),
        ((Ellipsis, Ellipsis), IndexError, "Ellipsis"),
        ([0.5], IndexError, "integers or bools"),
        ([True], IndexError, "mask"),
    ],
)
def test_wrong_indices(index, error, words):
    with pytest.raises(error, match=words):
        sf.zeros(3, 4)[index]


def test_wrong_values():
    x = sf.zeros(3, 4)
    with pytest.raises(ValueError):
        x[0] = sf.ones(3)
    with pytest.raises(ValueError):
        x[[0, 1]] = sf.ones(3)
    with pytest.raises(TypeError):
        x[0] = "a"
    with pytest.raises(TypeError):
        del x[0]


def test_assigned_values_are_converted():
    x = sf.zeros(3, dtype=sf.int32)
    x[0] = 2.9
    x[1:] = sf.tensor([1.5, 2.5])
    assert x.tolist() == [2, 1, 2]
    y = sf.zeros(2, 3)
    y[0] = sf.ones(1, 3)
    y[1] = [4, 5, 6]
    assert y.tolist() == [[1, 1, 1], [4, 5, 6]]
    y[:, 1] = np.array([7.0, 8.0])
    assert y[:, 1].tolist() == [7, 8]


def test_gradients_of_reading():
    x = sf.arange(12.0).reshape(3, 4).requires_grad_()
    (x[1:, ::2] * 2).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0, 0], [2, 0, 2, 0], [2, 0, 2, 0]]
    x.grad = None
    (x[[0, 0, 2], [1, 1, 3]] * sf.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[0, 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 3]]
    x.grad = None
    x[x > 5].sum().backward()
    assert x.grad.sum().item() == 6


def test_gradients_of_writing():
    x = sf.ones(4, requires_grad=True)
    v = sf.tensor([2.0, 3.0], requires_grad=True)
    y = x * 1
    y[1:3] = v * 2
    (y * y).sum().backward()
    assert x.grad.tolist() == [2, 0, 0, 2] and v.grad.tolist() == [16, 24]
    x.grad = v.grad = None
    y = x * 1
    y[[0, 3]] = v
    y[sf.tensor([False, True, False, False])] = 5.0
    (y * sf.arange(4.0)).sum().backward()
    assert x.grad.tolist() == [0, 0, 2, 0] and v.grad.tolist() == [0, 3]


def test_leaves_are_protected():
    x = sf.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 1
    with sf.no_grad():
        x[0] = 7
    assert x[0].item() == 7
