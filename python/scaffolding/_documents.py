"""What the documents of ops, layers, networks, pipelines and optimizers end with: their arguments, and an example:
help(sf.softmax), help(sf.nn.Conv2d). What functions of Python and methods have in common: help(pipe.from_pretrained).

Both are read when such a document is asked for. arguments/: "name, name: text" says what an argument of that name is
everywhere; behind "[names]" it is said for functions and classes of these names alone (of methods Class.method or
method), and "[names] = name" takes over what is said of another. examples/: a line of names, a session of Python as
doctest has them, an empty line; "ReLU = relu" gives a layer the example of the function that it calls. Functions of
Python have theirs in their docstrings.
"""

import os
import re

_read = {}
_WORD = re.compile(r"\w+")
_EXAMPLES = ("ops", "nn", "data", "classes")  # files of examples/, by subject
# Files of arguments/ by subject, the later ones where the earlier ones say nothing.
_FILES = {
    "ops": ["ops"],
    "nn": ["nn", "ops"],
    "models": ["models"],
    "pipelines": ["pipelines"],
    "optim": ["optim"],
    "classes": ["classes"],
    "data": ["classes"],
    "functions": ["functions"],
    "optim.functional": ["functional", "optim"],
    "forward": ["forward", "nn", "ops"],  # of layers
}


def _text_of(*path):
    with open(os.path.join(os.path.dirname(__file__), *path), encoding="utf-8") as file:
        return file.read()


def table(subject):
    """{name: session} of a file of examples/."""
    if subject not in _read:
        read, borrowed = {}, {}
        for block in _text_of("examples", subject + ".txt").strip().split("\n\n"):
            names, _, session = block.partition("\n")
            if session:
                read.update(dict.fromkeys(names.split(), session))
            else:
                layer, _, function = names.split()
                borrowed[layer] = function
        for layer, function in borrowed.items():
            read[layer] = re.sub(rf"\b(sf|F)\.{function}\(", f"nn.{layer}()(", table("ops")[function])
        _read[subject] = read
    return _read[subject]


def meanings(file):
    """({argument: text}, {function: {argument: text}}, {function: function whose arguments it has}) of a file of
    arguments/."""
    key = "arguments", file
    if key not in _read:
        general, of, taken, into = {}, {}, {}, None
        for line in _text_of("arguments", file + ".txt").splitlines():
            if line.startswith("["):
                names, _, source = line[1:].partition("]")
                into = [of.setdefault(name, {}) for name in names.split()]
                if source:
                    taken.update(dict.fromkeys(names.split(), source.strip(" =")))
            elif line:
                names, _, text = line.partition(": ")
                for entries in [general] if into is None else into:
                    entries.update(dict.fromkeys(names.split(", "), text))
        _read[key] = general, of, taken
    return _read[key]


def meaning(subject, name, argument):
    """What an argument of a function or class is; None where nothing is said."""
    files = [meanings(file) for file in _FILES[subject]]
    while name:
        for _, of, _ in files:
            if argument in of.get(name, {}):
                return of[name][argument]
        name = next((taken[name] for _, _, taken in files if name in taken), None)
    return next((general[argument] for general, _, _ in files if argument in general), None)


def document(text, subject, name, parameters=None):
    """The text, what its parameters are, and the name's example where there is one. An example in the text stays at its
    end. parameters: names; absent: those of the text's first line, name(a, b=1)."""
    if parameters is None:
        listed = re.sub(r"'[^']*'|\([^()]*\)", "", text.partition("(")[2].partition("\n")[0])
        parameters = re.findall(r"(?:^|, )\*{0,2}(\w+)", listed)
    said = [(p, meaning(subject, name, p)) for p in parameters] if subject in _FILES else []
    lines = "".join(f"\n    {p}: {its}" for p, its in said if its)
    text, mark, session = text.rstrip().partition("\n\n>>>")
    if not mark and subject in _EXAMPLES:
        session = table(subject).get(name)
        mark = "\n\n" if session else ""
    return text + ("\n\nArgs:" + lines if lines else "") + (mark + session if mark else "")


def describe(namespace, subject="functions"):
    """Writes into the docstrings of a package's functions, classes and their methods what its files say of arguments
    that the text does not name. For packages that are imported when they are asked for: it reads the files at once."""
    said = {"": {}}  # by section; "": everywhere
    for file in reversed(_FILES[subject]):
        general, of, _ = meanings(file)
        for section, entries in [("", general), *of.items()]:
            said.setdefault(section, {}).update(entries)
    said[None] = frozenset().union(*said.values())  # all arguments of which anything is said
    package, seen = namespace["__name__"], set()
    for value in list(namespace.values()):
        for owner in value.__mro__ if isinstance(value, type) else ():
            if owner not in seen and _is_of(owner, package):
                seen.add(owner)
                for name, member in list(vars(owner).items()):
                    if name[0] != "_" or name == "__call__":
                        member = getattr(member, "__func__", member)
                        _describe(member, member, said)
                if isinstance(vars(owner).get("__doc__"), str):
                    _describe(owner, owner.__init__, said)
        if not isinstance(value, type) and _is_of(value, package) and getattr(value, "__name__", "_")[0] != "_":
            _describe(value, value, said)


def _is_of(value, package):
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and (module == package or module.startswith(package + "."))


def _describe(of, function, said):
    """of: whose docstring it is, the function itself or the class that it makes an object of."""
    code = getattr(function, "__code__", None)
    if code is None or of.__doc__ is None:  # it may take over a base's
        return
    new = said[None].intersection(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if not new or not (new := new.difference(_WORD.findall(of.__doc__.partition(">>>")[0]))):
        return
    places = [said.get(of.__qualname__, {}), said.get(of.__name__, {}), said[""]]
    lines = ""
    for argument in code.co_varnames:
        if argument in new and (its := next((p[argument] for p in places if argument in p), None)):
            lines += f"\n    {argument}: {its}"
    if lines:
        from inspect import cleandoc

        text, mark, session = cleandoc(of.__doc__).partition("\n\n>>>")
        text += lines if "\nArgs:\n" in text else "\n\nArgs:" + lines
        of.__doc__ = text.strip() + mark + session


class _Document:
    """__doc__ of a class: its own text, its arguments, and the example."""

    def __init__(self, text, subject, name):
        self._parts = text, subject, name

    def __get__(self, instance, owner):
        import inspect

        text, subject, name = self._parts
        try:
            parameters = [p for p in inspect.signature(owner).parameters if not p.startswith("_")]
        except (TypeError, ValueError):  # one that is not made by a call
            parameters = []
        return document(inspect.cleandoc(text), subject, name, parameters)


def add_to(cls, subject):
    """Shows the class's arguments and example whenever its __doc__ is asked for."""
    cls.__doc__ = _Document(cls.__doc__ or "", subject, cls.__name__)
