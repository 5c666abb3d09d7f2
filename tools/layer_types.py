"""Types of layers' constructors, attributes and calls, for their stubs: of those that C++ registers from the registry,
of those that Python writes by name and default."""

import inspect
import re

import scaffolding

TAKEN = {  # kinds of arguments, as the registry names them
    "a tensor": "Tensor",
    "a list of tensors": "Sequence[Tensor]",
    "an integer": "int",
    "a number": "float",
    "a bool": "bool",
    "integers": "int | Sequence[int]",
    "numbers": "float | Sequence[float]",
    "a string": "str",
    "a dtype": "dtype",
    "a device": "device | str | int",
    "a generator": "Generator",
}
KEPT = {**TAKEN, "integers": "int | tuple[int, ...]", "numbers": "float | tuple[float, ...]"}  # as attributes
COUNTS = re.compile(r"(in|out)_(features|channels)|num_\w+|\w*_size|d_model|nhead|dim_feedforward|n_classes|size")
PLACES = {"device": "device | str | int | None", "dtype": "dtype | None"}
LAYERS = scaffolding._core._layer_types()


def _of_kinds(arguments, names):
    """{argument: type}. Convolutions, which have a padding_mode, take padding="same" too."""
    told = {a: names.get(kind, "Any") + (" | None" if none else "") for a, (kind, none) in arguments.items()}
    if "padding_mode" in told:
        told["padding"] += " | str"
    return told


def is_registered(cls):
    return cls.__name__ in LAYERS and getattr(scaffolding.nn, cls.__name__, None) is cls


def constructor(cls):
    """{argument: type} of what is known."""
    if is_registered(cls):
        return _of_kinds(LAYERS[cls.__name__][0], TAKEN)
    told = {}
    for name, p in inspect.signature(cls).parameters.items():
        if name in PLACES:
            told[name] = PLACES[name]
        elif isinstance(p.default, (bool, str)):
            told[name] = type(p.default).__name__
        elif COUNTS.fullmatch(name) and p.default is p.empty:
            told[name] = "int"
        elif isinstance(p.default, (int, float)):
            told[name] = "int" if COUNTS.fullmatch(name) else "float"
    return told


def attributes(cls):
    return _of_kinds(LAYERS[cls.__name__][2], KEPT) if is_registered(cls) else {}


def call(cls):
    """({argument: type}, type of the result) of forward."""
    if not is_registered(cls):
        return {}, "Any"
    arguments = LAYERS[cls.__name__][1]
    result = "Tensor"
    if cls.__name__ == "MultiheadAttention":
        result = "tuple[Tensor, Tensor | None]"
    elif "return_indices" in LAYERS[cls.__name__][0]:
        result = "Any"  # two tensors, where they are asked for
    return _of_kinds(arguments, TAKEN), result
