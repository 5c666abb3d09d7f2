"""What each instruction does to a warp's 32 lanes, after NVIDIA's PTX ISA; one that is not here is an error by name."""

import re
from functools import lru_cache

import numpy as np
from program import FLYING, LANES, LOCAL, READY, STRIDE, Fault

U16, U32, U64, F32, F64, BOOL = (np.dtype(t) for t in ("u2", "u4", "u8", "f4", "f8", "?"))


@lru_cache(None)
def type_of(word):
    kind, bits = word[0], word[1:]
    if word == "pred":
        return BOOL
    if kind not in "busf" or not bits.isdigit():
        raise Fault(f"unknown type {word}")
    return np.dtype(("u" if kind == "b" else "i" if kind == "s" else kind) + str(int(bits) // 8))


@lru_cache(None)
def constant(word, dtype):
    bits = np.dtype(f"u{dtype.itemsize}")
    if word[:2] in ("0f", "0F", "0d", "0D"):
        value = np.array(int(word[2:], 16), U32 if word[1] in "fF" else U64)
        return np.broadcast_to(value.astype(bits) if dtype.kind != "f" else value.view(f"f{value.itemsize}"), 32)
    return np.full(32, int(word, 0) & (1 << 8 * dtype.itemsize) - 1, bits).view(dtype)


def flush(x):
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x)


def fma(a, b, c, down=False):
    """Of float32, rounded once: the sum in double is rounded to odd, which a second rounding does not feel."""
    product, c = a.astype(F64) * b.astype(F64), c.astype(F64)
    total = product + c
    of_c = total - product
    error = (product - (total - of_c)) + (c - of_c)
    bits = total.view("i8")
    odd = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    total = (bits + np.where(odd, np.where((error > 0) == (total > 0), 1, -1), 0)).view(F64)
    nearest = total.astype(F32)
    return np.where(down & (nearest > total), np.nextafter(nearest, F32.type(-np.inf)), nearest)


def to_bf16(x):
    bits = x.astype(F32).view(U32).astype(U64)
    return np.where(np.isnan(x), 0x7FFF, bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(U16)


def from_bf16(x):
    return (x.astype(U32) << 16).view(F32)


def float8(kind):
    """The numbers of all 256 codes, after OCP's 8-bit floating point specification."""
    mantissa, bias = (3, 7) if kind == "e4m3x2" else (2, 15)
    code = np.arange(128)
    exponent, part = code >> mantissa, code & (1 << mantissa) - 1
    value = np.ldexp(part + (exponent > 0) * 2.0**mantissa, np.maximum(exponent, 1) - bias - mantissa)
    if kind == "e4m3x2":
        value[127] = np.nan
    else:
        value[124], value[125:] = np.inf, np.nan
    return np.concatenate([value, -value])


def to_float8(x, kind):
    """Nearest, ties to the even code, saturating."""
    finite = float8(kind)[: 0x7F if kind == "e4m3x2" else 0x7C]
    size = np.minimum(np.abs(x.astype(F64)), finite[-1])
    above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    down, up = size - finite[above - 1], finite[above] - size
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    return np.where(np.isnan(x), 0x7F, code | np.signbit(x) * 0x80).astype(U16)


def mma(form, a, b, c):
    """a, b, c: [lanes, registers]. Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16 / m16n8k8"."""
    group, place = LANES[:, None] // 4, LANES[:, None] % 4
    if form in ("m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.f16.f16.f32"):
        a, b = (x.view(U16) for x in (a, b))
        a, b = (from_bf16(x) if "bf16" in form else x.view("f2") for x in (a, b))
        i, depth = np.arange(8), 16
        row_a, col_a = group + 8 * (i // 2 % 2), place * 2 + i % 2 + 8 * (i // 4)
        row_b = place * 2 + i[:4] % 2 + 8 * (i[:4] // 2)
    elif form == "m16n8k8.row.col.f32.tf32.tf32.f32":
        a, b = ((x & ~U32.type(0x1FFF)).view(F32) for x in (a, b))
        i, depth = np.arange(4), 8
        row_a, col_a, row_b = group + 8 * (i % 2), place + 4 * (i // 2), place + 4 * i[:2]
    else:
        raise Fault(f"unknown form of mma: {form}")
    full_a, full_b = np.zeros((16, depth)), np.zeros((depth, 8))
    full_a[row_a, col_a], full_b[row_b, group] = a, b
    i = np.arange(4)
    return ((full_a @ full_b)[group + 8 * (i // 2), place * 2 + i % 2] + c.view(F32)).astype(F32)


BINARY = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.fmin, "max": np.fmax, "copysign": lambda sign, x: np.copysign(x, sign),
}  # fmt: skip
UNARY = {
    "not": np.invert, "neg": np.negative, "abs": np.abs, "ex2": np.exp2, "lg2": np.log2, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x, "tanh": np.tanh,
    "popc": lambda x: np.array([int(v).bit_count() for v in x], x.dtype),
}  # fmt: skip
COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
PLAIN = {"rn", "approx", "ftz", "full", "lo", "wide", "hi"}
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


class Warp:
    def __init__(self, machine, block, rank, index):
        self.m, self.block, self.rank, self.index = machine, block, rank, index
        self.id = block * machine.warps + index
        thread = index * 32 + LANES
        self.lives, self.pc, self.regs = thread < machine.threads, 0, {}
        self.row, self.waits, self.arrivals, self.waited, self.vouched = rank * machine.warps + index, None, 0, 0, 0
        self.met, self.offered = 0, 0  # cluster barriers waited for, and what the last arrival at one vouches for
        self.joined, self.stray, self.partly = 0, np.zeros(32, bool), None  # see Machine.released and acquire
        self.copies = [[[]] for _ in LANES]  # of a lane: groups of cp.async, the open one last
        self.local = LOCAL + ((rank * machine.warps + index) * 32 + LANES) * machine.local
        known = {"tid.x": thread, "ntid.x": machine.threads, "ctaid.x": block, "nctaid.x": machine.blocks,
                 "laneid": LANES, "cluster_ctarank": rank, "cluster_ctaid.x": rank, "cluster_nctarank": machine.cluster,
                 "cluster_nctaid.x": machine.cluster, "clusterid.x": block // machine.cluster,
                 "nclusterid.x": machine.blocks // machine.cluster, "tid.y": 0, "tid.z": 0}  # fmt: skip
        self.special = {"%" + k: np.broadcast_to(np.asarray(v, U32), 32) for k, v in known.items()}

    def run(self):
        with np.errstate(all="ignore"):
            while self.lives.any() and not self.waits:
                try:
                    self.step()
                except (Fault, KeyError, ValueError, TypeError) as e:
                    raise Fault(
                        f"{self.m.name}, block {self.block}, warp {self.index}: {self.text[:160]}: {e!r}"
                    ) from e

    def step(self):
        """One instruction of the threads that are furthest behind. pc: of all alike, or one each."""
        at, on = self.pc, self.lives
        if not isinstance(at, int):
            at = int(self.pc[on].min())
            on = on & (self.pc == at)
            if (on == self.lives).all():
                self.pc = at
        guard, self.op, words, args, self.text = self.m.code[at]
        if isinstance(self.pc, int):
            self.pc += 1
        else:
            self.pc[on] += 1
        if guard:
            on = on & (self.read(guard.lstrip("!"), BOOL) ^ (guard[0] == "!"))
            if not on.any():
                return
        self.at, self.on, self.whole = at, on, on.all()
        getattr(self, "do_" + words[0], self.compute)(words, *args)

    def unknown(self):
        raise Fault(f"unknown instruction {self.op}")

    def read(self, word, dtype):
        if word in self.m.kinds:
            x = self.regs.get(word)
            if x is None and not self.op.startswith("st."):  # padding of a struct is stored as it comes
                raise Fault(f"{word} was never written")
            x = np.full(32, -1).astype(self.m.kinds[word]) if x is None else x
            return (x if x.itemsize == dtype.itemsize else x.astype(f"u{dtype.itemsize}")).view(dtype)
        if word in self.special:
            return self.special[word].astype(dtype)
        for names in (self.m.params, self.m.symbols):
            if word in names:
                shared = self.rank * STRIDE if names[word] < LOCAL else 0
                return np.full(32, names[word] + shared, U64).astype(f"u{dtype.itemsize}").view(dtype)
        if word in self.m.labels:
            return self.local.astype(dtype)
        return constant(word, dtype)

    def write(self, word, value):
        if word == "_":
            return
        kind = self.m.kinds[word]
        if np.ndim(value) == 0:
            value = np.full(32, value)
        if value.dtype != kind:
            size = kind.itemsize if value.dtype.kind == "i" else value.itemsize
            value = value.astype(f"i{size}") if value.dtype.kind == "i" else np.ascontiguousarray(value)
            value = value.view(f"u{size}").astype(kind)
        self.regs[word] = value if self.whole else np.where(self.on, value, self.regs.get(word, kind.type(0)))

    def address(self, word):
        base, offset = re.match(r"\[([^+\]]+)\+?(-?\d+)?\]", word).groups()
        dtype = self.m.kinds.get(base, U64)
        return (self.read(base, dtype).astype(np.int64) + int(offset or 0))[self.on]

    def all_of(self, mask):
        """The lanes of a .sync's mask must be those that are here."""
        mask = self.read(mask, U32)[self.on] if mask else U32.type(0xFFFFFFFF)
        if np.any(mask != np.sum(self.on.astype(U64) << LANES.astype(U64)).astype(U32)):
            raise Fault(f"its mask names other threads than are here ({self.on.sum()} of 32)")

    def compute(self, words, d, *args):
        """Of one type, lane by lane."""
        name, kind = words[0], type_of(words[-1])
        if not PLAIN.issuperset(words[1:-1]) or name not in {**UNARY, **BINARY} or len(args) > 2:
            self.unknown()
        x = [self.read(a, kind) for a in args]
        if "ftz" in words:
            x = [flush(v).astype(kind) for v in x]
        if name in BINARY:
            y = BINARY[name](*x)
        elif kind == F32 and name not in ("neg", "abs"):
            y = UNARY[name](x[0].astype(F64)).astype(F32)
        else:
            y = UNARY[name](*x)
        self.write(d, flush(y).astype(kind) if "ftz" in words else y)

    def product(self, words, a, b):
        kind = type_of(words[-1])
        x, y = self.read(a, kind), self.read(b, kind)
        if kind.kind == "f":
            if not PLAIN.issuperset(words[1:-1]):
                self.unknown()
            return x * y
        wide = np.dtype(f"{kind.kind}{2 * kind.itemsize}") if kind.itemsize < 8 else kind
        if words[1] not in ("wide", "lo", "hi") or (words[1] != "lo" and wide == kind):
            self.unknown()
        whole = x.astype(wide) * y.astype(wide)
        return whole if words[1] == "wide" else (whole >> 8 * kind.itemsize * (words[1] == "hi")).astype(kind)

    def do_mul(self, words, d, a, b):
        self.write(d, self.product(words, a, b))

    def do_mad(self, words, d, a, b, c):
        product = self.product(words, a, b)
        self.write(d, product + self.read(c, product.dtype))

    def do_fma(self, words, d, *abc):
        if words[1:] not in (["rn", "f32"], ["rm", "f32"]):
            self.unknown()
        self.write(d, fma(*(self.read(x, F32) for x in abc), down=words[1] == "rm"))

    def do_div(self, words, d, a, b):
        kind = type_of(words[-1])
        x, y = self.read(a, kind), self.read(b, kind)
        if kind.kind == "f":
            return self.write(d, x / y)
        y = np.where(self.on, y, 1)
        quotient = np.abs(x) // np.abs(y)  # towards zero
        quotient = np.where((x < 0) != (y < 0), -quotient, quotient).astype(kind)
        self.write(d, quotient if words[0] == "div" else x - quotient * y)

    do_rem = do_div

    def do_shl(self, words, d, a, b):
        kind, by = type_of(words[-1]), self.read(b, U32)
        x, most = self.read(a, kind), 8 * kind.itemsize - 1
        clamped = np.minimum(by, most).astype(kind)
        y = x << clamped if words[0] == "shl" else x >> clamped
        self.write(d, np.where((by > most) & (kind.kind == "u"), kind.type(0), y))

    do_shr = do_shl

    def do_setp(self, words, d, a, b):
        compare, kind = words[1], type_of(words[-1])
        x, y = self.read(a, kind), self.read(b, kind)
        either = np.isnan(x) | np.isnan(y) if kind.kind == "f" else np.zeros(32, bool)
        unordered = kind.kind == "f" and compare[-1] == "u"
        if compare in ("num", "nan"):
            return self.write(d, either == (compare == "nan"))
        if not {"ftz"}.issuperset(words[2:-1]):
            self.unknown()
        self.write(d, np.where(either, unordered, COMPARE[compare[:2]](x, y)))

    def do_selp(self, words, d, a, b, p):
        kind = type_of(words[-1])
        self.write(d, np.where(self.read(p, BOOL), self.read(a, kind), self.read(b, kind)))

    def do_prmt(self, words, d, a, b, c):
        if words[1:] != ["b32"]:
            self.unknown()
        chosen = self.read(c, U32)
        eight = np.stack([self.read(a, U32), self.read(b, U32)], 1).view("i1")  # b's bytes are 4 to 7
        picks = [chosen >> 4 * i & 15 for i in range(4)]
        four = [np.where(p > 7, eight[LANES, p & 7] >> 7, eight[LANES, p & 7]) for p in picks]
        self.write(d, np.stack(four, 1).view(U32)[:, 0])

    def do_mov(self, words, d, a):
        kind = type_of(words[1])
        parts = (d if d[0] == "(" else a).strip("()").replace(" ", "").split(",")
        if d[0] == "(":
            x = np.ascontiguousarray(self.read(a, kind)).view(f"u{kind.itemsize // len(parts)}").reshape(32, -1)
            for i, part in enumerate(parts):
                self.write(part, x[:, i])
        elif a[0] == "(":
            part = np.dtype(f"u{kind.itemsize // len(parts)}")
            self.write(d, np.stack([self.read(p, part) for p in parts], 1).view(kind)[:, 0])
        else:
            self.write(d, self.read(a, kind))

    def do_cvt(self, words, d, a, b=None):
        to, of = words[-2:]
        how = set(words[1:-2])
        if to in ("f16x2", "bf16x2", "e4m3x2", "e5m2x2") and of == "f32" and b:
            if how != ({"rn"} if "16" in to else {"rn", "satfinite"}):
                self.unknown()
            high, low = self.read(a, F32), self.read(b, F32)  # a goes into the upper half
            one = {"f16x2": lambda x: x.astype("f2").view(U16), "bf16x2": to_bf16}.get(to)
            high, low = (one(x) if one else to_float8(x, to) for x in (high, low))
            by = 16 if "16" in to else 8
            return self.write(d, high.astype(U32) << by | low if by == 16 else high << 8 | low)
        if to == "f16x2" and of in ("e4m3x2", "e5m2x2") and how == {"rn"}:
            two, table = self.read(a, U16), float8(of).astype("f2").view(U16).astype(U32)
            return self.write(d, table[two >> 8] << 16 | table[two & 255])
        if to == "tf32" and how == {"rna"}:
            return self.write(d, self.read(a, U32) + U32.type(0x1000) & ~U32.type(0x1FFF))
        x = from_bf16(self.read(a, U16)) if of == "bf16" else self.read(a, type_of(of))
        if to == "bf16" and how == {"rn"}:
            return self.write(d, to_bf16(x))
        kind, rounds = type_of(to), how & ROUND.keys()
        if how == {"sat"}:
            return self.write(d, np.nan_to_num(np.clip(x, 0, 1)))
        if not how <= ROUND.keys() | {"rn"} or (kind.kind != "f" and x.dtype.kind == "f" and not rounds):
            self.unknown()
        for r in rounds:
            x = ROUND[r](x)
        if kind.kind != "f" and x.dtype.kind == "f":  # out of range: the nearest number there is
            if np.isnan(x[self.on]).any():
                raise Fault("a NaN becomes a whole number")
            info = np.iinfo(kind)
            x = np.clip(x.astype(np.longdouble), info.min, info.max)
        self.write(d, x.astype(kind))

    def do_cvta(self, words, d, a):
        self.write(d, self.read(a, U64))  # here all spaces lie in one

    def space(self, words):
        return next((w for w in words[1:] if w.startswith(("shared", "global", "local"))), "generic")

    def do_ld(self, words, d, at):
        kind, regs = type_of(words[-1]), d.strip("()").replace(" ", "").split(",")
        size = kind.itemsize
        raw = np.zeros((32, size * len(regs)), np.uint8)
        raw[self.on] = self.m.access(self, self.space(words), self.address(at), raw.shape[1])
        for i, reg in enumerate(regs):
            self.write(reg, np.ascontiguousarray(raw[:, i * size : (i + 1) * size]).view(kind)[:, 0])

    do_ldu = do_ld

    def do_st(self, words, at, a):
        kind, regs = type_of(words[-1]), a.strip("()").replace(" ", "").split(",")
        raw = np.stack([self.read(r, kind) for r in regs], 1).view(np.uint8)[self.on]
        self.m.access(self, self.space(words), self.address(at), raw.shape[1], raw)

    def do_bra(self, words, label):
        to = self.m.labels[label]
        if self.m.code[to][:2] in ((None, "ret"), (None, "exit")):
            return self.do_ret(words)
        if (self.on == self.lives).all():
            self.pc = to
            return
        self.pc = np.where(self.on, to, self.pc)

    def do_ret(self, words):
        self.lives = self.lives & ~self.on

    do_exit = do_ret

    def do_bar(self, words, *args):
        if words[1] == "warp":
            self.all_of(args[0])
            return self.m.join(self) if (self.on == self.lives).all() else None
        if self.op not in ("bar.sync", "barrier.sync") or (self.on != self.lives).any():
            raise Fault("only bar.sync of whole warps")
        number, count, *_ = *(int(a, 0) for a in args), 32 * self.m.warps
        if not 0 <= number < 16 or count % 32:
            raise Fault("no such barrier, or no whole warps")
        self.m.join(self)
        self.waits, self.vouched = (number, count), self.m.released(self)

    def do_barrier(self, words):
        """Of the cluster. Threads that have ended are not waited for."""
        form = r"barrier\.cluster\.(arrive|wait)(\.release|\.relaxed|\.acquire)?(\.aligned)?"
        found = re.fullmatch(form, self.op) or self.unknown()
        if (found[1] == "wait") != (found[2] == ".acquire") and found[2]:
            self.unknown()
        if (self.on != self.lives).any():
            raise Fault("only cluster barriers of whole warps are known here")
        if self.arrivals != self.met + (found[1] == "wait"):
            raise Fault("arrivals at cluster barriers and waits for them alternate")
        if found[1] == "wait":
            self.waits, self.met = "cluster", self.met + 1
        else:  # a relaxed arrival vouches for no more than the mbarriers that this warp made and fenced
            self.arrivals, self.offered = self.arrivals + 1, 0 if found[2] == ".relaxed" else self.m.released(self)

    def do_mapa(self, words, d, a, rank):
        to = self.read(rank, U32)
        if self.op != "mapa.shared::cluster.u32" or (to[self.on] >= self.m.cluster).any():
            raise Fault("no such block in the cluster")
        self.write(d, self.read(a, U32) + (to - U32.type(self.rank)) * U32.type(STRIDE))

    def do_shfl(self, words, d, a, b, c, mask):
        self.all_of(mask)
        d, p = (d.split("|") + ["_"])[:2]
        x, by, c = self.read(a, U32), self.read(b, U32) & 31, self.read(c, U32)
        segment, by = c >> 8 & 31, by.astype(int)
        last = (LANES & segment) | (c & 31 & ~segment)
        source = {"up": LANES - by, "down": LANES + by, "bfly": LANES ^ by,
                  "idx": (LANES & segment) | (by & ~segment.astype(int))}[words[2]]  # fmt: skip
        inside = source >= last if words[2] == "up" else source <= last
        self.write(d, x[np.where(inside, source, LANES)])
        self.write(p, inside)

    def do_vote(self, words, d, a, mask):
        self.all_of(mask)
        p = (self.read(a.lstrip("!"), BOOL) ^ (a[0] == "!"))[self.on]
        self.write(d, {"any": p.any, "all": p.all}[words[2]]())

    def do_ldmatrix(self, words, d, at):
        self.all_of(None)
        regs = d.strip("()").replace(" ", "").split(",")
        if words[1:4] != ["sync", "aligned", "m8n8"] or words[-1] != "b16" or words[4] != f"x{len(regs)}":
            self.unknown()
        rows = self.m.access(self, "shared", self.address(at)[: 8 * len(regs)], 16).view(U16).reshape(-1, 8, 8)
        rows = rows.transpose(0, 2, 1) if "trans" in words else rows
        for reg, matrix in zip(regs, rows, strict=True):  # a lane has two neighbours of row lane / 4
            self.write(reg, np.ascontiguousarray(matrix).view(U32).reshape(32))

    def do_mma(self, words, d, *abc):
        self.all_of(None)
        regs = [x.strip("()").replace(" ", "").split(",") for x in (d, *abc)]
        a, b, c = (np.stack([self.read(r, U32) for r in names], 1) for names in regs[1:])
        result = mma(".".join(words[3:]), a, b, c)
        for i, reg in enumerate(regs[0]):
            self.write(reg, np.ascontiguousarray(result[:, i]))

    def do_cp(self, words, *args):
        if words[1] != "async" or "bulk" in words or "mbarrier" in words:
            self.unknown()
        lanes = np.flatnonzero(self.on)
        if words[2] == "commit_group":
            for lane in lanes:
                self.copies[lane].append([])
        elif words[2] in ("wait_group", "wait_all"):  # only now do bytes arrive: no later could they
            for lane in lanes:
                keep = int(args[0]) + 1 if args else 0
                landed = self.copies[lane][: max(0, len(self.copies[lane]) - keep)]
                self.copies[lane] = self.copies[lane][len(landed) :] or [[]]
                for idx, data in (copy for group in landed for copy in group):
                    self.m.data[idx], self.m.state[idx], self.m.generic[idx] = data, READY, True
                    self.m.check(self, idx, True)
        else:
            to, of, size = self.address(args[0]), self.address(args[1]), int(args[2])
            count = self.read(args[3], U32)[self.on] if len(args) > 3 else np.full(len(to), size)
            data = np.zeros((len(to), size), np.uint8)
            for n in np.unique(count[count > 0]):
                data[count == n, :n] = self.m.access(self, "global", of[count == n], int(n))
            self.m.access(self, "shared", to, size, np.full((len(to), size), 0xFF, np.uint8), FLYING)
            for lane, at, bytes_ in zip(lanes, to, data, strict=True):
                self.copies[lane][-1].append((at + np.arange(size), bytes_))
