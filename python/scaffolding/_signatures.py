"""inspect.signature of functions, methods and classes of C++, from what nanobind writes about them."""

import inspect
import re

_ANY = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


def _parts(text):
    """The text's parts between commas that stand in no bracket."""
    depth, part, out = 0, "", []
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            out.append(part.strip())
            part = ""
        else:
            part += c
    return [p for p in (*out, part.strip()) if p]


def _parameters(text):
    """What stands in the first brackets."""
    begin = text.index("(")
    depth = 0
    for i, c in enumerate(text[begin:], begin):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[begin + 1 : i]
    return ""


def _evaluated(parameters, defaults=()):
    """The signature of a parameter list in Python's syntax; of one that is none, any arguments."""
    scope = {"inf": float("inf"), **{f"_default_{i}": value for i, value in enumerate(defaults)}}
    try:
        return inspect.signature(eval(f"lambda {parameters}: None", scope))
    except (SyntaxError, NameError, ValueError):
        return _ANY


def of_function(function):
    """Of the first of a function's overloads; for one that takes anything, what its documentation begins with."""
    text, doc, defaults = function.__nb_signature__[0]
    parts = _parts(_parameters(text))
    if [p for p in parts if p != "self"] == ["*args", "**kwargs"]:
        told = re.match(r"\w+\(", doc or "")
        own = "self, " if parts[0] == "self" else ""
        return _evaluated(own + _parameters(doc).removeprefix(own)) if told else _evaluated(", ".join(parts))
    plain = []
    for part in parts:
        name, default = part.partition(":")[0].strip(), re.search(r"= \\(\d+)$", part)
        plain.append(f"{name}=_default_{default[1]}" if default else name)
    return _evaluated(", ".join(plain), defaults or ())


def of_bound(method):
    """Of a method of an object: without self."""
    taken = list(of_function(method.__func__).parameters.values())
    return inspect.Signature(taken[1:] if taken and taken[0].name == "self" else taken)


def of_class(cls):
    """Of a class, its constructor's; None where Python's own rules find it. One that is never called takes nothing."""
    for base in cls.__mro__:
        if "__signature__" in vars(base) or isinstance(vars(base).get("__new__"), staticmethod):
            return None
        made = vars(base).get("__init__")
        if inspect.isfunction(made):
            return None
        if hasattr(made, "__nb_signature__"):
            return _without_self(of_function(made))
    return inspect.Signature()


def _without_self(signature):
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name != "self"])
