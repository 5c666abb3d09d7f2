"""Writes docs/torch_names.md, the table of PyTorch's names and others', from python/scaffolding/torch_names.txt,
other_names.txt and what is in the package. Prints how many names each namespace has.

    PYTHONPATH=$PWD/build/python .venv/bin/python tools/torch_names_page.py     # make docs does it
"""

import pathlib

from scaffolding import _missing

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "torch_names.md"


def page():
    """The table as Markdown, from the file and what the package has."""
    table = _missing.table()
    lines = [
        "# PyTorch's names",
        "",
        "Written by `make docs`; do not edit. Of the public names of these namespaces of PyTorch those that are not",
        "here under the same name, and what to use instead. A name that is missed says the same:",
        "`AttributeError: module 'scaffolding.nn' has no attribute 'Conv2D'; did you mean 'Conv2d'?`",
        "",
        "| Namespace | Names | Here | Under another name or not here |",
        "|---|---|---|---|",
    ]
    sections = []
    for space, names in table.items():
        ours = space.replace("torch", "scaffolding", 1)
        here = [n for n in names if _missing.is_here(space, n)]
        others = {}
        for name, advice in names.items():
            if name not in here:
                others.setdefault(advice, []).append(name)
        missing = len(names) - len(here)
        lines.append(f"| `{space}` | {len(names)} | {len(here)} | {missing} |")
        print(f"{space}: {len(names)} names, {len(here)} here, {missing} not")
        sections += ["", f"## {space}", ""]
        if here:
            sections += [f"All others are `{ours}`'s." if others else f"All are `{ours}`'s.", ""]
        if others:
            sections += ["| Not here | Instead |", "|---|---|"]
            sections += [
                f"| {' '.join(f'`{n}`' for n in group)} | {(advice or 'not here yet').replace('|', chr(92) + '|')} |"
                for advice, group in others.items()
            ]
    others = {}
    for name, advice in _missing.other_names().items():
        others.setdefault(advice, []).append(name)
    sections += ["", "## Names of other interfaces", "", "| Place | Here under the same name |", "|---|---|"]
    for place, names in _missing.other_names_here().items():
        sections.append(f"| `{place}` | {' '.join(f'`{n}`' for n in names)} |")
    sections += ["", "| Name | Here |", "|---|---|"]
    sections += [f"| {' '.join(f'`{n}`' for n in group)} | {advice} |" for advice, group in others.items()]
    return "\n".join(lines + sections) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
