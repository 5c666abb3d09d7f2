#!/usr/bin/env python3
"""Writes philox.json.xz: what torch's kernels on a GPU draw for a tensor of chances, for categories and for
permutations.

No GPU made these numbers: they are computed here from Philox4x32-10 (Salmon et al., 2011), tested against the authors'
known answers, and from which thread and counter each kernel takes its words in torch 2.x (CUDAApplyUtils.cuh,
DistributionTemplates.h, MultinomialKernel.cu, Randperm.cu). Needs Python alone. The running sums of categories are
exact in these cases, so that no order of adding matters.
"""

import json
import math
import pathlib
import struct

from packed import write_json

MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


# kat_vectors of Random123
assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert philox([MASK] * 4, [MASK] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def rounded(x):
    """To float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


class Stream:
    """curand's state of a thread: words one by one from an offset in words."""

    def __init__(self, seed, thread, offset):
        assert offset % 4 == 0
        self.key, self.thread, self.at = (seed & MASK, seed >> 32), thread, offset

    def word(self):
        block = self.at // 4
        words = philox([block & MASK, block >> 32, self.thread & MASK, self.thread >> 32], self.key)
        self.at += 1
        return words[(self.at - 1) % 4]

    def unit(self):
        """curand_uniform: (0, 1] in float32, by one fused multiply-add; exact in double before it is rounded."""
        return rounded(rounded(float(self.word())) * 2.0**-32 + 2.0**-33)


def up(words):
    return (words + 3) // 4 * 4


class Generator:
    def __init__(self, seed, threads):
        self.seed, self.offset, self.threads = seed, 0, threads

    def take(self, words):
        at, self.offset = self.offset, self.offset + up(words)
        return at

    def bernoulli(self, chances):
        at = self.take(10)
        streams = [Stream(self.seed, t, at) for t in range((len(chances) + 3) // 4)]
        # in order, so that a thread's words follow on
        return [int(streams[i // 4].unit() <= p) for i, p in enumerate(chances)]

    def multinomial(self, rows, samples):
        at = self.take(4 * ((len(rows) - 1) // min(len(rows), 65535) + 1))
        width = (samples + 127) // 128 * 128
        drawn = []
        for r, row in enumerate(rows):
            total, running = sum(row), [sum(row[: i + 1]) / sum(row) for i in range(len(row))]
            assert all(rounded(x) == x for x in running) and total > 0
            for s in range(samples):
                u = Stream(self.seed, r * width + s, at).unit()
                drawn.append(next(i for i, x in enumerate(running) if x >= u))
        return drawn

    def integers(self, n, low, span):
        """random_(from, to) of a span of at least 2^28: two words a number, two numbers of a thread's four words."""
        threads = min((n + 255) // 256 * 256, self.threads)
        rounds = (n - 1) // (threads * 2) + 1
        at = self.take(4 * rounds)
        out = []
        for i in range(n):
            stream = Stream(self.seed, i % threads, at + 4 * (i // (2 * threads)) + 0)
            words = [stream.word() for _ in range(4)]
            lane = i // threads % 2
            out.append((words[2 * lane] << 32 | words[2 * lane + 1]) % span + low)
        return out

    def randperm(self, n):
        bits = min(64, math.ceil(math.log2(n - (6 * n * n + 1) / (12 * math.log(0.9)))))
        assert bits < 32
        keys = [k & ((1 << bits) - 1) for k in self.integers(n, -(2**31), 2**32 - 1)]
        order = sorted(range(n), key=lambda i: keys[i])
        at, islands, i = self.take(n), 0, 0
        while i < n:
            end = i
            while end < n and keys[order[end]] == keys[order[i]]:
                end += 1
            if end - i > 1:
                islands += 1
                stream, part = Stream(self.seed, i, at), order[i:end]
                for last in range(len(part) - 1, 0, -1):
                    r = stream.word() % (last + 1)
                    part[last], part[r] = part[r], part[last]
                order[i:end] = part
            i = end
        return order, islands


def main():
    chances = [i / 32 for i in range(33)] * 3
    rows = [[1, 2, 0, 5, 8], [0, 4, 4, 8, 0], [16, 0, 0, 0, 0]]
    cases, threads, all_islands = [], 512, 0
    for seed in (0, 7, 1 << 40 | 5):
        g = Generator(seed, threads)
        case = {"seed": seed, "threads": threads, "chances": chances, "rows": rows}
        case["bernoulli"] = g.bernoulli(chances)
        case["multinomial"] = g.multinomial(rows, 150)
        case["randperm"] = []
        for n in (1, 5, 40, 1500):
            order, islands = g.randperm(n)
            all_islands += islands
            case["randperm"].append(order)
        case["offset"] = g.offset
        cases.append(case)
    # Seeds whose permutation of 8 has equal keys.
    case = {"seed": None, "threads": threads, "islands": []}
    for seed in range(100):
        order, islands = Generator(seed, threads).randperm(8)
        if islands:
            case["islands"].append([seed, order])
            all_islands += islands
    assert len(case["islands"]) > 3, all_islands
    out = pathlib.Path(__file__).parent / "philox.json.xz"
    write_json(out, json.dumps({"cases": cases, "islands": case["islands"]}, separators=(",", ":")) + "\n")


main()
