#!/usr/bin/env python3
"""Writes scaffolding/tokenizers/html_entities.z: HTML's named character references as Python's html.entities has them
(HTML 5), deflated for zlib by PyPI's zopfli. tokenizers/embedded.h tells their form.
"""

import html.entities
import pathlib

from zopfli import zlib

words = [f"{name}={'+'.join(format(ord(c), 'X') for c in text)} " for name, text in sorted(html.entities.html5.items())]
text = "".join(words).encode()
place = pathlib.Path(__file__).resolve().parent.parent / "scaffolding/tokenizers/html_entities.z"
place.write_bytes(zlib.compress(text))
print(f"{place}: {len(text)} bytes in {place.stat().st_size}")
