"""Changes of a PTX file that break it, and whether its interpreter says so."""

import re

import numpy as np
import pytest
from program import Fault


def other(pattern, to):
    return lambda text: re.sub(pattern, to, text)


def instead(pattern, to, nth=0):
    """One of the instructions that match, counted among them, is another."""

    def edit(text):
        at = [m.span() for m in re.finditer(rf"^\s*{pattern}[^;]*;", text, re.M)][nth]
        return text[: at[0]] + "\n" + to + text[at[1] :]

    return edit


def without(pattern, nth=0):
    return instead(pattern, "", nth)


def later(pattern):
    """The first instruction that matches, behind the next label."""
    return lambda text: re.sub(rf"({pattern}[^;]*;)(.*?\n\$L\w+:)", r"\2\n\1", text, count=1, flags=re.S)


def inside(part, edit):
    """Of the one kernel that has this in its name."""

    def apart(text):
        kernels = text.split(".entry ")
        return ".entry ".join(edit(k) if part in k.split("(")[0] else k for k in kernels)

    return apart


def check(ptx, unit, run, edit, said):
    """Of a kernel as edited: a fault in whose text this is, or a result that is wrong by more."""
    text = edit(ptx[unit])
    assert text != ptx[unit]
    for backwards in (False, True):  # some of it shows in one order of warps only
        try:
            error = np.max(run(text, backwards=backwards))
            found = isinstance(said, float | int) and error > said
        except Fault as fault:
            found = isinstance(said, str) and re.search(said, str(fault))
            print(fault)
        if found:
            return
    pytest.fail("its results are right, or another fault came first")
