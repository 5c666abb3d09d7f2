"""Runs PTX, as nvcc writes it, warp by warp: the rules are those of NVIDIA's PTX ISA, none comes from our own headers.

A warp runs until it waits, the threads with the lowest program counter first; then another one does. Memory is one
array of bytes, where shared windows of the blocks of a cluster lie in front. Each byte knows whether it was allocated,
written or is on its way by cp.async, and who touched it last: what no barrier orders is a race.
"""

import struct

import numpy as np
from instructions import Warp
from program import FLYING, FREE, HEAP, LOCAL, RAW, READY, STRIDE, Fault, Program


class Machine:
    def __init__(self, ptx, memory=1 << 22, backwards=False):
        self.program, self.backwards = Program(ptx), backwards
        self.data, self.state = np.zeros(memory, np.uint8), np.zeros(memory, np.uint8)
        self.writer, self.reader = np.zeros(memory, np.int32), np.zeros(memory, np.int32)
        self.written, self.read = np.zeros(memory, np.int64), np.zeros(memory, np.int64)
        self.top, self.symbols, self.static, self.now = HEAP, {}, 1024, 0
        for space, align, bits, name, count, values in sorted(self.program.variables, key=lambda v: not v[4]):
            item = int(bits) // 8
            if space == "shared":  # dynamic shared memory, which has no count, lies behind the others
                self.static = -(-self.static // int(align)) * int(align)
                self.symbols[name] = self.static
                self.static += item * int(count or 0)
                continue
            given = [int(v, 0) & (1 << 8 * item) - 1 for v in values.split(",")] if values else []
            self.symbols[name] = self.put(np.array(given + [0] * (int(count or 1) - len(given)), f"u{item}"))

    def put(self, array, ready=True):
        """Device memory with these values (or never written ones); its address."""
        raw, at = np.ascontiguousarray(array).reshape(-1).view(np.uint8), self.top
        self.data[at : at + raw.size] = raw
        self.state[at : at + raw.size] = READY if ready else RAW
        self.top += -(-raw.size // 256) * 256 + 256
        return at

    def get(self, at, shape, dtype):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if (self.state[at : at + size] != READY).any():
            raise Fault("a result has elements that nothing was written to")
        return self.data[at : at + size].view(dtype).reshape(shape).copy()

    def launch(self, part, blocks, threads, args, shared=0, cluster=1):
        self.name, blob, self.params = part, b"", {}
        params, self.code, self.labels, self.kinds, self.local = self.program.kernel(part)
        if len(params) != len(args):
            raise Fault(f"{part}: {len(params)} parameters, got {len(args)}")
        for (size, align, name), a in zip(params, args, strict=True):
            blob += bytes(-len(blob) % align)
            self.params[name] = len(blob)
            a = struct.pack("<q", a)[:size] if isinstance(a, int) else bytes(a)
            if len(a) != size:
                raise Fault(f"{part}: {name} has {size} bytes, got {len(a)}")
            blob += a
        at = self.put(np.frombuffer(blob, np.uint8))
        self.params = {name: at + offset for name, offset in self.params.items()}
        self.written[:], self.read[:] = 0, 0
        self.blocks, self.threads, self.cluster, self.warps = blocks, threads, cluster, -(-threads // 32)
        self.since = np.zeros(blocks * self.warps, np.int64)  # each warp's arrival at the last barrier of its block
        self.shared_since = self.since.copy()  # and of its cluster
        for first in range(0, blocks, cluster):
            self.state[:HEAP], self.written[:HEAP], self.read[:HEAP] = FREE, 0, 0
            for rank in range(cluster):
                self.state[rank * STRIDE + 1024 : rank * STRIDE + self.static + shared] = RAW
            self.state[LOCAL : LOCAL + self.local * 32 * self.warps * cluster] = RAW
            self.run([Warp(self, first + b, b, w) for b in range(cluster) for w in range(self.warps)])

    def run(self, warps):
        """The first warp that can run does, so that blocks and warps are as far apart as barriers let them be."""
        order = warps[::-1] if self.backwards else warps
        while any(w.lives.any() for w in warps):
            w = next((w for w in order if w.lives.any() and not w.waits), None)
            if w:
                w.run()
            freed = False
            for rank in range(self.cluster):
                block = warps[rank * self.warps : (rank + 1) * self.warps]
                if not any(w.lives.any() for w in block):  # its shared memory goes with it
                    self.state[rank * STRIDE : (rank + 1) * STRIDE] = FREE
                elif all(w.waits == "block" for w in block):
                    for each in block:
                        each.waits, self.since[each.id], freed = None, each.arrived, True
            if all(each.arrivals > each.waited for each in warps):
                for each in warps:
                    each.waited += 1
                    self.shared_since[each.id] = each.vouched
                    self.since[each.id] = max(self.since[each.id], each.vouched)
            for each in warps:
                if each.waits == "cluster" and each.waited == each.arrivals:
                    each.waits, freed = None, True
            if not w and not freed:
                stuck = [f"warp {each.index} of block {each.block}: {each.text}" for each in warps if each.lives.any()]
                raise Fault(f"{self.name}: a barrier that some never reach: {stuck}")

    def check(self, warp, idx, writes):
        """Races of these bytes with other warps; then they are this warp's."""
        seen = self.shared_since.copy()
        own = slice(warp.block * self.warps, (warp.block + 1) * self.warps)
        seen[own] = self.since[own]

        def unordered(who, when):
            return ((who[idx] != warp.id) & (when[idx] > seen[who[idx]])).any()

        if unordered(self.writer, self.written) or (writes and unordered(self.reader, self.read)):
            raise Fault("a race: another warp touched these bytes and no barrier lies between")
        self.now += 1
        who, when = (self.writer, self.written) if writes else (self.reader, self.read)
        who[idx], when[idx] = warp.id, self.now

    def access(self, warp, space, addresses, width, values=None, state=READY):
        """Loads [threads, width] bytes, or stores them; each address is aligned to the width."""
        idx = addresses.astype(np.int64)[:, None] + np.arange(width)
        low, high = {
            "shared": (warp.rank * STRIDE, (warp.rank + 1) * STRIDE),
            "shared::cluster": (0, self.cluster * STRIDE),
            "local": (LOCAL, HEAP),
            "global": (HEAP, len(self.data)),
        }.get(space, (0, len(self.data)))
        if (idx < low).any() or (idx >= high).any():
            raise Fault(f"an address outside of {space} memory")
        if (addresses % width).any():
            raise Fault(f"an address that is no multiple of {width}")
        found = self.state[idx]
        if (found == FREE).any():
            raise Fault("an access out of bounds")
        if (found == FLYING).any():
            raise Fault("bytes that a cp.async is still bringing")
        if values is None and (found == RAW).any():
            raise Fault("a read of bytes that nothing was written to")
        if low != LOCAL:
            self.check(warp, idx, values is not None)
        if values is None:
            return self.data[idx]
        self.data[idx], self.state[idx] = values, state
