"""Writes a .pyi file for each public module of the built package, so that editors and type checkers see what its
registries make: functions of ops, layers, models, methods of tensors, with their parameters and documents.

    PYTHONPATH=build/python python tools/make_stubs.py build/stubs/scaffolding

Types come from the registry of ops and from nanobind's signatures; what neither knows is Any. The build runs it, and a
wheel has them beside the modules.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import types

import layer_types

import scaffolding

KINDS = {  # of arguments of ops, as the registry names them; a tensor may be a number
    "a tensor": "Tensor | float",
    "a list of tensors": "Sequence[Tensor]",
    "an integer": "int",
    "a number": "float",
    "a bool": "bool",
    "integers": "int | Sequence[int]",
    "numbers": "float | Sequence[float]",
    "a string": "str",
    "a dtype": "dtype",
    "a device": "device | str",
    "a generator": "Generator",
}
BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
TENSOR_SLOTS = {
    **{f"__{r}{name}__": "(self, other: Any, /) -> Tensor" for name in BINARY for r in ("", "r", "i")},
    **{f"__{name}__": "(self, other: Any, /) -> Tensor" for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"__{name}__": "(self) -> Tensor" for name in ("neg", "pos", "abs", "invert")},
    "__getitem__": "(self, index: Any, /) -> Tensor",
    "__setitem__": "(self, index: Any, value: Any, /) -> None",
    "__iter__": "(self) -> Iterator[Tensor]",
    "__len__": "(self) -> int",
    "__bool__": "(self) -> bool",
    "__int__": "(self) -> int",
    "__float__": "(self) -> float",
    "__index__": "(self) -> int",
    "__contains__": "(self, item: Any, /) -> bool",
}
VARIADIC = {"reshape", "view", "permute", "expand", "repeat", "tile", "flip"}  # of sizes or dimensions one by one
KNOWN = {"Tensor", "dtype", "device", "Generator", "int", "float", "bool", "str", "bytes", "None", "Any", "object"}
OPS = scaffolding._core._op_types()
# Tensor has methods called int, float and bool, and values called dtype and device: types go by other names.
HEADER = """# Written by tools/make_stubs.py.
# mypy: disable-error-code="override, misc, assignment"
from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

