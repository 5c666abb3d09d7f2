"""Finding the op that made the first NaN."""

from .. import _core


class detect_anomaly:
    """Context manager: backward names the op whose gradient is the first with a NaN."""

    def __init__(self, check_nan=True):
        self._wanted = bool(check_nan)

    def __enter__(self):
        self._before = _core._set_anomaly(self._wanted)

    def __exit__(self, *_):
        _core._set_anomaly(self._before)


class set_detect_anomaly(detect_anomaly):
    """As detect_anomaly(mode), in force from the call on."""

    def __init__(self, mode, check_nan=True):
        super().__init__(mode and check_nan)
        self._before = _core._set_anomaly(self._wanted)

    def __enter__(self):
        pass
