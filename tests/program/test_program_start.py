"""How the program begins: OpenMP's threads wait shortly, without a second start of the program where that is possible,
and what it starts finds its own environment.
"""

import os
import re

import pytest

OTHERS = {"PATH": os.environ["PATH"], "OMP_DISPLAY_ENV": "VERBOSE"}


@pytest.mark.parametrize(
    "environment, starts",
    [
        ({"PWD": "/here"}, 1),
        ({"_": "/a/shell", "HOME": "/there", "SHLVL": "2"}, 1),
        ({"HOME": "/there"}, 2),  # no entry to lend
        ({"PWD": "/here", "GOMP_SPINCOUNT": "77"}, 1),
        ({"PWD": "/here", "OMP_WAIT_POLICY": "passive"}, 1),
    ],
)
def test_openmp_waits_shortly_and_the_environment_stays(program, environment, starts):
    done = program("launch", "--nproc-per-node", 1, "--no-python", "/usr/bin/env", env=environment | OTHERS)
    assert done.returncode == 0, done.stderr
    read = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    assert len(read) == starts, done.stderr  # GNU OpenMP tells it once in each
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert environment.items() <= seen.items()
    if "OMP_WAIT_POLICY" in environment:
        assert read == ["0"] and "GOMP_SPINCOUNT" not in seen
    elif "GOMP_SPINCOUNT" in environment:
        assert read == ["77"]
    else:
        assert 500 <= int(read[-1]) <= 50000 and seen["GOMP_SPINCOUNT"] == read[-1]
