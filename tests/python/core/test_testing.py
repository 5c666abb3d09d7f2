"""sf.testing.assert_close and sf.random. The verdicts on CASES are those of torch.testing 2.15."""

import pytest

import scaffolding as sf

nan, inf = float("nan"), float("inf")
T = sf.tensor
HALF = T([1.0]).half()
# actual, expected, options, the words of the error; None: they are close
CASES = [
    (T([1.0, 2.0, 3.0]), T([1.0, 2.0, 3.0 + 1e-6]), {}, None),
    (T([1.0, nan]), T([1.0, nan]), {}, "Mismatched elements: 1 / 2 (50.0%)"),
    (T([1.0, nan]), T([1.0, nan]), {"equal_nan": True}, None),
    (T([1, 2]), T([1, 3]), {}, "Tensor-likes are not equal!"),
    (T([1, 2, 9]), T([1, 4, 2]), {"rtol": 0.1, "atol": 1.5}, "Mismatched elements: 2 / 3"),
    (T([1.0]), T([1.0]).double(), {}, "attribute 'dtype' do not match: scaffolding.float32 != scaffolding.float64"),
    (T([1.0]), T([1.0]).double(), {"check_dtype": False}, None),
    (T([1]), T([1.0]), {"check_dtype": False}, None),
    (T([inf, 1.0]), T([inf, 1.0]), {}, None),
    (T([inf, 1.0]), T([1.0, 1.0]), {}, "Greatest absolute difference: inf at index (0,)"),
    (T([]), T([]), {}, None),
    (T(1.0), T(2.0), {}, "Expected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)"),
    (T([True, False]), T([True, True]), {}, "Mismatched elements: 1 / 2"),
    (T([1.0, 2.0]), T([1.0, 2.0, 3.0]), {}, "attribute 'shape' do not match: (2,) != (3,)"),
    (T([[1.0, 2.0]]).t(), T([[1.0], [2.0]]), {}, None),
    (T([[1.0, 2.0]]).t(), T([[1.0], [2.0]]).expand(2, 1).clone(), {"check_stride": True}, "attribute 'stride()'"),
    (HALF, T([1.0009]).half(), {}, None),
    (HALF, T([1.002]).half(), {}, "(up to 0.001 allowed)"),
    (T([1.0]).bfloat16(), T([1.01]).bfloat16(), {}, None),
    (T([1.0]), T([2.0]), {"rtol": 0, "atol": 0}, "Tensor-likes are not equal!"),
    ({"a": [1, T([1.0, 2.0])]}, {"a": [1, T([1.0, 2.5])]}, {}, "The failure occurred for item ['a'][1]"),
    ([1, 2], [1], {}, "The length of the sequences mismatch: 2 != 1"),
    ({"a": 1}, {"b": 1}, {}, "Missing keys in the actual mapping: ['b']"),
    (None, None, {}, None),
    (None, 1, {}, "None mismatch"),
    (True, False, {}, "Booleans mismatch: True is not False"),
    (1.0, 1.0 + 1e-9, {}, None),
    (1, 1.0, {"check_dtype": False}, None),
    (1.0, 1, {}, "The (d)types do not match: <class 'float'> != <class 'int'>"),
    (1, 2, {}, "Expected 2 but got 1.\nAbsolute difference: 1\nRelative difference: 0.5"),
    (nan, nan, {}, "Scalars are not close!"),
    (nan, nan, {"equal_nan": True}, None),
    (inf, inf, {}, None),
    (inf, 1.0, {}, "Scalars are not close!"),
]


@pytest.mark.parametrize(("actual", "expected", "options", "words"), CASES)
def test_what_is_close(actual, expected, options, words):
    if words is None:
        return sf.testing.assert_close(actual, expected, **options)
    with pytest.raises(AssertionError) as told:
        sf.testing.assert_close(actual, expected, **options)
    assert words in str(told.value)


