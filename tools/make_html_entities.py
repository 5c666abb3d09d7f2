#!/usr/bin/env python3
"""Writes scaffolding/tokenizers/html_entities.def: HTML's named character references,
as Python's html.entities has them (HTML 5).
"""

import html.entities
import pathlib

WIDTH = 156
HEAD = """\
// HTML's named character references: name=code points in hexadecimal.
// Names with and without a semicolon are names of their own.
// Made by tools/make_html_entities.py from Python's html.entities.html5.
"""

words = [f"{name}={'+'.join(format(ord(c), 'X') for c in text)}" for name, text in sorted(html.entities.html5.items())]
lines, line = [], ""
for word in words:
    if len(line) + len(word) + 4 > WIDTH:
        lines.append(f'"{line}"')
        line = ""
    line += word + " "
lines.append(f'"{line}"')
target = pathlib.Path(__file__).parent.parent / "scaffolding/tokenizers/html_entities.def"
target.write_text(HEAD + "\n".join(lines) + "\n")
