"""Queues of work on a GPU, and places in them."""

import contextlib

from .. import _core
from .devices import device_index


class Stream:
    """A queue of a GPU (device; None: the current one) whose work runs in order, beside that of other streams. Use as
    `with sf.cuda.stream(s):`. A tensor made on one stream and used on another needs wait_stream or wait_event between
    them, and x.record_stream(s) where it is freed before the other has done with it."""

    def __init__(self, device=None):
        self.device_index = device_index(device)
        self._handle = _core._cuda_make_stream(self.device_index)
        self._owned = True

    @classmethod
    def _of(cls, index, handle):
        self = cls.__new__(cls)
        self.device_index, self._handle, self._owned = index, handle, False
        return self

    @property
    def device(self):
        """The stream's device."""
        return _core.device("cuda", self.device_index)

    @property
    def cuda_stream(self):
        """The runtime's handle, a number; 0 for the default stream."""
        return self._handle

    def synchronize(self):
        """Waits until everything on the stream is done."""
        _core._cuda_synchronize_stream(self.device_index, self._handle)

    def query(self):
        """Whether everything on the stream is done."""
        return _core._cuda_stream_done(self.device_index, self._handle)

    def record_event(self, event=None):
        """Records an event (a new one where none is given) at the stream's end and returns it."""
        event = event or Event(device=self.device_index)
        event.record(self)
        return event

    def wait_event(self, event):
        """Work given to the stream from now on runs after the event."""
        if event._recorded:
            _core._cuda_stream_wait(self.device_index, self._handle, event._handle)

    def wait_stream(self, stream):
        """Work given to the stream from now on runs after what the other has been given."""
        self.wait_event(stream.record_event())

    def __eq__(self, other):
        return isinstance(other, Stream) and (self.device_index, self._handle) == (other.device_index, other._handle)

    def __hash__(self):
        return hash((self.device_index, self._handle))

    def __repr__(self):
        return f"<Stream of cuda:{self.device_index} at {self._handle:#x}>"

    def __del__(self):
        if getattr(self, "_owned", False):
            _core._cuda_destroy_stream(self.device_index, self._handle)


class Event:
    """A place in a stream: whether and when it was passed. enable_timing=True for elapsed_time. device: the GPU of the
    stream that records it; None: the current one."""

    def __init__(self, enable_timing=False, device=None):
        self.device_index = device_index(device)
        self._recorded = False
        self._timing = enable_timing
        self._handle = _core._cuda_make_event(self.device_index, enable_timing)

    def record(self, stream=None):
        """Marks the end of a stream, the current one unless given."""
        stream = stream or current_stream(self.device_index)
        _core._cuda_record_event(self.device_index, self._handle, stream._handle)
        self._recorded = True

    def wait(self, stream=None):
        """Work given to the stream from now on, the current one unless given, runs after the event."""
        (stream or current_stream(self.device_index)).wait_event(self)

    def synchronize(self):
        """Waits until the event was passed."""
        if self._recorded:
            _core._cuda_synchronize_event(self.device_index, self._handle)

    def query(self):
        """Whether the event was passed, or never recorded."""
        return not self._recorded or _core._cuda_event_done(self.device_index, self._handle)

    def elapsed_time(self, end_event):
        """Milliseconds from this event to a later one, end_event; both recorded and passed."""
        for event in (self, end_event):
            if not event._timing:
                raise RuntimeError("Event.elapsed_time: both events must be made with enable_timing=True")
            if not event._recorded:
                raise RuntimeError("Event.elapsed_time: both events must be recorded first")
        return _core._cuda_milliseconds_between(self.device_index, self._handle, end_event._handle)

    def __del__(self):
        if hasattr(self, "_handle"):
            _core._cuda_destroy_event(self.device_index, self._handle)


def current_stream(device=None):
    """The stream on which this thread's work is queued.

    Args:
        device: which GPU; None: the current one
    """
    index = device_index(device)
    return Stream._of(index, _core._cuda_current_stream(index))


def default_stream(device=None):
    """The stream of all threads that chose none.

    Args:
        device: which GPU; None: the current one
    """
    return Stream._of(device_index(device), 0)


@contextlib.contextmanager
def stream(stream):
    """Work of the block goes to this stream; None changes nothing."""
    if stream is None:
        yield
        return
    before = _core._cuda_current_stream(stream.device_index)
    _core._cuda_set_current_stream(stream.device_index, stream._handle)
    try:
        yield
    finally:
        _core._cuda_set_current_stream(stream.device_index, before)
