"""Pages of the site that are made from the package: one for each class, one for the functions of each first letter, and
a page for each group that lists them.
Needs a built package (`make build`).
"""

import importlib
import inspect
import pathlib
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
GROUPS = {  # title: (folder, module, what else must hold of a class)
    "Layers (nn)": ("nn", "scaffolding.nn", None),
    "Optimizers (optim)": ("optim", "scaffolding.optim", None),
    "Learning rates (optim.lr_scheduler)": ("lr_scheduler", "scaffolding.optim.lr_scheduler", None),
    "Data (data)": ("data", "scaffolding.data", None),
    "Loading (utils.data)": ("loading", "scaffolding.utils.data", None),
    "Networks (models)": ("models", "scaffolding.models", None),
    "Pipelines (diffusion)": ("pipelines", "scaffolding.diffusion", "Pipeline"),
    "Schedulers (diffusion)": ("schedulers", "scaffolding.diffusion", "Scheduler"),
    "Transforms (data.transforms)": ("transforms", "scaffolding.data.transforms", None),
}
CODE = re.compile(r"(?m)^(>>> .*|\.\.\. .*)$")


def public_names(module, part):
    for name in sorted(vars(module)):
        value = getattr(module, name)
        if name.startswith("_") or not (inspect.isclass(value) or (inspect.isroutine(value) and name[0].isupper())):
            continue
        if part is None or part in name:
            yield name, value


def signature_of(name, value):
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return f"{name}(...)"
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    if len(name) + len(text) > 88 and len(inspect.signature(value).parameters) > 2:
        text = "(\n    " + ",\n    ".join(str(p) for p in inspect.signature(value).parameters.values()) + ",\n)"
    return name + re.sub(r" at 0x[0-9a-f]+", "", text)


def escaped(text):
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def prose(text):
    """A docstring as Markdown: programs of `>>>` stand in blocks under the word Example, the lines under Args become a
    list."""
    out, block, listed = [], False, False
    for line in inspect.cleandoc(text or "").split("\n"):
        code = bool(CODE.match(line)) or (block and line.strip() != "")
        listed = line == "Args:" or (listed and line != "")
        if listed:
            name, _, said = line.strip().partition(":")
            out += ["**Arguments**", ""] if line == "Args:" else [f"- `{name}`: {escaped(said.strip())}"]
            continue
        if code != block:
            out += ["```"] if block else ["", "**Example**", "", "```pycon"]
            block = code
        out.append(line if code else escaped(line))
    return "\n".join(out + ["```"] * block)


def first_sentence(text):
    line = " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", line)[0].replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def own_members(cls):
    """(name, value) of public methods and properties that the class or a base of its own room has."""
    common = {name for base in cls.__mro__[1:] if base.__name__ in ("Module", "object") for name in vars(base)}
    for name, value in sorted(inspect.getmembers(cls)):
        if not name.startswith("_") and name not in common:
            yield name, value


def class_page(module, name, value):
    full = f"{module.__name__.removeprefix('scaffolding.')}.{name}"
    lines = [f"# {name}", "", "```python", signature_of(f"{full}", value), "```", "", prose(inspect.getdoc(value)), ""]
    methods, values = [], []
    if inspect.isclass(value):
        for member, what in own_members(value):
            doc = inspect.getdoc(what) if callable(what) or isinstance(what, property) else None
            if callable(what):
                methods += [f"### {member}", "", "```python", signature_of(member, what), "```", "", prose(doc), ""]
            elif doc or isinstance(what, property):
                values.append(f"| `{member}` | {first_sentence(doc)} |")
    if values:
        lines += ["## Values", "", "| Name | What it is |", "|---|---|", *values, ""]
    if methods:
        lines += ["## Methods", "", *methods]
    return "\n".join(lines)


def functions(config):
    """(files, navigation) of the functions. Those that write over their argument stand with those that do not."""
    package = importlib.import_module("scaffolding")
    letters, rows = {}, []
    for name in sorted(dir(package), key=str.lower):
        value = getattr(package, name)
        plain = inspect.isroutine(value) or type(value).__name__ in ("OpFunction", "nb_func")
        own = str(getattr(value, "__module__", "")).startswith("scaffolding") and name != "later"
        if name.startswith("_") or not (plain and own) or (name.endswith("_") and hasattr(package, name[:-1])):
            continue
        text = re.sub(rf"^{value.__name__}\(.*\)( -> .*)?\n\n", "", inspect.getdoc(value) or "")
        text = re.sub(rf"^{value.__name__}\(.*\)\n\n", "", text)
        letters.setdefault(name[0], []).extend(
            [f"## {name}", "", "```python", signature_of(f"sf.{name}", value), "```", "", prose(text), ""]
        )
        rows.append(f"- [{name}]({name[0]}.md#{name.lower()}): {first_sentence(text)}")
    files = [
        File.generated(
            config, f"python/functions/{letter}.md", content="\n".join([f"# Functions: {letter}", "", *lines])
        )
        for letter, lines in letters.items()
    ]
    index = "python/functions/index.md"
    content = "\n".join(["# Functions (scaffolding)", "", *rows, ""])
    pages = [{letter: f"python/functions/{letter}.md"} for letter in letters]
    return [File.generated(config, index, content=content), *files], [{"Functions (scaffolding)": [index, *pages]}]


def reference(config):
    """(files, navigation) of the classes."""
    files, navigation = [], []
    for title, (folder, module_name, part) in GROUPS.items():
        module = importlib.import_module(module_name)
        rows, pages = [], []
        for name, value in public_names(module, part):
            path = f"python/{folder}/{name}.md"
            files.append(File.generated(config, path, content=class_page(module, name, value)))
            rows.append(f"| [{name}]({name}.md) | {first_sentence(inspect.getdoc(value))} |")
            pages.append({name: path})
        index = f"python/{folder}/index.md"
        content = "\n".join([f"# {title}", "", "| Name | What it is |", "|---|---|", *rows, ""])
        files.append(File.generated(config, index, content=content))
        navigation.append({title: [index, *pages]})
    return files, navigation


def on_files(files, config):
    try:
        importlib.import_module("scaffolding")
    except ImportError as error:
        raise PluginError(f"the pages of classes need the built package, run `make build` first: {error}") from error
    made, navigation = (a + b for a, b in zip(functions(config), reference(config)))
    for file in made:
        files.append(file)
    next(entry["Python"] for entry in config.nav if isinstance(entry, dict) and "Python" in entry).extend(navigation)
    return files
