"""Help for a name that is missed: where it is here, what to use for PyTorch's, or the nearest name.

torch_names.txt, which tests/golden/make_golden_torch_names.py writes, and other_names.txt are read when the first name
is missed.
"""

import sys
from importlib import import_module

from . import _core
from ._core import Tensor

_tables = {}


def _read(file_name):
    """{namespace: {name: advice, or None}} of a file."""
    if file_name not in _tables:
        import os

        read, names, advice = {}, {}, None
        with open(os.path.join(os.path.dirname(__file__), file_name), encoding="utf-8") as file:
            for line in file.read().splitlines():
                if line.startswith("["):
                    names, advice = read.setdefault(line[1:-1], {}), None
                elif line.startswith("= "):
                    advice = line[2:]
                elif not line.startswith("#"):
                    names.update(dict.fromkeys(line.split(), advice))
        _tables[file_name] = read
    return _tables[file_name]


def table():
    """{namespace of PyTorch: {name: advice, or None}}."""
    return _read("torch_names.txt")


def other_names():
    """{name of another interface that is not here: advice}."""
    return {name: advice for name, advice in _read("other_names.txt")["scaffolding"].items() if advice}


def other_names_here():
    """{place in the package: names of other interfaces that are there}."""
    read = _read("other_names.txt")
    here = {place: [name for name, advice in names.items() if not advice] for place, names in read.items()}
    return {place: names for place, names in here.items() if names}


def _ours(space):
    """The module, or Tensor, under that namespace of PyTorch; None where there is none."""
    if space == "torch.Tensor":
        return Tensor
    name = space.replace("torch", __package__, 1)
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


def is_here(space, name):
    """Whether a name of a namespace of PyTorch is here."""
    ours = _ours(space)
    return ours is not None and hasattr(ours, name)


def _modules():
    """The public modules of the package that are loaded, outer ones first."""
    names = [name for name in sys.modules if name.split(".")[0] == __package__ and "._" not in name]
    return sorted(names, key=lambda name: (name.count("."), name))


def _places():
    """{name: where it is} of all public names, also of packages that nobody asked for yet; of several places the
    first."""
    for package, place in sys.modules[__package__]._LATER.items():
        if place is None:
            import_module(f".{package}", __package__)
    places = {}
    for module in _modules():
        for name, found in vars(sys.modules[module]).items():
            home = getattr(found, "__module__", None) or __package__  # none: a number, or a module
            if not name.startswith("_") and isinstance(home, str) and home.split(".")[0] == __package__:
                places.setdefault(name, f"{module}.{name}")
        for name in vars(sys.modules[module]).get("_LATER", ()):
            places.setdefault(name, f"{module}.{name}")
    return places


def _nearest(name, names):
    from difflib import get_close_matches

    lower = {n.lower(): n for n in names}
    plain = name.lower().replace("_", "")
    for known in lower:
        if known.replace("_", "") == plain:
            return lower[known]
    close = get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return lower[close[0]] if close else None


def explain(space, name, names):
    """What to do about a name that a namespace lacks, as the end of a sentence; "" where nothing is known."""
    torchs = table().get(space, {})
    advice = torchs.get(name)
    if advice:
        return f"; for PyTorch's: {advice}"
    if name in other_names():
        return f"; here: {other_names()[name]}"
    if hasattr(Tensor, name):
        return f"; there is Tensor.{name}, a method"
    places = _places()
    if name in places:
        return f"; there is {places[name]}"
    near = _nearest(name, names)
    if near is not None and name not in torchs:
        return f"; did you mean {near!r}?"
    if name in torchs:
        return "; PyTorch has it, it is not here yet" + (f"; {near!r} is" if near else "")
    for other, known in table().items():
        if known.get(name):
            return f"; for {other}'s: {known[name]}"
    near = _nearest(name, places)
    if near is not None:
        return f"; did you mean {places[near]}?"
    near = _nearest(name, torchs)
    if near is not None and torchs[near]:
        return f"; for PyTorch's {near!r}: {torchs[near]}"
    return ""


class _MissingName(AttributeError):
    """Says what to do when it is shown: hasattr() and imports cost nothing."""

    def __init__(self, owner, name, advice):
        super().__init__(name=name)  # without obj, or Python would guess at another name too
        self._owner, self._advice = owner, advice  # how the owner is called; a function of no arguments

    def __str__(self):
        text = f"{self._owner} has no attribute {self.name!r}"
        return text if self.name.startswith("_") else text + self._advice()

    def __repr__(self):
        return f"AttributeError({str(self)!r})"

    def __reduce__(self):
        return AttributeError, (str(self),)


_MissingName.__name__ = _MissingName.__qualname__ = "AttributeError"
_MissingName.__module__ = "builtins"


def missing(module, name):
    """The AttributeError for a name that a module of the package lacks."""

    def advice():
        known = vars(sys.modules[module])
        known = (*known, *known.get("_LATER", ()))
        return explain(module.replace(__package__, "torch", 1), name, [n for n in known if not n.startswith("_")])

    return _MissingName(f"module {module!r}", name, advice)


def missing_of_pipeline(cls, name):
    """That for a name that a pipeline lacks: what does here what diffusers' does, or the nearest name."""

    def advice():
        known = _read("other_names.txt")["DiffusionPipeline"].get(name)
        near = None if known else _nearest(name, [n for n in dir(cls) if not n.startswith("_")])
        return f"; for diffusers': {known}" if known else f"; did you mean {near!r}?" if near else ""

    return _MissingName(f"{cls.__name__!r} object", name, advice)


def _attribute_help(name):
    return "" if name.startswith("_") else explain("torch.Tensor", name, [n for n in dir(Tensor) if n[0] != "_"])


_core._set_attribute_help(_attribute_help)


def help_modules():
    """Gives every module of the package that is loaded, and has none, a __getattr__ that answers with missing()."""
    for name in _modules():
        vars(sys.modules[name]).setdefault("__getattr__", _answer_of(name))


def _answer_of(module):
    def __getattr__(name):
        raise missing(module, name)

    return __getattr__
