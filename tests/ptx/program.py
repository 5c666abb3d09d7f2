"""The text of a PTX file as instructions, and what its interpreter shares."""

import re

import numpy as np

STRIDE, LOCAL, HEAP = 1 << 18, 1 << 21, 1 << 22  # a block's shared window; where locals and everything else begin
FREE, RAW, FLYING, READY, BARRIER = range(5)  # not allocated, never written, a copy under way, written, an mbarrier
LANES = np.arange(32)


class Fault(Exception):
    pass


def words_of(text):
    """Operands, split at commas outside of brackets."""
    return [w.strip() for w in re.findall(r"(?:\([^)]*\)|\[[^\]]*\]|[^,])+", text)]


def flat(body):
    """Without scopes: what one declares, registers and labels, gets a name of its own."""
    count = 0

    def scope(found):
        nonlocal count
        text, count = found[1], count + 1
        names = [n for regs in re.findall(r"\.reg \.\w+\s+([^;]*);", text) for n in regs.replace(" ", "").split(",")]
        for name in names + re.findall(r";label (\$?\w+);", text):
            base, many = name.split("<")[0], "<" in name
            end = r"(?=[<\d])" if many else r"(?!\w)"
            text = re.sub(r"(?<![\w%$.])" + re.escape(base) + end, f"{base}_{count}_", text)
        return text

    while "{" in body:
        body = re.sub(r"\{([^{}]*)\}", scope, body)
    return body


class Program:
    def __init__(self, ptx):
        _, *self.kernels = re.sub(r"//.*", "", ptx).split(".entry ")
        self.variables = re.findall(
            r"\.(global|const|shared) \.align (\d+) \.\w(\d+) (\w+)(?:\[(\d*)\])?(?: = \{?([^;}]*)\}?)?;", ptx
        )

    def kernel(self, part):
        """Parameters (size, alignment, name), instructions, labels, registers and bytes of locals of a kernel."""
        texts = [k for k in self.kernels if part in k[: k.index("(")]]
        if len(texts) != 1:
            raise Fault(f"{part}: {len(texts)} kernels have this in their name")
        params, body = texts[0].split(")", 1)
        found = re.findall(r"\.param (?:\.align (\d+) )?\.\w(\d+).*?(\w+)(?:\[(\d+)\])?,?\n", params + "\n")
        params = [(int(kind) // 8 * int(n or 1), int(align or int(kind) // 8), name) for align, kind, name, n in found]
        body = re.sub(r"\{([^;{}]*)\}", r"(\1)", body[body.index("{") + 1 : body.rindex("}")])  # vectors, not scopes
        body = re.sub(r"(\$?\w+):(?!:)", r";label \1;", body)
        code, labels, kinds, local = [], {}, {}, 0
        for text in filter(None, (" ".join(t.split()) for t in flat(body).split(";"))):
            if text.startswith("label "):
                labels[text[6:]] = len(code)
            elif text.startswith(".reg"):
                kind, regs = re.match(r"\.reg \.(\w+) (.*)", text).groups()
                dtype = np.dtype(bool if kind == "pred" else f"u{int(kind[1:]) // 8}")
                for base, count in re.findall(r"(%?\w+)(?:<(\d+)>)?", regs):
                    kinds.update({f"{base}{i}": dtype for i in range(int(count))} if count else {base: dtype})
            elif text.startswith(".local"):
                name, count = re.search(r"(\w+)\[(\d+)\]", text).groups()
                local, labels[name] = int(count), LOCAL
            elif text[0] != ".":
                guard, op, rest = re.match(r"(?:@(!?\S+) )?([\w.:]+) ?(.*)", text).groups()
                code.append((guard, op, op.split("."), words_of(rest), text))
        return params, code, labels, kinds, local
