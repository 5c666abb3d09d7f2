"""Signatures beside those that golden files recorded: what differs must be explained there,
and what is explained must differ.
"""

import inspect
import json


def plain(value):
    return json.loads(json.dumps(value)) if isinstance(value, (tuple, list, dict)) else value


def parameters_of(function):
    """{argument: {} or {"default": value}}"""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.name not in ("self", "cls") and p.kind not in kinds
    ]
    return {p.name: {} if p.default is p.empty else {"default": plain(p.default)} for p in taken}


def unexplained(ours, theirs, explained):
    """(what differs without an explanation, explanations of what does not differ). The order of shared names counts,
    but for explained ones.
    """
    differing = {n for n in {*ours, *theirs} if n not in ours or n not in theirs or ours[n] != theirs[n]}
    shared, place = [n for n in theirs if n in ours], {n: i for i, n in enumerate(n for n in ours if n in theirs)}
    moved = {n for i, n in enumerate(shared) if place[n] != i}
    wrong = {
        n: {"ours": ours.get(n, "absent"), "theirs": theirs.get(n, "absent")}
        for n in sorted(differing - set(explained))
    }
    order = [n for n in shared if n not in explained]
    if order != sorted(order, key=place.get):
        wrong["their order"] = {"ours": sorted(order, key=place.get), "theirs": order}
    return wrong, sorted(set(explained) - differing - moved)
