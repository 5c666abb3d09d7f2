#!/usr/bin/env python3
"""Writes functional.json.xz: the parameters (name and default) of every function of torch.nn.functional. Needs torch;
tests read the file only.

Functions written in Python tell their own; those written in C++ say it in the first lines of their documentation; those
that choose by return_indices have the parameters of their *_with_indices twin.
"""

import inspect
import json
import pathlib

import torch
import torch.nn.functional as F
from packed import write_json

NOT_FUNCTIONS_OF_TENSORS = {"Optional", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function"}


def plain(value):
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def from_signature(function):
    return [
        [p.name] if p.default is inspect.Parameter.empty else [p.name, plain(p.default)]
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


def from_doc(name, doc):
    start = doc.index(name + "(") + len(name) + 1
    text = doc[start : doc.index(")", start)]
    return from_signature(eval(f"lambda {' '.join(text.split())}: None"))  # noqa: S307: torch's own documentation


def parameters(name, function):
    if hasattr(F, name + "_with_indices"):
        return from_signature(getattr(F, name + "_with_indices"))
    try:
        return from_signature(function)
    except ValueError:
        return from_doc(name, function.__doc__)


def main():
    found = {"torch": torch.__version__}
    for name, function in sorted(vars(F).items()):
        if (
            name.startswith(("_", "has_torch_function"))
            or name in NOT_FUNCTIONS_OF_TENSORS
            or inspect.isclass(function)
            or not callable(function)
        ):
            continue
        if name == "conv_tbc":  # its documentation has no parameter list
            found[name] = [["input"], ["weight"], ["bias"], ["pad", 0]]
            continue
        found[name] = parameters(name, function)
    path = pathlib.Path(__file__).with_name("functional.json.xz")
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    write_json(path, "{\n" + ",\n".join(lines) + "\n}\n")
    print(path, path.stat().st_size, "bytes", len(found) - 1, "functions")


if __name__ == "__main__":
    main()
