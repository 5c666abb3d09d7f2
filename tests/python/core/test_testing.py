"""sf.testing.assert_close says what torch.testing's says (tests/golden/make_golden_testing.py); sf.random."""

import folders
import pytest
from packed import read_json
from testing_cases import verdicts

import scaffolding as sf

T = sf.tensor
GOLDEN = read_json(folders.GOLDEN / "testing.json.xz")


@pytest.mark.parametrize(("found", "wanted"), list(zip(verdicts(sf), GOLDEN, strict=True)))
def test_what_is_close(found, wanted):
    assert [found[0], found[1].replace("scaffolding.", "torch.")] == wanted


def test_what_cannot_be_compared():
    with pytest.raises(TypeError, match="tensors with tensors.*, got Tensor and float; sf.tensor makes"):
        sf.testing.assert_close(T([1.0]), 1.0)
    with pytest.raises(TypeError, match="got str and str"):
        sf.testing.assert_close("a", "a")
    with pytest.raises(TypeError, match="got set and set; .*\n\nThe failure occurred for item \\[0\\]"):
        sf.testing.assert_close([{1}], [{1}])
    with pytest.raises(ValueError, match="both or not at all, got rtol=1.0 and atol=None"):
        sf.testing.assert_close(T([1.0]), T([1.0]), rtol=1.0)
    with pytest.raises(ValueError, match="must not be negative"):
        sf.testing.assert_close(T([1.0]), T([1.0]), rtol=-1.0, atol=0.0)
    with pytest.raises(TypeError, match="Parameter and Tensor are different types"):
        sf.testing.assert_close(sf.nn.Parameter(T([1.0])), T([1.0]), allow_subclasses=False)


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
    with pytest.raises(ValueError, match="needs a CUDA device, got cpu"):
        sf.cuda.get_rng_state("cpu")
    other = sf.Generator("cuda").manual_seed(11).get_state()
    if not sf.cuda.is_available():
        with pytest.raises(RuntimeError, match="cuda:0: not available"):
            sf.cuda.get_rng_state()
        with pytest.raises(RuntimeError, match="cuda:0: not available"), sf.random.fork_rng(devices=[0]):
            pass
        return
    state = sf.cuda.get_rng_state()
    sf.cuda.set_rng_state(other, 0)
    assert not sf.equal(state, other) and sf.equal(sf.cuda.get_rng_state("cuda:0"), other)
    sf.cuda.set_rng_state(state)
    wanted = sf.randn(3, device="cuda")
    sf.cuda.set_rng_state(state)
    with sf.random.fork_rng():
        sf.cuda.manual_seed(7)
    sf.testing.assert_close(sf.randn(3, device="cuda"), wanted, rtol=0, atol=0)
    sf.cuda.set_rng_state_all([other] * sf.cuda.device_count())
    assert all(sf.equal(state, other) for state in sf.cuda.get_rng_state_all())
    sf.cuda.set_rng_state(state)
