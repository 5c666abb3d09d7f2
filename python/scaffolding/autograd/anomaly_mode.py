"""Finding the op that made the first NaN."""

from .. import _core


class detect_anomaly:
    """Context manager: backward names the op whose gradient is the first with a NaN. check_nan=False: it does nothing.

    >>> x = sf.tensor(-1., requires_grad=True)
    >>> with sf.autograd.detect_anomaly():
    ...     x.sqrt().backward()  # raises
    Traceback (most recent call last):
        ...
    RuntimeError: detect_anomaly: sqrt: output 0 of shape [] has 1 NaN and 0 Inf; its inputs (float32[]) were finite
    """

    def __init__(self, check_nan=True):
        self._wanted = bool(check_nan)

    def __enter__(self):
        self._before = _core._set_anomaly(self._wanted)

    def __exit__(self, *_):
        _core._set_anomaly(self._before)


class set_detect_anomaly(detect_anomaly):
    """As detect_anomaly(check_nan) where mode is True, in force from the call on."""

    def __init__(self, mode, check_nan=True):
        super().__init__(mode and check_nan)
        self._before = _core._set_anomaly(self._wanted)

    def __enter__(self):
        pass
