"""Weights and inputs by a rule, so that golden files of models hold none:
both sides compute them from names and shapes.
"""

import zlib

import numpy as np


def hashed(name, shape):
    """float32 numbers in [-1, 1) that depend on nothing but the name and the place."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 24)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's mixing
        i = (i ^ (i >> np.uint64(shift))) * np.uint64(factor)
    i ^= i >> np.uint64(31)
    return ((i >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)).reshape(shape)


def hashed_weight(name, shape):
    """A model's tensor: matrices and kernels keep the variance of what passes them, scales of norms, variances and
    deviations are near 1.
    """
    u = hashed(name, shape)
    if len(shape) > 1:
        return u * np.float32((3 / np.prod(shape[1:])) ** 0.5)
    near_one = name.endswith(("weight", "running_var", "latents_std"))
    return np.asarray(u * np.float32(0.2) + np.float32(near_one))  # of no dimension, too


def folded(name, array, count):
    """`count` sums over an array, float64: of values at k, k + count, k + 2 count, ..., each with a sign by the rule.
    A value that is wrong, wherever it is, is as wrong in its sum. Rounding's errors grow in sums as the sums do.
    """
    flat = np.ascontiguousarray(array).reshape(-1).astype(np.float64)
    signed = flat * np.where(hashed("signs of " + name, flat.shape) < 0, -1, 1)
    return np.pad(signed, (0, -flat.size % count)).reshape(-1, count).sum(0)


def places(name, numel, count=16):
    """Places in a tensor of which a golden file holds the values."""
    return (
        (np.abs(hashed("places of " + name, (count,)).astype(np.float64)) * numel).astype(np.int64).clip(0, numel - 1)
    )
