"""How tensors are printed."""

from . import _core

_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Set how tensors are printed.

    precision: digits after the point (4). threshold: more elements than this are summarised (1000).
    edgeitems: entries shown at each end of a summarised dimension (3). linewidth: characters per line (80).
    profile: "default", "short" or "full". sci_mode: scientific notation, decided from the values when None.

    >>> sf.set_printoptions(precision=2)
    >>> sf.tensor([1 / 3])
    tensor([0.33])
    >>> sf.set_printoptions(precision=4)
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    options = dict.fromkeys(given)
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile must be one of {sorted(_PROFILES)}, got {profile!r}")
        options.update(_PROFILES[profile])
    options.update({name: value for name, value in given.items() if value is not None})
    if options["threshold"] is not None:
        options["threshold"] = float(options["threshold"])
    _core._set_printoptions(**options, sci_mode=sci_mode)


def get_printoptions():
    """The options in force, as keywords for set_printoptions.

    >>> sf.get_printoptions()["precision"]
    4
    """
    return dict(zip(("precision", "threshold", "edgeitems", "linewidth", "sci_mode"), _core._get_printoptions()))


class printoptions:
    """Context manager: set_printoptions(**options) for a block.

    >>> with sf.printoptions(precision=2):
    ...     print(sf.tensor([3.14159]))
    tensor([3.14])
    """

    def __init__(self, **options):
        self._options = options

    def __enter__(self):
        self._before = get_printoptions()
        set_printoptions(**self._options)
        return self

    def __exit__(self, *_):
        set_printoptions(**self._before)
