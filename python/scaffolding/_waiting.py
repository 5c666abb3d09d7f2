"""Loads the C++ part with short waits of OpenMP's threads: see scaffolding/core/spin_count.h.

Who sets one of these variables decides alone.
"""

import os

if os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
    from . import _core  # noqa: F401
else:
    from ._spin_count import spin_count

    os.environ["GOMP_SPINCOUNT"] = str(spin_count())
    try:
        from . import _core  # noqa: F401
    finally:
        del os.environ["GOMP_SPINCOUNT"]  # programs that are started from here do not inherit it
