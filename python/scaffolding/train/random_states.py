"""The states of every generator that a step function may draw from."""

import random
import sys

from .. import _core


def get(device):
    """The default generators of the CPU and of `device`, Python's `random`,
    and NumPy's global one where NumPy is imported.
    """
    states = {"cpu": _core._default_generator().get_state(), "python": random.getstate()}
    if device.type == "cuda":
        states["cuda"] = _core._default_generator(device).get_state()
    if "numpy" in sys.modules:
        algorithm, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (algorithm, keys.tolist(), *rest)
    return states


def set(states, device):  # noqa: A001  (read as random_states.set)
    """Puts back what get() gave. A checkpoint by C++ has no state of Python's generators: they stay as they are."""
    _core._default_generator().set_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        _core._default_generator(device).set_state(states["cuda"])
    if "python" in states:
        random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
