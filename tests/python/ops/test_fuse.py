"""sf.fuse: the numbers and gradients of the unfused function, and refusals that name the op."""

import math

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.nn import functional as F

FLOATS = [sf.float32, sf.float64, sf.bfloat16, sf.float16]


def random(*shape, dtype=sf.float32, grad=False):
    return sf.randn(*shape).to(dtype).requires_grad_(grad)


def bits(t):
    t = t.detach()
    return t.shape, t.stride(), t.dtype, (t.float() if t.dtype == sf.bfloat16 else t).numpy().tobytes()


def check(f, *args, **kwargs):
    assert bits(sf.fuse(f)(*args, **kwargs)) == bits(f(*args, **kwargs))


def gate(x, a, b, c):
    return F.silu(x * a + b) * c


CHAINS = {
    "numbers": lambda x: (x * 1.7 + 0.3) / 3.1 - 2 * x + (1 - x),
    "powers": lambda x: x**2
    + x**3
    + (x * x + 1) ** 0.5
    + (x * x + 1) ** -0.5
    + 1 / (x * x + 1) ** -1
    + (x * x + 1) ** 1.3,
    "activations": lambda x: F.gelu(x)
    + F.gelu(x, approximate="tanh")
    + F.mish(x)
    + F.softplus(x, 2.0, 3.0)
    + F.leaky_relu(x, 0.2)
    + F.elu(x, 1.5),
    "functions": lambda x: sf.exp(x.clamp(-3, 2))
    + sf.log1p(x.abs())
    + sf.tanh(x) * sf.sin(x)
    - sf.erf(x)
    + sf.rsqrt(x * x + 1),
    "questions": lambda x: sf.where((x > 0.5) | (x < -0.5), x * 2, 0.25 * x) + (x >= 0).to(x.dtype),
    "fill": lambda x: (x + 1).masked_fill(x < 0, -7.0),
    "lerp": lambda x: sf.lerp(x, x * x, 0.3),
    "two ops of one value": lambda x: sf.maximum(x, -x) + sf.minimum(x, x * x),
    "remainders": lambda x: x % 0.7 + x // 0.7 + sf.atan2(x, x + 2),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_numbers_are_those_of_the_unfused_function_bit_for_bit(name, dtype):
    for n in (1, 7, 5000, 70001):  # less than a block, blocks with a rest, several threads
        check(CHAINS[name], random(n, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_arguments_broadcast(dtype):
    x = random(3, 40, 50, dtype=dtype)
    check(gate, x, random(40, 1, dtype=dtype), random(50, dtype=dtype), random(1, dtype=dtype))
    check(gate, random(40, 1, dtype=dtype), random(50, dtype=dtype), x, random(3, 1, 1, dtype=dtype))
    check(gate, *[sf.tensor(v, dtype=dtype) for v in (1.5, -2.0, 0.25, 3.0)])


def test_any_strides():
    check(gate, *[random(30, 41).t() for _ in range(4)])
    check(lambda x: x**2 + x**1.5, random(30, 41).abs().t())
    check(gate, random(64, 66)[:, ::2], random(64, 33), random(33, 64).t(), random(64, 1).expand(64, 33))
    picture = random(2, 16, 9, 9).contiguous(memory_format=sf.channels_last)
    check(gate, picture, random(16, 1, 1), picture, random(2, 16, 9, 9))


def test_mixed_dtypes_are_promoted():
    h, f, d, i = random(100, dtype=sf.bfloat16), random(100), random(100, dtype=sf.float64), sf.arange(100)
    check(lambda a, b, c: (a * b + 1) * c, h, f, d)
    check(lambda a, b: (a + b) * 0.5, i, h)
    check(lambda a: (a * 3 + 1) // 2 % 7, i)
    check(lambda a: a.to(sf.float16) / 3, i)
    check(lambda a, b: (a & b) | (a ^ ~b), i > 10, i % 3 == 0)
    check(lambda a, b: sf.bitwise_right_shift(sf.bitwise_left_shift(a, b), b + 1), i, i % 5)


def test_empty_tensors_and_a_returned_argument():
    check(gate, *[random(0, 4)] * 4)
    x = random(3)
    assert sf.fuse(lambda x: x)(x) is x or bits(sf.fuse(lambda x: x)(x)) == bits(x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_are_those_of_the_unfused_function(dtype):
    shapes = [(6, 20, 30), (20, 1), (30,), (1,)]
    values = [sf.randn(*s).to(dtype) for s in shapes]
    one, other = ([v.clone().requires_grad_(i != 2) for i, v in enumerate(values)] for _ in range(2))
    y, z = sf.fuse(gate)(*one), gate(*other)
    assert y.requires_grad and y.grad_fn.name() == "FuseBackward0"
    dy = sf.randn(*shapes[0]).to(dtype)
    y.backward(dy)
    z.backward(dy)
    assert one[2].grad is None
    for a, b in zip(one, other):
        assert a.grad is None or bits(a.grad) == bits(b.grad)


def test_second_derivatives():
    args = [random(3, 4, dtype=sf.float64, grad=True), random(4, dtype=sf.float64, grad=True)]
    fused = sf.fuse(lambda x, a: sf.tanh(x * a) * x)
    assert sf.autograd.gradcheck(fused, args) and sf.autograd.gradgradcheck(fused, args)


def test_only_the_arguments_are_kept_for_backward():
    x = random(1000, grad=True)
    saved = []
    with sf.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        sf.fuse(lambda x: sf.tanh(sf.sin(x * x) * 2) * 3)(x * 1)
    assert saved.count((1000,)) <= 2


def test_traced_once_for_each_set_of_shapes_and_dtypes():
    fused = sf.fuse(gate)
    for n in (4, 4, 5, 4):
        fused(*[random(n)] * 4)
    assert fused.traces() == 2
    fused(*[random(4, dtype=sf.float64)] * 4)
    assert fused.traces() == 3


def test_shapes_and_constants_take_part():
    @sf.fuse
    def scaled(x, k, power=1):
        return x / x.shape[0] * k**power

    for n in (2, 3):
        for k in (2, 3.0):
            for power in (1, 2):
                x = sf.ones(n)
                assert scaled(x, k, power=power).tolist() == pytest.approx([k**power / n] * n)
    assert math.copysign(1, sf.fuse(lambda x, z: x * z)(sf.ones(1), -0.0).item()) == -1
    assert scaled.__name__ == "scaled"


def test_autocast_counts():
    fused = sf.fuse(lambda x: F.softplus(x) * 2)
    x = random(8, dtype=sf.bfloat16)
    for on in (False, True, False):
        with sf.autocast("cpu", dtype=sf.bfloat16, enabled=on):
            assert bits(fused(x)) == bits(F.softplus(x) * 2)


def test_a_fused_function_inside_another_is_a_part_of_it():
    inner = sf.fuse(lambda x: x * x + 1)
    check(lambda x: sf.exp(-inner(x)), random(100))


def test_inference_mode_and_no_grad():
    fused = sf.fuse(lambda x: x * 2 + 1)
    for mode in (sf.no_grad, sf.inference_mode):
        with mode():
            assert not fused(random(4, grad=True)).requires_grad


captured = sf.ones(3)


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x: x.sum() + 1, "result of sum"),
        (lambda x: x.reshape(3, 1) + 1, "only pointwise ops can be fused"),
        (lambda x: sf.softmax(x * 2, 0) + 1, "result of softmax"),
        (lambda x: x.sum(), "result of sum"),
        (lambda x: x[1:] * 2, "only pointwise ops can be fused"),
        (lambda x: x.mul_(2), "mul_ writes in place"),
        (lambda x: x * captured, "no argument of the fused function"),
        (lambda x: sf.ones(3), "no argument of the fused function"),
    ],
)
def test_what_is_not_pointwise_is_refused_by_name(function, message):
    for grad in (False, True):
        with pytest.raises(ValueError, match=message):
            sf.fuse(function)(sf.ones(3, requires_grad=grad))


def test_refusals_of_calls():
    with pytest.raises(TypeError, match="takes a function"):
        sf.fuse(3)
    with pytest.raises(ValueError, match="must be given a tensor"):
        sf.fuse(lambda x: x)(2.0)
    with pytest.raises(TypeError, match="must return one tensor, got tuple"):
        sf.fuse(lambda x: (x, x))(sf.ones(2))
    with pytest.raises(TypeError, match="constants such as numbers, got list"):
        sf.fuse(lambda x, k: x * k[0])(sf.ones(2), [2])


def test_errors_of_the_function_itself_pass_through():
    with pytest.raises(ZeroDivisionError):
        sf.fuse(lambda x: x * (1 / 0))(sf.ones(2))
    assert bits(sf.ones(2) + 1) == bits(sf.fuse(lambda x: x + 1)(sf.ones(2)))  # nothing is left of the failed run


def test_values_equal_numpys():
    x = np.linspace(-4, 4, 10001, dtype=np.float64)
    y = sf.fuse(lambda x: sf.exp(-x * x) * 2 + 1)(sf.tensor(x))
    assert np.allclose(y.numpy(), np.exp(-x * x) * 2 + 1, rtol=1e-14)
