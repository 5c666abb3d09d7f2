"""Whether results repeat bit for bit, with torch's names.

On the CPU they do, for as many threads. On CUDA cuDNN has algorithms whose sums depend on the order of threads, which
backends.cudnn.deterministic leaves out.
"""

from . import _core

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "is_deterministic_algorithms_warn_only_enabled",
    "set_deterministic_debug_mode",
    "use_deterministic_algorithms",
]

_MODES = {"default": 0, "warn": 1, "error": 2}
_mode = 0
_before = False  # cudnn.deterministic, when it was switched on here


def use_deterministic_algorithms(mode, *, warn_only=False):
    """mode True: results repeat bit for bit on CUDA too. No op is refused or warned of, with warn_only or without: each
    has an algorithm for this.

    >>> sf.use_deterministic_algorithms(True)
    >>> sf.are_deterministic_algorithms_enabled()
    True
    >>> sf.use_deterministic_algorithms(False)
    """
    set_deterministic_debug_mode((1 if warn_only else 2) if mode else 0)


def are_deterministic_algorithms_enabled():
    """Whether use_deterministic_algorithms(True) was called."""
    return _mode != 0


def is_deterministic_algorithms_warn_only_enabled():
    """Whether that was with warn_only=True."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode):
    """use_deterministic_algorithms by debug_mode, a number or a name: 0 "default", 1 "warn", 2 "error".

    >>> sf.set_deterministic_debug_mode("warn")
    >>> sf.get_deterministic_debug_mode()
    1
    >>> sf.set_deterministic_debug_mode("default")
    """
    global _mode, _before
    mode = _MODES.get(debug_mode, debug_mode)
    if isinstance(mode, bool) or mode not in (0, 1, 2):
        raise ValueError(f"set_deterministic_debug_mode: must be 0, 1, 2 or one of {list(_MODES)}, got {debug_mode!r}")
    if mode and not _mode:
        _before = _core._cudnn_get("deterministic")
    if mode or _mode:
        _core._cudnn_set("deterministic", bool(mode) or _before)
    _mode = mode


def get_deterministic_debug_mode():
    """0, 1 or 2, as set_deterministic_debug_mode."""
    return _mode
