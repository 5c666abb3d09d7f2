"""Loads the C++ part with short waits of OpenMP's threads.

GNU OpenMP reads its environment when it is loaded and has no function for this. By default a thread spins 300 000
pauses, about 10 ms, before it sleeps; while another program has one of the cores, every parallel region ends with such
a wait (beside a compiler, a training step of ResNet-18 took eight times as long). 2000 pauses, about 0.1 ms, outlast
the gaps between the kernels of a step. Who sets one of these variables decides alone.
"""

import os

if os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
    from . import _core  # noqa: F401
else:
    os.environ["GOMP_SPINCOUNT"] = "2000"
    try:
        from . import _core  # noqa: F401
    finally:
        del os.environ["GOMP_SPINCOUNT"]  # programs that are started from here do not inherit it
