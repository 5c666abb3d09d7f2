"""Compute capability 9.0a after NVIDIA's PTX ISA: mbarrier, copies of boxes of tensors (TMA), wgmma, setmaxnreg.

Everything asynchronous is as late as it may be: a box is in shared memory, and sums in registers, from the wait that
asks for them; a product, which is one of its whole warpgroup, reads shared memory when the first of four warps waits
for it. Until then those bytes and registers belong to nobody. The proxies are told apart: what threads have stored, and
the mbarriers that they have made, the copy engine and wgmma see behind a fence only.

In a cluster an arrival orders what another block did where both it and the wait are of the cluster's scope. Bytes that
the copy engine brought are there for whoever waits, in whichever block their copy was asked for.
"""

import re
import struct
from functools import lru_cache

import numpy as np
from instructions import BOOL, F32, U16, U32, U64, Warp, float8, from_bf16
from program import BARRIER, FLYING, FREE, HEAP, LANES, RAW, READY, STRIDE, Fault

MAGIC, MOST_BYTES, MOST_ARRIVALS, REGISTERS = b"tensor map no.: ", (1 << 20) - 1, (1 << 20) - 1, 1 << 16

STATES = {
    FREE: "an access out of bounds",
    FLYING: "bytes that a copy is still bringing",
    BARRIER: "bytes of an mbarrier",
    RAW: "a read of bytes that nothing was written to",
}


def encoded_map(maps, at, item, sizes, strides, box_rows, box_cols, swizzle):
    """cuTensorMapEncodeTiled, with its rules: sizes from the dense dimension on, strides of the others in bytes; a box
    has more than one element along the first two alone."""
    inner = item * box_cols
    if item not in (1, 2, 4, 8) or at % 16 or any(s % 16 or not 0 < s < 1 << 40 for s in strides) or min(sizes) < 1:
        raise Fault("a tensor map's address or distance of rows is no multiple of 16, or it has no elements")
    if not (0 < box_rows <= 256 and 0 < box_cols <= 256) or inner % 16:
        raise Fault("a box has 1 to 256 elements a side, and inside a multiple of 16 bytes")
    if swizzle not in (0, 32, 64, 128) or (swizzle and inner > swizzle):
        raise Fault(f"a box's rows of {inner} bytes do not fit a swizzle of {swizzle}")
    if swizzle and inner < swizzle:
        raise Fault("boxes whose rows are shorter than the swizzle are not known here")
    maps.append((at, item, sizes, strides, box_rows, box_cols, swizzle))
    return (MAGIC + struct.pack("<q", len(maps) - 1)).ljust(128, b"\xa5")


def swizzled(at, span):
    """Bits 4 to 6 of an address, or fewer, are changed by those that are three places further up."""
    return at ^ ((at >> 7 & {0: 0, 32: 1, 64: 3, 128: 7}[span]) << 4)


@lru_cache(None)
def matrix(rows, stride):
    """Where the bytes of [rows, 32 bytes] along k are, 128-byte swizzle, before the swizzle."""
    r = np.arange(rows)[:, None]
    return r // 8 * stride + r % 8 * 128 + np.arange(32)


@lru_cache(None)
def turned_matrix(columns, boxes, eights):
    """The same of [16, columns] along n, 16-bit elements in boxes of 64 columns, [column, two bytes of each k]:
    "leading dimension byte offset" is from box to box, "stride dimension byte offset" from eight rows to the next."""
    n, k = np.arange(columns)[:, None], np.arange(32) // 2
    return n // 64 * boxes + k // 8 * eights + k % 8 * 128 + n % 64 * 2 + np.arange(32) % 2