"""
HIDDEN = re.compile(r"\b(int|float|bool|str|dtype|device)\b")


def shown_type(text):
    return HIDDEN.sub(r"_\1", text)


def native(value):
    return hasattr(value, "__nb_signature__") or type(value).__name__ == "OpFunction"


def public(module):
    listed = vars(module).get("__dir__")
    later = listed and not inspect.signature(listed).parameters  # its names come when they are asked for
    names = getattr(module, "__all__", None) or (listed() if later else vars(module))
    names = [n for n in names if not n.startswith("_")]
    return sorted(n for n in names if n.isidentifier() and hasattr(module, n))


def modules():
    found = [scaffolding]
    for info in pkgutil.walk_packages(scaffolding.__path__, "scaffolding."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found.append(importlib.import_module(info.name))
    return found


def is_own(value):
    module = getattr(value, "__module__", None)
    if inspect.isclass(value) and not isinstance(module, str):  # values of the class have a module too, which hides it
        module = re.match(r"<class '(\w*)", repr(value))[1]
    return isinstance(module, str) and module.split(".")[0] == "scaffolding"


def named_bases(cls):
    """The bases that have public names; of a hidden one, its own."""
    found = []
    for base in cls.__bases__:
        if is_own(base):
            found += named_bases(base) if base.__name__.startswith("_") else [base]
    return list(dict.fromkeys(found))


class Stub:
    """The text of one module's .pyi file."""

    def __init__(self, module):
        self.module, self.lines, self.imports = module, [], set()

    def type_of(self, text):
        """A type that nanobind wrote, as far as it is known here."""
        text = (text or "").strip().replace("scaffolding._core.", "").replace("scaffolding.", "")
        words = set(re.findall(r"[A-Za-z_.]+", text)) - {
            "list",
            "tuple",
            "dict",
            "Sequence",
            "collections.abc.Sequence",
        }
        if not text or not words <= KNOWN:
            return "Any"
        text = text.replace("collections.abc.", "")
        self.needs(words)
        return "Any" if text == "object" else text

    def needs(self, words):
        for name in ("Tensor", "dtype", "device", "Generator"):
            if name in words and self.module.__name__ != "scaffolding":
                hidden = name in ("dtype", "device")
                self.imports.add(f"from scaffolding import {name}" + (f" as _{name}" if hidden else ""))

    def default(self, value):
        plain = (bool, int, str, type(None))
        good = isinstance(value, plain) or (isinstance(value, float) and value == value and abs(value) != float("inf"))
        return repr(value) if good and len(repr(value)) < 60 else "..."

    def parameters(self, value, told=None, own=None):
        """(text of a parameter list, type of the result). told: {name: type}. own: what self is called."""
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):
            return f"({own}, *args: Any, **kwargs: Any)" if own else "(*args: Any, **kwargs: Any)", "Any"
        parts, star, optional = [], False, False
        given = list(signature.parameters.values())
        if own and type(value).__name__ == "OpFunction":
            given = given[1:]  # its first argument is the tensor
        if own and (not given or given[0].name not in ("self", "cls")):
            parts.append(own)
        for i, p in enumerate(given):
            if own and i == 0 and p.name in ("self", "cls"):
                parts.append(own)
                continue
            name = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
            if own and type(value).__name__ == "OpFunction" and len(given) == 1 and value.__name__ in VARIADIC:
                parts.append(f"*{name}: _int | Sequence[_int]")  # x.reshape(2, 3) and x.reshape((2, 3))
                continue
            if p.kind == p.KEYWORD_ONLY and not star:
                parts.append("*")
            star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
            kind = shown_type((told or {}).get(p.name, "Any"))
            if p.default is None and kind not in ("Any",) and "None" not in kind:
                kind += " | None"
            has_default = p.default is not p.empty or (optional and p.kind == p.POSITIONAL_OR_KEYWORD)
            optional = optional or (p.default is not p.empty and p.kind == p.POSITIONAL_OR_KEYWORD)
            shown = self.default(p.default) if p.default is not p.empty else "..."
            parts.append(f"{name}: {kind}" + (f" = {shown}" if has_default else ""))
            if p.kind == p.POSITIONAL_ONLY and (i + 1 == len(given) or given[i + 1].kind != p.POSITIONAL_ONLY):
                parts.append("/")
        return "(" + ", ".join(parts) + ")", "Any"

    def function(self, name, value, own=None, indent="", decorator=None):
        result, told = "Any", {}
        if type(value).__name__ == "OpFunction":
            arguments, several = OPS[value.__name__.removesuffix("_") if value.__name__ not in OPS else value.__name__]
            told = {
                a: KINDS.get(kind, "Any") + (" | None" if none and "None" not in KINDS.get(kind, "") else "")
                for a, (kind, none) in arguments.items()
            }
            told = {a: "Any" if t.startswith("Any") else t for a, t in told.items()}
            result = "tuple[Tensor, ...]" if several else "Tensor"
            self.needs({w for t in told.values() for w in re.findall(r"\w+", t)} | {"Tensor"})
        elif hasattr(value, "__nb_signature__"):
            result = self.type_of(
                value.__nb_signature__[0][0].rpartition("->")[2] if "->" in value.__nb_signature__[0][0] else "Any"
            )
        elif name == "forward" and layer_types.is_registered(self.owner):
            told, result = layer_types.call(self.owner)
        elif own and isinstance(self.owner, type) and issubclass(self.owner, scaffolding.Tensor):
            result = "Tensor" if name in METHODS_OF_TENSORS else "Any"
        text, _ = self.parameters(value, told, own)
        if decorator:
            self.lines.append(f"{indent}@{decorator}")
        self.lines.append(f"{indent}def {name}{text} -> {shown_type(result)}:")
        self.document(value, indent + "    ", end="...")

    owner = None

    def document(self, value, indent, end=None):
        text = inspect.getdoc(value) if not isinstance(value, property) else inspect.getdoc(value.fget)
        if text:
            text = text.replace("\\", "\\\\").replace('"""', "'''")
            lines = text.split("\n")
            body = "\n".join([lines[0], *((indent + line if line else "") for line in lines[1:])])
            closing = f"\n{indent}" if len(lines) > 1 or text.endswith('"') else ""
            self.lines.append(f'{indent}"""{body}{closing}"""')
        if end:
            self.lines.append(f"{indent}{end}")

    def class_(self, name, cls):
        bases = named_bases(cls)
        names = []
        for base in bases:
            home = home_of(base)
            if home is self.module:
                names.append(base.__name__)
            elif home:
                self.imports.add(f"import {home.__name__}")
                names.append(f"{home.__name__}.{base.__name__}")
        if issubclass(cls, BaseException) and not names:
            names = ["Exception"]
        self.lines.append(f"class {name}{'(' + ', '.join(names) + ')' if names else ''}:")
        self.document(cls, "    ")
        self.owner = cls
        is_layer = issubclass(cls, scaffolding.nn.Module) and self.module is scaffolding.nn
        kept = layer_types.attributes(cls) if is_layer else {}
        if not issubclass(cls, BaseException):
            told = layer_types.constructor(cls) if is_layer else {}
            self.needs({w for t in (*told.values(), *kept.values()) for w in re.findall(r"\w+", t)})
            text, _ = self.parameters(cls, told, own="self")
            self.lines.append(f"    def __init__{text} -> None: ...")
        if cls is scaffolding.Tensor:
            self.lines += [
                f"    def {slot}{shown_type(said)}: ..."
                + ("  # type: ignore[override]" if slot in ("__eq__", "__ne__") else "")
                for slot, said in TENSOR_SLOTS.items()
                if hasattr(cls, slot)
            ]
        elif isinstance(cls, type) and issubclass(cls, scaffolding.nn.Module) and cls is not scaffolding.nn.Module:
            if is_layer and layer_types.is_registered(cls):
                told, result = layer_types.call(cls)
                self.lines.append(f"    def __call__{self.parameters(cls.forward, told, 'self')[0]} -> {result}: ...")
            else:
                self.lines.append("    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...")
        for member, raw in sorted(vars(cls).items()):
            if member.startswith("_") or not member.isidentifier():
                continue
            if isinstance(raw, staticmethod):
                self.function(member, raw.__func__, None, "    ", "staticmethod")
            elif isinstance(raw, classmethod):
                self.function(member, raw.__func__, "cls", "    ", "classmethod")
            elif isinstance(raw, property) or inspect.isdatadescriptor(raw):
                self.lines.append(f"    {member}: {shown_type(kept.get(member, 'Any'))}")
            elif callable(raw) and not inspect.isclass(raw):
                self.function(member, raw, "self", "    ")
            elif not inspect.isclass(raw):
                self.lines.append(f"    {member}: Any")
        self.lines += ["    ...", ""]
        self.owner = None

    def member(self, name, value):
        if isinstance(value, types.ModuleType):
            if value.__name__.startswith("scaffolding") and "._" not in value.__name__:
                parent, _, last = value.__name__.rpartition(".")
                at = "." if parent == self.module.__name__ else parent
                self.imports.add(f"from {at} import {last} as {name}")
            return
        home = home_of(value) if is_own(value) and hasattr(value, "__name__") else None
        if home and home is not self.module and getattr(home, value.__name__, None) is value:
            if value.__name__ not in public(home):
                return
            self.imports.add(f"from {home.__name__} import {value.__name__} as {name}")
        elif inspect.isclass(value) and is_own(value):
            self.class_(name, value)
        elif callable(value) and not inspect.isclass(value) and (is_own(value) or native(value)):
            self.function(name, value)
            self.lines.append("")
        elif not inspect.isroutine(value) and not inspect.isclass(value):
            kind = type(value).__name__
            known = kind in ("int", "float", "str", "bool", "dtype")
            self.lines.append(f"{name}: {shown_type(kind) if known else 'Any'}")
            self.needs({kind})

    def text(self):
        for name in public(self.module):
            self.member(name, getattr(self.module, name))
        if self.module is scaffolding:
            self.lines += ["_dtype: TypeAlias = dtype", "_device: TypeAlias = device"]
        return HEADER + "".join(f"{i}\n" for i in sorted(self.imports)) + "\n" + "\n".join(self.lines) + "\n"


