"""The default generators."""

from . import _core

default_generator = _core._default_generator()


def manual_seed(seed):
    """Seeds the default generator of every device with seed, a whole number; returns the CPU's.

    >>> generator = sf.manual_seed(0)
    >>> sf.rand(2)
    tensor([0.4963, 0.7682])
    """
    _core._manual_seed(int(seed) & 0xFFFFFFFFFFFFFFFF)
    return default_generator


def initial_seed():
    """The seed of the CPU's default generator.

    >>> generator = sf.manual_seed(7)
    >>> sf.initial_seed()
    7
    """
    return default_generator.initial_seed()


def seed():
    """Seeds the default generators with a number from the system; returns it.

    >>> sf.seed() != sf.seed()
    True
    """
    value = int.from_bytes(__import__("os").urandom(8), "little") >> 1
    manual_seed(value)
    return value


def get_rng_state():
    """The state of the CPU's default generator, a uint8 tensor.

    >>> state = sf.get_rng_state()
    >>> a = sf.rand(3)
    >>> sf.set_rng_state(state)
    >>> sf.equal(a, sf.rand(3))
    True
    """
    return default_generator.get_state()


def set_rng_state(new_state):
    """Restores new_state, which get_rng_state gave.

    >>> state = sf.get_rng_state()
    >>> a = sf.rand(3)
    >>> sf.set_rng_state(state)
    >>> sf.equal(a, sf.rand(3))
    True
    """
    default_generator.set_state(new_state)
