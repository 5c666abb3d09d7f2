"""Examples at the end of the documents of what C++ registers: help(sf.softmax), help(sf.nn.Conv2d).

They stand in examples/, which is read when such a document is asked for: a line of names, a session of Python as
doctest has them, an empty line. "ReLU = relu" gives a layer the example of the function that it calls. Functions and
classes of Python have theirs in their docstrings.
"""

import os
import re

_read = {}


def table(subject):
    """{name: session} of a file of examples/."""
    if subject not in _read:
        read, borrowed = {}, {}
        with open(os.path.join(os.path.dirname(__file__), "examples", subject + ".txt"), encoding="utf-8") as file:
            for block in file.read().strip().split("\n\n"):
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


def document(text, subject, name):
    """The text, and the name's example where there is one."""
    session = table(subject).get(name)
    return f"{text.rstrip()}\n\n{session}" if session else text


class _Document:
    """__doc__ of a class: its own text, and the example."""

    def __init__(self, text, subject, name):
        self._parts = text, subject, name

    def __get__(self, instance, owner):
        return document(*self._parts)


def add_to(cls, subject):
    """Shows the class's example whenever its __doc__ is asked for."""
    cls.__doc__ = _Document(cls.__doc__ or "", subject, cls.__name__)
