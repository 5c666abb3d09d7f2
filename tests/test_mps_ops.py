"""The ops that Apple's Accelerate has, against NumPy in float64, within 1e-5: PYTHONPATH=build/python python
tests/test_mps_ops.py, or pytest.

On the device mps where there is one, else on the CPU: the same calls, and the same limit.
"""

import sys

import numpy as np

import scaffolding as sf
import scaffolding.nn.functional as F
from scaffolding.backends import mps

DEVICE = "mps" if mps.is_available() else "cpu"
LIMIT = 1e-5
RNG = np.random.default_rng(5)


def draw(*shape, dtype=np.float32, low=-4.0, high=4.0):
    return RNG.uniform(low, high, shape).astype(dtype)


def check(op, expected, *arrays):
    """op of tensors on the device is expected(the arrays in float64); the limit is of the largest value, or of 1."""
    got = op(*(sf.tensor(a).to(DEVICE) for a in arrays))
    assert got.device.type == DEVICE
    want = np.asarray(expected(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)))
    got = got.detach().cpu().numpy()
    assert got.shape == want.shape
    assert np.abs(got - want).max() < LIMIT * max(1.0, np.abs(want).max())


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_matmul():
    for dtype in (np.float32, np.float64):
        check(sf.matmul, np.matmul, draw(64, 96, dtype=dtype), draw(96, 48, dtype=dtype))
        check(sf.matmul, np.matmul, draw(3, 17, 5, dtype=dtype), draw(3, 5, 33, dtype=dtype))


def test_activations():
    x = draw(33, 65)
    check(sf.sigmoid, sigmoid, x)
    check(F.silu, lambda x: x * sigmoid(x), x)
    check(
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        x,
    )


def test_functions():
    x, positive = draw(1000), draw(1000, low=0.01, high=50)
    for name in ("exp", "tanh"):
        check(getattr(sf, name), getattr(np, name), x)
    for name in ("log", "sqrt"):
        check(getattr(sf, name), getattr(np, name), positive)


def test_softmax():
    check(lambda x: sf.softmax(x, dim=-1), softmax, draw(32, 100))


def test_rms_norm():
    check(
        lambda x, w: F.rms_norm(x, (64,), w, 1e-6),
        lambda x, w: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w,
        draw(16, 64),
        draw(64),
    )


def test_l2_norm():
    check(lambda x: x.norm(), np.linalg.norm, draw(4321))


def test_cross_entropy():
    target = RNG.integers(0, 10, 32)
    check(F.cross_entropy, lambda x, t: -np.log(softmax(x))[np.arange(len(t)), t].mean(), draw(32, 10), target)


def test_adamw_step():
    start, grads = draw(257), [draw(257) for _ in range(3)]
    p = sf.nn.Parameter(sf.tensor(start).to(DEVICE))
    optimizer = sf.optim.AdamW([p], lr=0.02, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    w, m, v = start.astype(np.float64), 0.0, 0.0
    for t, g in enumerate(grads, 1):
        p.grad = sf.tensor(g).to(DEVICE)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g.astype(np.float64) ** 2
        w = w * (1 - 0.02 * 0.1) - 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8)
        assert np.abs(p.detach().cpu().numpy() - w).max() < LIMIT


def main():
    print(f"on {DEVICE}, limit {LIMIT:g}")
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"ok  {name[5:]}")


if __name__ == "__main__":
    sys.exit(main())