def test_where_the_greatest_differences_are():
    with pytest.raises(AssertionError) as told:
        sf.testing.assert_close(T([[1.0, 2.0], [3.0, 4.0]]), T([[1.0, 2.0], [8.0, 0.0]]))
    assert str(told.value) == (
        "Tensor-likes are not close!\n\nMismatched elements: 2 / 4 (50.0%)\n"
        "Greatest absolute difference: 5.0 at index (1, 0) (up to 1e-05 allowed)\n"
        "Greatest relative difference: inf at index (1, 1) (up to 1.3e-06 allowed)"
    )


def test_messages_of_ones_own():
    far = T([1.0]), T([2.0])
    with pytest.raises(AssertionError, match="^own$"):
        sf.testing.assert_close(*far, msg="own")
    with pytest.raises(AssertionError, match="^own: Tensor-likes"):
        sf.testing.assert_close(*far, msg=lambda text: f"own: {text}")


def test_what_cannot_be_compared():
    with pytest.raises(TypeError, match="a tensor is compared with a tensor, got Tensor and float"):
        sf.testing.assert_close(T([1.0]), 1.0)
    with pytest.raises(TypeError, match="got str and str"):
        sf.testing.assert_close("a", "a")
    with pytest.raises(TypeError, match="got set and set\n\nThe failure occurred for item \\[0\\]"):
        sf.testing.assert_close([{1}], [{1}])
    with pytest.raises(ValueError, match="both or not at all, got rtol=1.0 and atol=None"):
        sf.testing.assert_close(T([1.0]), T([1.0]), rtol=1.0)
    with pytest.raises(ValueError, match="must not be negative"):
        sf.testing.assert_close(T([1.0]), T([1.0]), rtol=-1.0, atol=0.0)


def test_a_comparison_leaves_no_graph():
    x = T([1.0, 2.0], requires_grad=True)
    sf.testing.assert_close(x * 2, T([2.0, 4.0]))
    (x * 2).sum().backward()
    sf.testing.assert_close(x.grad, T([2.0, 2.0]))


def test_forked_generators():
    sf.manual_seed(1)
    wanted = sf.randn(3)
    sf.manual_seed(1)
    with sf.random.fork_rng():
        sf.random.manual_seed(5)
        inside = sf.randn(3)
    sf.testing.assert_close(sf.randn(3), wanted, rtol=0, atol=0)
    assert not sf.equal(inside, wanted)
    sf.manual_seed(1)
    with pytest.raises(KeyError), sf.random.fork_rng(devices=[]):
        sf.randn(9)
        raise KeyError
    sf.testing.assert_close(sf.randn(3), wanted, rtol=0, atol=0)
    with sf.random.fork_rng(enabled=False):
        sf.manual_seed(1)
    sf.testing.assert_close(sf.randn(3), wanted, rtol=0, atol=0)
    with (
        pytest.raises(ValueError, match="device_type must be 'cuda' or 'cpu', got 'tpu'"),
        sf.random.fork_rng(device_type="tpu"),
    ):
        pass


def test_states_of_cuda_devices():
    assert len(sf.cuda.get_rng_state_all()) == sf.cuda.device_count()
    state = sf.cuda.get_rng_state()  # a generator needs no GPU, drawing from it does
    other = sf.Generator("cuda").manual_seed(11).get_state()
    assert state.dtype == sf.uint8 and not sf.equal(state, other)
    sf.cuda.set_rng_state(other, 0)
    assert sf.equal(sf.cuda.get_rng_state("cuda:0"), other)
    sf.cuda.set_rng_state(state)
    with sf.random.fork_rng(devices=[0]):
        sf.cuda.set_rng_state(other)
    assert sf.equal(sf.cuda.get_rng_state(), state)
    sf.cuda.set_rng_state_all(sf.cuda.get_rng_state_all())
    assert sf.equal(sf.cuda.get_rng_state(), state)
