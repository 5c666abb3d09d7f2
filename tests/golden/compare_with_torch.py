#!/usr/bin/env python3
"""Random calls of functions and methods beside PyTorch's: values, dtypes, shapes, gradients, what is written in place,
and refusals. Needs torch and a build of the same Python; no test.

    PYTHONPATH=build/python TORCH_PYTHON tests/golden/compare_with_torch.py [--calls 50] [--seed 1] [--only TEXT]

Operands are dense, transposed, strided, expanded or shifted views, some without elements, with infinities and NaN. Each
kind of difference is printed once, with its call. A call that PyTorch refuses is no difference, nor what KNOWN names.
"""

import argparse
import math
import random
import re
import warnings

import numpy as np
import torch
import torch_calls

import scaffolding as sf

TOLERANCE = {"float32": 2e-5, "float64": 1e-9, "float16": 4e-3, "bfloat16": 3e-2}
KNOWN = [  # name of the call, kind, text: why
    (r"nextafter|gcd", "refused", "gradient|integers|needs float32"),  # without gradients
    (
        r"topk|kthvalue|sort|mode|n?a?n?median|nanquantile",
        ".*",
        ".*",
    ),  # any of equal elements; torch's of expanded ones
    (
        r"acos|acosh|asinh|logit|digamma|copysign|tan|sinc|elu|celu|selu|hard.*|soft.*",
        "gradient",
        ".*",
    ),  # undefined there
    (r"relu6|ldexp|max|min|mod|remainder|clamp|reciprocal", "gradient", ".*"),  # at NaN and where equal numbers meet
    (r"gelu|silu|cumprod", ".*", "nan"),
    (r"celu|hardsigmoid|ldexp", "value", ".*"),  # torch rounds constants to float32, powers of two to 16 bits
    (r"copysign", "value", ".*"),  # of the signs of NaN
    (r"nan_to_num", "refused", "expanded"),
    (r"var.*|std.*|amax|amin|max|min|remainder|mod|prod|norm", ".*", "nan|inf|None"),  # of infinities and NaN
    (r"masked_fill|pad", "refused", "cannot hold"),  # a number that the dtype has not
    (
        r"addmm|baddbmm|index_reduce|scatter_reduce|masked_scatter|setitem",
        "gradient",
        "None|requires_grad",
    ),  # zero there
    (r"arange|linspace", "value", ".*"),  # torch rounds each step to an integer
    (r"interpolate", "value", ".*antialias.*"),  # torch mistakes the layout of one column
    (r"pow|lshift|rshift", "refused", "negative integer powers|shift must|ZeroDivision"),
    (r"softmax|log_softmax|median|nanmedian", "refused", "floating-point|no elements"),  # of nothing
    (r"sign|sgn|square|clamp.*", "refused", "bool"),
]


def operands(library, value, made):
    """value with each Operand made into a tensor: the same one wherever it stands. made: [(operand, leaf, view)]."""
    if isinstance(value, torch_calls.Operand):
        for operand, _, view in made:
            if operand is value:
                return view
        leaf = library.from_numpy(value.array.copy()).to(getattr(library, value.dtype))
        view = leaf.requires_grad_(value.grad)
        for kind, how in value.views:
            if kind == "transpose":
                view = view.transpose(*how)
            elif kind == "step":
                view = view[tuple(slice(None, None, k) for k in how)]
            elif kind == "expand":
                view = view.expand(*how)
            else:
                view = view[how:]
        made.append((value, leaf, view))
        return view
    if isinstance(value, torch_calls.DType):
        return getattr(library, value.name)
    if isinstance(value, (list, tuple)):
        return type(value)(operands(library, v, made) for v in value)
    return {k: operands(library, v, made) for k, v in value.items()} if isinstance(value, dict) else value


def flat(value):
    return [u for v in value for u in flat(v)] if isinstance(value, (list, tuple)) else [value]


