"""repr; the expected texts are PyTorch's own (2.x), with its name replaced by ours."""

import pytest

import scaffolding as sf

CASES = [
    (lambda: sf.tensor(1.0), "tensor(1.)"),
    (lambda: sf.tensor(3), "tensor(3)"),
    (lambda: sf.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (lambda: sf.tensor([1.5, -2.25]), "tensor([ 1.5000, -2.2500])"),
    (lambda: sf.tensor([[1, 20], [300, 4]]), "tensor([[  1,  20],\n        [300,   4]])"),
    (lambda: sf.tensor([True, False]), "tensor([ True, False])"),
    (lambda: sf.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
    (lambda: sf.tensor([1e10]), "tensor([1.0000e+10])"),
    (lambda: sf.tensor([12345.678, 1.0]), "tensor([1.2346e+04, 1.0000e+00])"),
    (lambda: sf.tensor([float("nan"), float("inf"), 1.0]), "tensor([nan, inf, 1.])"),
    (lambda: sf.tensor([0.0, float("-inf")]), "tensor([0., -inf])"),
    (lambda: sf.tensor([]), "tensor([])"),
    (lambda: sf.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: sf.zeros(0, dtype=sf.int64), "tensor([], dtype=scaffolding.int64)"),
    (lambda: sf.ones(2, dtype=sf.float16), "tensor([1., 1.], dtype=scaffolding.float16)"),
    (lambda: sf.ones(1, dtype=sf.int32), "tensor([1], dtype=scaffolding.int32)"),
    (lambda: sf.ones(2, requires_grad=True), "tensor([1., 1.], requires_grad=True)"),
    (lambda: sf.ones(2, requires_grad=True) * 2, "tensor([2., 2.], grad_fn=<MulBackward0>)"),
    (
        lambda: sf.ones(1, 2, requires_grad=True).log_softmax(1),
        "tensor([[-0.6931, -0.6931]], grad_fn=<LogSoftmaxBackward0>)",
    ),
    (lambda: sf.zeros(2, device="meta"), "tensor(..., device='meta', size=(2,))"),
    (lambda: sf.zeros(2, 1, 2), "tensor([[[0., 0.]],\n\n        [[0., 0.]]])"),
    (lambda: sf.arange(1001), "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
    (
        lambda: sf.arange(1200).reshape(2, 600),
        "tensor([[   0,    1,    2,  ...,  597,  598,  599],\n        [ 600,  601,  602,  ..., 1197, 1198, 1199]])",
    ),
    (
        lambda: sf.arange(30),
        (
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n        18, 19, 20, 21, "
            "22, 23, 24, 25, 26, 27, 28, 29])"
        ),
    ),
    (
        lambda: sf.zeros(1000, 7),
        "tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., "
        "0., 0., 0.],\n        ...,\n"
        "        [0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., "
        "0., 0., 0.]])",
    ),
    (
        lambda: sf.ones(2, 8, dtype=sf.float64, requires_grad=True),
        (
            "tensor([[1., 1., 1., 1., 1., 1., 1., 1.],\n        [1., 1., 1., 1., 1., 1., 1., 1.]], "
            "dtype=scaffolding.float64,\n       requires_grad=True)"
        ),
    ),
]


@pytest.mark.parametrize("make, text", CASES)
def test_repr_equals_torch(make, text):
    assert repr(make()) == text


def test_print_options():
    x = sf.tensor([1.23456789, 100.0])
    with sf.printoptions(precision=2):
        assert repr(x) == "tensor([  1.23, 100.00])"
    with sf.printoptions(sci_mode=True):
        assert repr(x) == "tensor([1.2346e+00, 1.0000e+02])"
    with sf.printoptions(threshold=5, edgeitems=1):
        assert repr(sf.arange(10)) == "tensor([0,  ..., 9])"
    with sf.printoptions(profile="full"):
        assert "..." not in repr(sf.arange(2000))
    assert sf.get_printoptions()["precision"] == 4
    with pytest.raises(ValueError):
        sf.set_printoptions(profile="loud")
