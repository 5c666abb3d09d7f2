"""Ctrl-C during a run."""

import contextlib
import signal
import threading


class StopOnInterrupt:
    """In the block, the first SIGINT calls note(); a second one does what it did before: KeyboardInterrupt.

    Python handles signals in the main thread only: elsewhere this does nothing.
    """

    def __init__(self, note):
        self._note, self._before = note, None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._first)

    def _first(self, number, frame):
        self._restore()
        with contextlib.suppress(RuntimeError):  # the signal came while the same file was being written to
            self._note()

    def _restore(self):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def __exit__(self, *exception):
        self._restore()