def run(library, call, seed):
    """(results, gradients, leaves, how many results record) or the exception."""
    made = []
    try:
        args = operands(library, call.args, made)
        kwargs = operands(library, call.kwargs, made)
        if callable(call.function):
            results = flat(call.function(library, *args, **kwargs))
        elif call.function.startswith("."):
            results = flat(getattr(args[0], call.function[1:])(*args[1:], **kwargs))
        else:
            function = library
            for part in call.function.split("."):
                function = getattr(function, part)
            results = flat(function(*args, **kwargs))
        total, recorded = 0, [r for r in results if getattr(r, "requires_grad", False)]
        for i, r in enumerate(recorded):
            weight = np.random.default_rng(seed + i).normal(size=tuple(r.shape)).astype(np.float32)
            total = total + (r * library.from_numpy(np.asarray(weight)).to(r.dtype)).sum().to(library.float64)
        if recorded:
            total.backward()
        leaves = [leaf for _, leaf, _ in made]
        return results, [x.grad if recorded and x.requires_grad else None for x in leaves], leaves, len(recorded)
    except Exception as error:
        return error


def array(x):
    wide = x.detach().float() if str(x.dtype).endswith("float16") else x.detach()
    return wide.numpy(force=True)


def difference(theirs, ours, loose=1):
    """What is different, in words, or None."""
    if not isinstance(theirs, torch.Tensor):
        a, b = (v if isinstance(v, (bool, int, float)) else str(v).split(".")[-1] for v in (theirs, ours))
        same = math.isclose(a, b, rel_tol=1e-4) or (a != a and b != b) if isinstance(a, float) else a == b
        return None if same else f"{theirs} and {ours}"
    if not isinstance(ours, sf.Tensor):
        return f"a tensor and {ours}"
    dtype = str(theirs.dtype).split(".")[-1]
    for what, a, b in (("dtype", dtype, str(ours.dtype).split(".")[-1]), ("shape", [*theirs.shape], [*ours.shape])):
        if a != b:
            return f"{what} {a} and {b}"
    a, b = array(theirs), array(ours)
    if dtype in TOLERANCE:
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(a[np.isfinite(a)])
        scale = min(max(1, finite.max()), 1e3) if finite.size else 1
        same = np.isclose(a, b, rtol=TOLERANCE[dtype] * loose, atol=TOLERANCE[dtype] * loose * scale, equal_nan=True)
    else:
        same = a == b
    if same.all():
        return None
    at = tuple(np.argwhere(~same)[0])
    return f"{a[at]} and {b[at]} at {[int(i) for i in at]}, {(~same).sum()} of {same.size}"


def compare(call, seed):
    """(kind, text) of the first difference, or None."""
    theirs, ours = run(torch, call, seed), run(sf, call, seed)
    if isinstance(theirs, Exception):
        return None
    if isinstance(ours, Exception):
        return "refused", f"{type(ours).__name__}: {ours}"
    if len(theirs[0]) != len(ours[0]):
        return "value", f"{len(theirs[0])} and {len(ours[0])} results"
    for a, b in zip(theirs[0], ours[0]):
        if text := difference(a, b, call.loose):
            return "value", text
    if theirs[3] != ours[3]:
        return "gradient", f"requires_grad of {theirs[3]} and {ours[3]} results"
    for a, b in zip(theirs[1], ours[1]):
        text = difference(a, b, 4 * call.loose) if a is not None and b is not None else None
        if text or (a is None) != (b is None):
            return "gradient", text or f"None: {a is None} and {b is None}"
    for a, b in zip(theirs[2], ours[2]):
        if text := difference(a.detach(), b.detach(), call.loose):
            return "written", text
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=50, help="of each function")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sf.set_num_threads(1)
    rng, seen, count = random.Random(options.seed), set(), 0
    for name, make in torch_calls.calls(rng):
        if options.only not in name:
            continue
        for _ in range(options.calls):
            call, count = make(), count + 1
            found = compare(call, rng.randrange(1 << 30))
            if not found:
                continue
            kind, text = found
            last = name.rstrip("_").split(".")[-1]
            known = any(
                re.fullmatch(n, last) and re.fullmatch(k, kind) and re.search(t, f"{text} {call.kwargs}")
                for n, k, t in KNOWN
            )
            key = name, kind, re.sub(r"[-\d.e+]+", "#", text)[:80]
            if not known and key not in seen:
                seen.add(key)
                print(f"{name}: {kind}: {text[:300]}\n    {call.args} {call.kwargs or ''}", flush=True)
    print(f"{count} calls, {len(seen)} kinds of differences")


if __name__ == "__main__":
    main()
