"""Future: the value of a call that may still be under way, for communication hooks."""

from ._calls import Work


class Future:
    """What wait() waits for and then() goes on from, in the thread that waits."""

    def __init__(self, wait=None):
        self._wait, self._value, self._done = wait, None, False

    def set_result(self, result):
        """Makes the value, result, known; of a Future that waits for nothing."""
        self._value, self._done = result, True

    def wait(self):
        """The value, once it is there."""
        if not self._done:
            if self._wait is None:
                raise RuntimeError("Future: set_result has not been called")
            self._value, self._done = self._wait(), True
        return self._value

    def value(self):
        """A list of the value, as PyTorch's futures of collective calls have it."""
        value = self.wait()
        return value if isinstance(value, list) else [value]

    def done(self):
        """Whether the value is known here."""
        return self._done

    def then(self, callback):
        """A Future of callback(this one), which is called when it is waited for."""

        def go_on():
            self.wait()
            return callback(self)

        return Future(go_on)


def future_of(work, result):
    """The Future of a Work whose result is in a tensor."""

    def wait():
        if work is not None:
            work.wait()
        return [result]

    return Future(wait)


Work.get_future = lambda self: Future(lambda: self.wait() and None)
Work.get_future.__doc__ = "A Future that waits for this call."