@lru_cache(None)
def fragment(n, quarter):
    """PTX ISA, "WGMMA .m64nNk16 register fragment layout for accumulator matrix D": rows and columns [lane, i]. That of
    .m64nNk32 is the same."""
    lane, i = LANES[:, None], np.arange(n // 2)
    return 16 * quarter + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2


def numbers_of(raw, kind):
    """The elements of bytes [rows, 32], or of as many 16-bit words as there are."""
    if kind in ("e4m3", "e5m2"):
        return float8(kind + "x2")[raw]
    raw = np.ascontiguousarray(raw).view(U16)
    return (from_bf16(raw) if kind == "bf16" else raw.view("f2")).astype("f8")


class Barrier:
    def __init__(self, at, count, agent, maker, made):
        self.at, self.count, self.pending, self.bytes, self.phase, self.agent = at, count, count, 0, 0, agent
        self.maker, self.made, self.copies = maker, made, []
        self.arriving, self.released = {}, {}  # by block and whether it is of the cluster's scope: what was seen there

    def advance(self):
        if not -MOST_BYTES <= self.bytes <= MOST_BYTES:
            raise Fault("an mbarrier's tx-count is out of range")
        if self.pending == 0 and self.bytes == 0:
            self.pending, self.phase = self.count, self.phase + 1
            for key, clock in self.arriving.items():
                self.released[key] = np.maximum(self.released.get(key, 0), clock)
            self.arriving.clear()

    def seen(self, rank, wide):
        """By a thread of that block that acquires, for the cluster or its own block."""
        clocks = [clock for (of, far), clock in self.released.items() if of == rank or (far and wide)]
        return np.max(clocks, 0) if clocks else 0

    def __str__(self):
        return f"phase {self.phase} of the mbarrier at {self.at} misses {self.pending} arrivals, {self.bytes} bytes"


class Group:
    """A warpgroup's products, and what else its warps must agree on."""

    def __init__(self):
        self.products, self.registers = [], []


class Product:
    def __init__(self, number, form, a, b):
        self.number, self.form, self.a, self.b, self.commits, self.result = number, form, a, b, {}, None
        self.done, self.takers = False, 0

    def memory(self):
        """Where its matrices are, as far as they are not in registers: numbers then."""
        return [x for x in (self.a, self.b) if x.dtype != "f8"]


class HopperWarp(Warp):
    def __init__(self, machine, *args):
        super().__init__(machine, *args)
        self.group = machine.groups.setdefault((self.rank, self.index // 4), Group())
        self.group_id = machine.groups_at + self.row - self.index % 4
        # products: issued and not yet waited for, with their registers; flying: these registers
        self.products, self.flying, self.issued, self.commits = [], {}, 0, 0
        self.touched, self.fenced, self.held = set(), False, []
        if not machine.sums:  # nothing to watch
            self.read, self.write = super().read, super().write
        self.missing = None
        self.fenced_inits, self.inits = 0, {}  # when this warp last fenced those it made; those of others that it knows

    def where(self):
        why = f" ({self.missing()})" if callable(self.waits) else ""
        return f"warp {self.index} of block {self.block}: {self.text[:160]}{why}"

    def read(self, word, dtype):
        if word in self.flying:
            self.taken(word)
        self.touched.add(word)
        return super().read(word, dtype)

    def write(self, word, value):
        if word in self.flying:
            self.taken(word)
        self.touched.add(word)
        super().write(word, value)

    def taken(self, word):
        raise Fault(f"{word} belongs to a wgmma that was not waited for")

    def one(self, word, dtype, what):
        x = self.read(word, dtype)[self.on]
        if (x != x[0]).any():
            raise Fault(f"threads disagree on {what}")
        return x[0]

    def check_end(self, block):
        """When all warps of a block have ended."""
        name = f"{self.m.name}, block {self.block}"
        if any(w.products for w in block):
            raise Fault(f"{name}: it ended with wgmma that were not waited for")
        if any(b.copies for b in self.m.barriers.values() if b.at // STRIDE == self.rank):
            raise Fault(f"{name}: it ended with copies that were not waited for")
        if self.m.cluster > 1 and self.m.others_touch(block):
            raise Fault(f"{name}: it ended, and nothing says that other blocks are done with its shared memory")
        if any(w.held != w.group.registers for w in block):
            raise Fault(f"{name}: a setmaxnreg that not all of its warpgroup ran")
        if sum(32 * (w.held or [24])[-1] for w in block) > REGISTERS:
            raise Fault(f"{name}: setmaxnreg of more registers than there are")

    # -- proxies

    def do_fence(self, words):
        if self.op == "fence.mbarrier_init.release.cluster":
            fences = self.m.init_fences
        elif words[1:3] == ["proxy", "async"] and words[3:] in ([], ["shared::cta"], ["shared::cluster"], ["global"]):
            fences = self.m.fences
        else:
            return self.unknown()
        clock = self.m.released(self)
        if fences is self.m.init_fences:  # of this thread's own
            clock = np.where(np.arange(len(clock)) == self.id, clock, 0)
            self.fenced_inits = self.m.now + 1
        self.m.now += 1
        fences.append((self.id, self.m.now, clock))

    def check_proxy(self, idx, fences, what):
        """Bytes that threads have stored: a fence must lie between the store and what this warp does now."""
        idx = idx[self.m.generic[idx]]
        if not idx.size:
            return
        seen = self.m.seen(self)
        clocks = [clock for who, when, clock in fences if who == self.id or seen[who] >= when
                  or (fences is self.m.init_fences and self.inits.get(who, 0) >= when)]  # fmt: skip
        if not clocks or (self.m.written[idx] > np.max(clocks, 0)[self.m.writer[idx]]).any():
            raise Fault(f"{what} with no fence between them and the async proxy")

    def check_states(self, idx, *bad):
        found = self.m.state[idx]
        for state in bad:
            if (found == state).any():
                raise Fault(STATES[state])

    # -- mbarrier

    def barrier(self, at, cluster=False):
        """That one, after what its init must be behind."""
        low, high = (0, self.m.cluster) if cluster else (self.rank, self.rank + 1)
        if at % 8 or not low * STRIDE <= at < high * STRIDE:
            raise Fault("an mbarrier that is not on 8 bytes, or outside of shared memory")
        if at // STRIDE in self.m.ended:
            raise Fault("the shared memory of a block that has ended")
        barrier = self.m.barriers.get(at)
        if not barrier:
            raise Fault("an mbarrier that was not initialized")
        seen = max(self.m.seen(self)[barrier.maker], self.inits.get(barrier.maker, 0))
        if barrier.maker != self.id and seen < barrier.made:
            raise Fault("a race: another warp made this mbarrier and no barrier lies between")
        return barrier

    def do_mbarrier(self, words, *args):
        what, kind = words[1], ".".join(words[2:])
        if what in ("init", "inval") and kind in ("shared::cta.b64", "shared.b64"):
            for at in self.address(args[0]):
                self.make(int(at), int(self.one(args[1], U32, "arrivals")) if what == "init" else None)
        elif what == "arrive" and args[0] == "_":
            form = r"(expect_tx\.)?(release\.(cta|cluster)\.)?shared(::cta|::cluster)?\.b64"
            found = re.fullmatch(form, kind) or self.unknown()
            count = np.full(32, 1) if len(args) < 3 else self.read(args[2], U32)
            for at, n in zip(self.address(args[1]), count[self.on], strict=True):
                self.arrive(int(at), int(n), bool(found[1]), found[4] == "::cluster", found[3] == "cluster")
        elif what == "expect_tx" and kind in ("relaxed.cta.shared::cta.b64",):
            for at, n in zip(self.address(args[0]), self.read(args[1], U32)[self.on], strict=True):
                self.barrier(int(at)).bytes += int(n)
                self.m.barriers[int(at)].advance()
        elif what in ("try_wait", "test_wait"):
            found = re.fullmatch(r"parity\.(acquire\.(cta|cluster)\.)?shared(::cta)?\.b64", kind) or self.unknown()
            self.wait(args[0], self.address(args[1]), self.read(args[2], U32)[self.on], found[2] == "cluster")
        else:
            self.unknown()

    def make(self, at, count):
        idx = at + np.arange(8)
        if at % 8 or not self.rank * STRIDE <= at < (self.rank + 1) * STRIDE:
            raise Fault("an mbarrier that is not on 8 bytes, or outside of this block's shared memory")
        found = self.m.state[idx]
        if count is None:
            if self.barrier(at).copies:
                raise Fault("the end of an mbarrier that counts copies which nobody waited for")
            del self.m.barriers[at]
        elif not 0 < count <= MOST_ARRIVALS:
            raise Fault("an mbarrier of so many arrivals")
        elif (found == BARRIER).any():
            raise Fault("the init of an mbarrier that is in use")
        elif ((found != RAW) & (found != READY)).any():
            raise Fault("an mbarrier out of bounds, or where a copy is on its way to")
        self.m.check(self, idx, True)
        self.m.state[idx], self.m.generic[idx] = RAW if count is None else BARRIER, True
        if count:
            self.m.agents += 1
            if self.m.agents == self.m.known.shape[1]:
                raise Fault("more mbarriers than are known here")
            self.m.barriers[at] = Barrier(at, count, self.m.agents, self.id, self.m.now)

    def arrive(self, at, n, expects, cluster, wide):
        barrier = self.barrier(at, cluster)
        if expects:
            barrier.bytes += n
            n = 1
        if not 0 < n <= barrier.pending:
            raise Fault(f"{n} arrivals where an mbarrier's phase misses {barrier.pending}")
        barrier.pending -= n
        clock, key = self.m.released(self), (self.rank, wide)
        barrier.arriving[key] = np.maximum(barrier.arriving.get(key, 0), clock)
        if at // STRIDE != self.rank:  # that block must not end before
            self.m.now += 1
            self.m.remote[at, self.id] = self.m.now, barrier.agent, barrier.phase
        barrier.advance()

    def wait(self, p, addresses, parities, wide):
        """False now, and the warp sleeps, if the phase of that parity has not ended."""
        ended, left, on = np.zeros(32, bool), [], self.on
        for at, parity in {(int(a), int(q)) for a, q in zip(addresses, parities, strict=True)}:
            barrier, here = self.barrier(at), on.copy()
            here[on] = (addresses == at) & (parities == parity)
            if parity > 1:
                raise Fault("a parity is 0 or 1")
            if barrier.phase & 1 == parity:
                left.append((barrier, barrier.phase))
                continue
            ended |= here
            self.on = here
            clock = barrier.seen(self.rank, wide) + np.zeros_like(self.m.known[0])
            clock[barrier.agent] = barrier.phase
            self.m.acquire(self, clock)
            self.on = on
            self.deliver(barrier)
        self.write(p, ended)
        if left:
            self.waits = lambda: any(barrier.phase != phase for barrier, phase in left)
            self.missing = lambda: "; ".join(str(barrier) for barrier, _ in left)

    def deliver(self, barrier):
        for phase, idx, data in barrier.copies:
            if phase < barrier.phase:
                m = self.m
                m.data[idx], m.state[idx], m.writer[idx], m.written[idx] = data, READY, barrier.agent, phase + 1
        barrier.copies = [copy for copy in barrier.copies if copy[0] >= barrier.phase]

    # -- the copy engine

    def map_at(self, at):
        if at % 64 or not HEAP <= at <= len(self.m.data) - 128:
            raise Fault("a tensor map that is not on 64 bytes, or not in global memory")
        raw = self.m.data[at : at + 128].tobytes()
        if (self.m.state[at : at + 128] != READY).any() or not raw.startswith(MAGIC):
            raise Fault("no tensor map is there")
        return self.m.maps[struct.unpack("<q", raw[16:24])[0]]

    def do_prefetch(self, words, at):
        if self.op != "prefetch.tensormap":
            self.unknown()
        for each in self.address(at):
            self.map_at(int(each))

    def do_cp(self, words, *args):
        if "bulk" not in words:
            return super().do_cp(words, *args)
        op, many = (
            r"cp\.async\.bulk\.tensor\.(\d)d\.shared::cluster\.global\.mbarrier::complete_tx::bytes",
            len(args) == 4,
        )
        found = re.fullmatch(op + r"\.multicast::cluster" * many, self.op)
        if not found or not 3 <= len(args) <= 4:
            self.unknown()
        base, place = re.fullmatch(r"\[(\S+), \((.+)\)\]", args[1]).groups()
        base = self.address(f"[{base}]")
        place = np.stack([self.read(x, U32).view("i4") for x in place.split(", ")], 1)
        if place.shape[1] != int(found[1]):
            raise Fault("a copy with another number of coordinates than dimensions")
        masks = self.read(args[3], U16) if many else np.full(32, 1 << self.rank)
        here, to, signal = self.on, self.address(args[0]), self.address(args[2])
        each = zip(to, base, place[here].tolist(), signal, masks[here], strict=True)
        for lane, (to, base, at, signal, mask) in zip(np.flatnonzero(here), each, strict=True):
            self.on = LANES == lane
            self.copy_box(int(to), int(base), at, int(signal), int(mask))
        self.on = here

    def copy_box(self, to, at, place, signal, mask):
        """Into shared memory of the blocks in the mask, at the same place in each, as are their mbarriers."""
        m = self.m
        if not 0 < mask < 1 << m.cluster:
            raise Fault("a copy to blocks that are not in the cluster")
        if to // STRIDE != self.rank or signal // STRIDE != self.rank:
            raise Fault("an address outside of this block's shared memory")
        base, item, sizes, strides, box_rows, box_cols, swizzle = self.map_at(at)
        if len(sizes) != len(place):
            raise Fault("a copy by a map of another number of dimensions")
        inner = item * box_cols
        if to % 128:
            raise Fault("a box that does not begin on 128 bytes")
        data = np.zeros((box_rows, inner), np.uint8)
        (x, y, *far), (cols, rows, *counts), (stride, *apart) = place, sizes, strides
        r, c = y + np.arange(box_rows), x + np.arange(inner) // item
        r_in, c_in = (r >= 0) & (r < rows), (c >= 0) & (c < cols)
        r_in &= all(0 <= i < n for i, n in zip(far, counts, strict=True))
        base += sum(i * d for i, d in zip(far, apart, strict=True))
        of = base + r[r_in][:, None] * stride + (x * item + np.arange(inner))[c_in]
        if of.size:
            if of.min() < HEAP or of.max() >= len(m.data):
                raise Fault("a tensor map of memory out of bounds")
            self.check_states(of, FREE, RAW)
            m.ordered(self, of, False)
            self.check_proxy(of, m.fences, "global memory that threads stored,")
            data[np.ix_(r_in, c_in)] = m.data[of]
        idx = swizzled(to + inner * np.arange(box_rows)[:, None] + np.arange(inner), swizzle)
        if idx.min() < self.rank * STRIDE or idx.max() >= (self.rank + 1) * STRIDE:
            raise Fault("an address outside of this block's shared memory")
        for rank in (rank for rank in range(m.cluster) if mask >> rank & 1):
            away = (rank - self.rank) * STRIDE
            barrier = self.land(idx + away, data, signal + away)
            if of.size:
                m.reader[of], m.read[of] = barrier.agent, barrier.phase + 1
            barrier.bytes -= idx.size  # the whole box, whatever of it lies outside of the matrix
            barrier.advance()

    def land(self, idx, data, signal):
        """In one block; its mbarrier."""
        m, barrier = self.m, self.barrier(signal, cluster=True)
        self.check_proxy(signal + np.arange(8), m.init_fences, "the init of an mbarrier")
        self.check_states(idx, FREE, FLYING, BARRIER)
        m.check(self, idx, True)
        self.check_proxy(idx, m.fences, "a copy over bytes that threads stored,")
        m.state[idx], m.generic[idx] = FLYING, False
        barrier.copies.append((barrier.phase, idx, data))
        return barrier

    # -- wgmma

    def do_wgmma(self, words, *args):
        if (self.lives.sum(), self.on.sum()) != (32, 32) or words[2:4] != ["sync", "aligned"]:
            raise Fault("not all threads of the warp are here")
        if (self.index // 4 + 1) * 4 > self.m.warps:
            raise Fault("no whole warpgroup")
        if words[1] == "fence":
            self.fenced = True
            self.touched.clear()
        elif words[1] == "commit_group":
            for product, *_, group in self.products:
                if group == self.commits:
                    product.commits[self.index] = group
            self.commits += 1
        elif words[1] == "wait_group":
            self.wait_group(int(args[0], 0))
        elif words[1] == "mma_async":
            self.multiply(words, *args)
        else:
            self.unknown()

    def operand(self, descriptor, rows, turned=False):
        """PTX ISA, "Matrix descriptor": where the bytes of [rows, 32 bytes] are, of a turned matrix its columns'."""
        start, boxes, stride, base = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32, 49))
        mode = descriptor >> 62
        if mode != 1:
            raise Fault(f"a matrix descriptor's swizzle of mode {mode} is not known here")
        if base >> 4 & 7 or start >> 7 & 7:
            raise Fault("a matrix descriptor with base offset, or of a matrix that does not begin on 1024 bytes")
        if descriptor & ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62):
            raise Fault("a matrix descriptor with bits that mean nothing")
        idx = start + (turned_matrix(rows, boxes, stride) if turned else matrix(rows, stride))
        idx = self.rank * STRIDE + swizzled(idx, 128)
        if idx.max() >= (self.rank + 1) * STRIDE:
            raise Fault("an address outside of shared memory")
        return idx

    def multiply(self, words, d, a, b, adds, *numbers):
        kinds = r"k16\.f32\.(bf16\.bf16|f16\.f16)|k32\.f32\.e(4m3|5m2)\.e(4m3|5m2)"
        form = re.fullmatch(rf"m64n(\d+)({kinds})", ".".join(words[4:])) or self.unknown()
        n, regs = int(form[1]), d.strip("()").replace(" ", "").split(",")
        if n % 8 or not 8 <= n <= 256 or len(regs) != n // 2 or len(set(regs)) != n // 2:
            raise Fault("a wgmma of another number of columns or registers")
        kept = a.strip("()").replace(" ", "").split(",") if a.startswith("(") else []
        scale_a, scale_b, *turned = (int(x, 0) for x in numbers)
        if abs(scale_a) != 1 or abs(scale_b) != 1 or len(turned) != (2 - bool(kept) if "k16" in form[0] else 0):
            raise Fault("scales of a wgmma are 1 or -1, and elements of 16 bits alone may be transposed")
        if any(turned[:-1]):
            raise Fault("a wgmma of a transposed first matrix is not known here")
        if kept and (len(set(kept)) != 4 or "k16" not in form[0] or not self.flying.keys().isdisjoint(kept)):
            raise Fault("a wgmma's first matrix in registers: four of two numbers, which no other one has")
        adds = bool(self.one(adds, BOOL, "scale-d"))
        a = tuple(kept) or int(self.one(a, U64, "a matrix descriptor"))
        b = int(self.one(b, U64, "a matrix descriptor"))
        if not self.fenced:
            raise Fault("no wgmma.fence before the first wgmma")
        shape = (form[0], tuple(regs))
        if any(self.flying.get(r, shape) != shape for r in regs) or len({r in self.flying for r in regs}) > 1:
            raise Fault("registers that belong to a wgmma of another shape which was not waited for")
        if not self.touched.isdisjoint([*regs, *kept]):
            raise Fault("no wgmma.fence since other instructions touched the registers of a wgmma")
        if adds and regs[0] not in self.flying and not self.regs.keys() >= set(regs):
            raise Fault("sums of a wgmma were never written")

        turned, form = any(turned), (form[0], adds, scale_a * scale_b, a, b, any(turned))
        number, mine = self.issued, self.group.products
        if number == len(mine):
            rows = np.zeros((64, 16)) if kept else self.operand(a, 64)
            mine.append(Product(number, form, rows, self.operand(b, n, turned)))
            for idx in mine[-1].memory():
                self.m.reading[idx] += 1
        product = mine[number]
        if product.form != form:
            raise Fault(f"warps of a warpgroup disagree on a wgmma: {form}, another has {product.form}")
        if kept:  # PTX ISA, "WGMMA .m64nNk16 register fragment layout for matrix A"
            halves = np.stack([self.regs[r].view(U32) for r in kept], 1)[:, :, None] >> np.array([0, 16], U32)
            (row, column), kind = fragment(16, self.index % 4), form[0].split(".")[2]
            product.a[row, column] = numbers_of(halves.astype(U16).reshape(32, 8), kind)
        for idx in product.memory():
            self.check_states(idx, *STATES)
            self.m.ordered(self, idx, False)
            self.check_proxy(idx, self.m.fences, "a wgmma of bytes that threads stored,")
        self.issued += 1
        self.products.append((product, regs, adds, kept, self.commits))
        self.flying.update(dict.fromkeys(regs, shape))
        self.flying.update(dict.fromkeys(kept, "a first matrix"))

    def wait_group(self, left):
        asked = [p for p in self.products if p[-1] < self.commits - left]
        for product, *_ in asked:
            if len(product.commits) < 4:  # the others of the warpgroup have not issued it
                self.pc = self.at
                self.waits = lambda p=product: len(p.commits) == 4
                self.missing = lambda p=product: f"wgmma {p.number} of its warpgroup, in {len(p.commits)} of 4 warps"
                return
            if len(set(product.commits.values())) > 1:
                raise Fault("warps of a warpgroup have the same wgmma in other groups")
        for product, regs, adds, *_ in asked:
            if not product.done:
                self.finish(product)
            n = 2 * len(regs)
            row, column = fragment(n, self.index % 4)
            sums = product.result[row, column]
            if adds:
                sums = sums + np.stack([self.regs[r].view(F32) for r in regs], 1)
            sums = np.ascontiguousarray(sums.astype(F32).T)
            for reg, x in zip(regs, sums, strict=True):
                self.regs[reg] = x.view(self.m.kinds[reg])
            self.m.known[self.row, self.group_id] = product.number + 1
            product.takers += 1
            if product.takers == 4:
                product.result = None
        self.products = self.products[len(asked) :]
        self.flying = {r: self.flying[r] for _, regs, _, kept, _ in self.products for r in (*regs, *kept)}

    def finish(self, product):
        """Reads its matrices as they are now."""
        form, _, scale, *_ = product.form
        kinds = form.split(".")[2:]
        for idx in product.memory():
            self.check_states(idx, *STATES)
            self.m.reading[idx] -= 1
            self.m.reads[len(self.m.known) + self.row - self.index % 4, idx] = product.number + 1
        a, b = (x if x.dtype == "f8" else numbers_of(self.m.data[x], kind) for x, kind in
                zip((product.a, product.b), kinds, strict=True))  # fmt: skip
        product.result, product.done, product.a, product.b = scale * (a @ b.T), True, None, None

    # -- registers

    def do_setmaxnreg(self, words, n):
        # what a kernel begins with ptxas decides: at most what its threads can share
        n, had = int(n, 0), (self.held or [REGISTERS // (32 * self.m.warps)])[-1]
        if words[2:] != ["sync", "aligned", "u32"] or words[1] not in ("inc", "dec"):
            self.unknown()
        if self.on.sum() != 32 or n % 8 or not 24 <= n <= 256 or (self.index // 4 + 1) * 4 > self.m.warps:
            raise Fault("setmaxnreg is of whole warpgroups, and of a multiple of 8 from 24 to 256")
        if (n > had) if words[1] == "dec" else (self.held and n < had):
            raise Fault(f"setmaxnreg.{words[1]} from {had} to {n}")
        self.held.append(n)
        agreed = self.group.registers
        if len(agreed) < len(self.held):
            agreed.append(n)
        if agreed[len(self.held) - 1] != n:
            raise Fault("warps of a warpgroup disagree on their registers")

    def do_elect(self, words, d, mask):
        self.all_of(mask)
        d, p = (d.split("|") + ["_"])[:2]
        first = int(np.flatnonzero(self.on)[0])
        self.write(d, np.full(32, first, U32))
        self.write(p, LANES == first)
