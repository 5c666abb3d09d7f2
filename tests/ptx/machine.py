"""Runs PTX, as nvcc writes it, warp by warp: the rules are those of NVIDIA's PTX ISA, none comes from our own headers.

A warp runs until it waits, the threads with the lowest program counter first; then another one does. Memory is one
array of bytes, where shared windows of the blocks of a cluster lie in front. Each byte knows whether it was allocated,
written or is on its way by a copy, who wrote it last and who has read it: what no barrier orders is a race. The order
is kept as vector clocks: each warp knows up to which time it has seen what every other one did.
"""

import struct

import numpy as np
from dependent import DependentWarp
from hopper import encoded_map
from program import BARRIER, FLYING, FREE, HEAP, LOCAL, RAW, READY, STRIDE, Fault, Program

AGENTS = 256  # barriers of a cluster whose copies somebody may have to wait for


class Machine:
    def __init__(self, ptx, memory=1 << 23, backwards=False):
        self.program, self.backwards, self.maps = Program(ptx), backwards, []
        self.data, self.state = np.zeros(memory, np.uint8), np.zeros(memory, np.uint8)
        self.writer, self.reader = np.zeros(memory, np.int32), np.zeros(memory, np.int32)
        self.written, self.read = np.zeros(memory, np.int32), np.zeros(memory, np.int32)
        self.generic = np.zeros(memory, bool)  # written by instructions of threads, in this launch
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
        self.loaded = self.top  # what came with the program lies below, tensors above

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

    def tensor_map(self, at, dtype_bytes, rows, cols, row_stride_bytes, box_rows, box_cols, swizzle=128):
        """The 128 bytes that stand for this matrix in the parameters of a kernel."""
        return encoded_map(self.maps, at, dtype_bytes, (cols, rows), (row_stride_bytes,), box_rows, box_cols, swizzle)

    def heads_map(self, at, dtype_bytes, sizes, strides, box_rows):
        """The same of [batch, heads, rows, width], strides of the first three in bytes; boxes of 128 bytes of rows."""
        return encoded_map(self.maps, at, dtype_bytes, sizes[::-1], strides[::-1], box_rows, 128 // dtype_bytes, 128)

    def launch(self, part, blocks, threads, args, shared=0, cluster=1, dependent=None):
        """dependent: it may start before the grid in front of it has ended; else as launch.cuh has it, those do that
        take a PreviousGrid."""
        self.name, blob, self.params = part, b"", {}
        params, self.code, self.labels, self.kinds, self.local = self.program.kernel(part)
        self.sums = any(op.startswith("wgmma") for _, op, *_ in self.code)
        waits = bool(params) and "PreviousGrid" in params[-1][2]
        args = [*args, bytes(1)] if waits else args
        self.dependent = waits if dependent is None else dependent
        if len(params) != len(args):
            raise Fault(f"{part}: {len(params)} parameters, got {len(args)}")
        for (size, align, name), a in zip(params, args, strict=True):
            blob += bytes(-len(blob) % align)
            self.params[name] = len(blob)
            a = struct.pack("<q", a)[:size] if isinstance(a, int) else bytes(a)
            if len(a) != size:
                raise Fault(f"{part}: {name} has {size} bytes, got {len(a)}")
            blob += a
        if blocks % cluster:
            raise Fault(f"{part}: blocks that fill no cluster")
        if self.static + shared > STRIDE:
            raise Fault(f"{part}: more shared memory than a block has")
        at = self.put(np.frombuffer(blob, np.uint8))
        self.given = at, at + len(blob)
        self.params = {name: at + offset for name, offset in self.params.items()}
        for each in (self.written, self.read, self.generic):
            each[HEAP : self.top] = 0
        self.blocks, self.threads, self.cluster, self.warps = blocks, threads, cluster, -(-threads // 32)
        near = cluster * self.warps  # warps that run at the same time
        for first in range(0, blocks, cluster):
            window = cluster * STRIDE
            self.state[:HEAP], self.written[:window], self.generic[:window] = FREE, 0, False
            # what has times: all warps, the warpgroups of these blocks (as numerous as warps) and their barriers
            self.first, self.groups_at = first * self.warps, blocks * self.warps
            self.known = np.zeros((near, self.groups_at + near + AGENTS), np.int64)
            self.reads = np.zeros((near * (1 + self.sums), window), np.int32)
            self.reading = np.zeros(window, np.uint8)  # products under way that will read this byte
            self.agents = self.groups_at + near - 1
            self.barriers, self.groups, self.fences, self.init_fences = {}, {}, [], []
            self.ended, self.remote = set(), {}  # blocks; when warps last arrived at mbarriers of another block
            for rank in range(cluster):
                self.state[rank * STRIDE + 1024 : rank * STRIDE + self.static + shared] = RAW
            self.state[LOCAL : LOCAL + self.local * 32 * self.warps * cluster] = RAW
            self.run([DependentWarp(self, first + b, b, w) for b in range(cluster) for w in range(self.warps)])

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
                if rank not in self.ended and not any(w.lives.any() for w in block):  # its shared memory goes with it
                    block[0].check_end(block)
                    self.ended.add(rank)
                    self.state[rank * STRIDE : (rank + 1) * STRIDE] = FREE
                for barrier in {w.waits for w in block if isinstance(w.waits, tuple)}:  # its number and threads
                    here = [w for w in block if w.waits == barrier]
                    if 32 * len(here) == barrier[1]:
                        self.known[[each.row for each in here]] = np.max([each.vouched for each in here], 0)
                        for each in here:
                            each.waits, freed = None, True
            if all(each.arrivals > each.waited for each in warps if each.lives.any()):
                self.met = np.max([each.offered + 0 * self.known[0] for each in warps], 0)
                self.met_inits = {each.id: each.fenced_inits for each in warps}
                for each in warps:
                    each.waited += 1
            for each in warps:
                if each.waits == "cluster" and each.waited == each.arrivals:
                    each.waits, freed = None, True
                    self.join(each)
                    self.known[each.row] = np.maximum(self.known[each.row], self.met)
                    each.inits = self.met_inits
                elif callable(each.waits) and each.waits():
                    each.waits, freed = None, True
            if not w and not freed:
                stuck = [each.where() for each in warps if each.lives.any()]
                raise Fault(f"{self.name}: a barrier that some never reach: {stuck}")

    def others_touch(self, block):
        """Whether warps of other blocks write or arrive in shared memory of this one, and none of it has seen that when
        it ends. What they have read is there before they arrive anywhere, in whatever way."""
        rank, low = block[0].rank, block[0].rank * STRIDE
        known = np.max([self.known[w.row] for w in block] + [w.partly[1] for w in block if w.partly], 0)
        known[[w.id for w in block]] = self.now
        arrives = any(when > known[who] and known[agent] <= phase  # nor has it waited for that phase
                      for (at, who), (when, agent, phase) in self.remote.items() if at // STRIDE == rank)  # fmt: skip
        window = slice(low, low + STRIDE)
        return arrives or (self.written[window] > known[self.writer[window]]).any()

    def seen(self, warp):
        """Up to which time the threads that are here have seen what others did."""
        known = self.known[warp.row]
        if warp.partly is not None and not (warp.on & ~warp.partly[0]).any():
            return np.maximum(known, warp.partly[1])
        return known

    def released(self, warp):
        """What another one sees that acquires what the threads here release: if others of the warp touched memory
        since its last bar.warp.sync, that is not in it."""
        clock = self.seen(warp).copy()
        clock[warp.id] = warp.joined if (warp.stray & ~warp.on).any() else self.now
        return clock

    def acquire(self, warp, clock):
        if (warp.on == warp.lives).all():
            self.known[warp.row] = np.maximum(self.known[warp.row], clock)
        else:  # until the warp joins, these threads alone have seen it
            on, old = warp.partly or (warp.on, clock)
            warp.partly = (on & warp.on, np.maximum(old, clock)) if (on & warp.on).any() else (warp.on, clock)

    def join(self, warp):
        """A bar.warp.sync, or more: each thread has seen what the others of its warp have."""
        if warp.partly is not None:
            self.known[warp.row] = np.maximum(self.known[warp.row], warp.partly[1])
        warp.joined, warp.partly, warp.stray = self.now, None, np.zeros(32, bool)

    def ordered(self, warp, idx, writes):
        """Races of these bytes with others."""
        seen = self.seen(warp)

        def unordered(who, when):
            who = who[idx]
            return ((who != warp.id) & (when[idx] > seen[who])).any()

        race = unordered(self.writer, self.written)
        if writes and idx.flat[0] < LOCAL:
            near = len(self.known)
            limits = seen[self.first : self.first + near].copy()
            limits[warp.row] = self.now
            if self.sums:
                limits = np.concatenate([limits, seen[self.groups_at : self.groups_at + near]])
            race |= (self.reads[:, idx] > limits.reshape(-1, *[1] * idx.ndim)).any()
            if self.reading[idx].any():
                raise Fault("a race: a wgmma under way reads these bytes")
        elif writes:
            race |= unordered(self.reader, self.read)
        if race:
            raise Fault("a race: another warp touched these bytes and no barrier lies between")

    def check(self, warp, idx, writes):
        """Races of these bytes with others; then they are this warp's."""
        self.ordered(warp, idx, writes)
        self.now += 1
        if writes or idx.flat[0] < LOCAL:
            warp.stray = warp.stray | warp.on
        if writes:
            self.writer[idx], self.written[idx] = warp.id, self.now
        elif idx.flat[0] < LOCAL:
            self.reads[warp.row, idx] = self.now
        else:
            self.reader[idx], self.read[idx] = warp.id, self.now

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
        if (found == BARRIER).any():
            raise Fault("an ordinary access to an mbarrier")
        if values is None and (found == RAW).any():
            raise Fault("a read of bytes that nothing was written to")
        warp.check_early(idx)
        if not LOCAL <= idx.flat[0] < HEAP:
            self.check(warp, idx, values is not None)
        if values is None:
            return self.data[idx]
        self.data[idx], self.state[idx], self.generic[idx] = values, state, True
