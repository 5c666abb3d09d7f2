"""What every source file that includes scaffolding.h has to compile."""

import importlib.util
import shutil
import subprocess

import folders
import pytest

MOST = 2100  # functions beyond those of the standard headers, by GCC 12: 1935


@pytest.fixture
def header():
    spec = importlib.util.spec_from_file_location("public_header", folders.ROOT / "benchmarks" / "public_header.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_public_header_stays_light(header):
    gcc = shutil.which("g++")
    if not gcc or "Free Software Foundation" not in subprocess.check_output([gcc, "--version"], text=True):
        pytest.skip("counts are those of GCC")
    texts = header.sources()
    ours = header.functions("g++", texts["scaffolding.h"]) - header.functions("g++", texts["standard"])
    assert 0 < ours <= MOST, (
        f"scaffolding.h makes every file of every user compile {ours} functions, {MOST} at most: inline constructors, "
        "destructors and defaults of members bring those of their containers; define them in the .cpp "
        "(benchmarks/public_header.py)"
    )
