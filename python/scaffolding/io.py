"""Checkpoint files of other programs."""

__all__ = ["Placeholder"]


class Placeholder:
    """Stands for an object of a checkpoint whose class is not known here: its name, arguments and state, and nothing else.

    Hashable by identity, since checkpoints have classes as keys.
    """

    def __init__(self, name, arguments=(), state=None):
        self.name, self.arguments, self.state = name, arguments, state

    def __repr__(self):
        return f"Placeholder({self.name!r})"
