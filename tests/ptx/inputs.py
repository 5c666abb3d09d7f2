"""What tests of kernels put in."""

import numpy as np


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def codes(*shape, seed=0, low=0, high=127):
    """Of float8, of both signs; the last one of e4m3 is no number."""
    numbers = np.random.default_rng(seed)
    return (numbers.integers(low, high, shape) | numbers.integers(0, 2, shape) << 7).astype("u1")


def filled(m, sizes, fill, args):
    """The parameters that kernel `fill` writes."""
    at = [m.put(np.zeros(size, np.uint8), ready=False) for size in sizes]
    m.launch(fill, 1, 1, [*at, *args])
    return [m.data[a : a + size].tobytes() for a, size in zip(at, sizes, strict=True)]