METHODS_OF_TENSORS = set()  # methods written in Python that give tensors: see find_tensor_methods


def find_tensor_methods():
    """Methods of Tensor that are functions of the package's too, whose first sentence says nothing else."""
    for name in vars(scaffolding.Tensor):
        function = getattr(scaffolding, name, None)
        if callable(function) and not name.startswith(("is_", "_")) and name not in ("numel", "result_type", "save"):
            METHODS_OF_TENSORS.add(name)


HOMES = {}


def home_of(value):
    """The public module from which a name is taken: where it is defined if that is seen, or the first that has it."""
    if not HOMES:
        for module in sorted(modules(), key=lambda m: (m.__name__.count("."), m.__name__)):
            for name in public(module):
                found = getattr(module, name)
                if not isinstance(found, types.ModuleType) and getattr(found, "__name__", None) == name:
                    try:
                        HOMES.setdefault(found, module)
                    except TypeError:
                        continue
    own = sys.modules.get(str(getattr(value, "__module__", "")), None)
    hidden = own is None or any(part.startswith("_") for part in own.__name__.split("."))
    if not hidden and getattr(own, getattr(value, "__name__", ""), None) is value:
        return own
    return HOMES.get(value)


def main(folder):
    find_tensor_methods()
    for module in modules():
        inner = module.__name__.split(".")[1:]
        path = folder.joinpath(*inner)
        path = path / "__init__.pyi" if hasattr(module, "__path__") else path.with_suffix(".pyi")
        text = Stub(module).text()
        ast.parse(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    (folder / "py.typed").touch()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
