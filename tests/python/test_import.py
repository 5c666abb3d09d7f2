"""The package imports alone, and nothing that is slow to import."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_nothing_slow_is_imported():  # the time itself is a row of benchmarks/overhead.py
    slow = {"numpy", "inspect", "socket", "asyncio", "multiprocessing", "subprocess", "unittest", "importlib.metadata"}
    loaded = run("import sys; before = set(sys.modules); import scaffolding; print(*set(sys.modules) - before)").split()
    assert "scaffolding" in loaded and not slow & set(loaded)


LATER = "data diffusion distributed hub io models profiler random safetensors special testing tokenizers train".split()


@pytest.mark.parametrize("package", LATER)
def test_packages_are_imported_when_they_are_asked_for(package):
    run(
        f"import sys, scaffolding as sf; assert 'scaffolding.{package}' not in sys.modules or {package!r} in "
        f"('distributed', 'io'); assert '{package}' in dir(sf) and sf.{package} is sys.modules['scaffolding.{package}']"
    )
    missed = "try: it.StableDifusionPipeline\nexcept AttributeError as e: print(e)"
    told = run(f"import scaffolding.{package} as it\n{missed}")
    assert told.startswith(f"module 'scaffolding.{package}' has no attribute 'StableDifusionPipeline'; did you mean")


def test_threads_wait_shortly_unless_the_user_says_otherwise():
    def spins(**extra):
        code = "import os, scaffolding; print(os.environ.get('GOMP_SPINCOUNT'))"
        environment = (
            {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
            | {"OMP_DISPLAY_ENV": "VERBOSE"}
            | extra
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
        shown = re.search(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
        if not shown:
            pytest.skip("OpenMP is not GNU's")
        return done.stdout.strip(), shown[1]

    seen, waits = spins()
    assert seen == "None" and 500 <= int(waits) <= 50000
    assert spins(GOMP_SPINCOUNT="77") == ("77", "77")
    assert spins(OMP_WAIT_POLICY="passive") == ("None", "0")


def test_submodules():
    run(
        "import scaffolding.nn.functional as F, scaffolding.nn as nn, scaffolding.autograd, "
        "scaffolding.utils.checkpoint, scaffolding.backends.mps,"
        " scaffolding.backends.cuda, scaffolding.backends.cudnn; import scaffolding as sf; "
        "sf.backends.cudnn.is_available(), sf.cuda.device_count()"
    )


def test_layers_know_nothing_of_cuda():
    package = pathlib.Path(__file__).parents[2] / "python" / "scaffolding"
    for file in (package / "nn").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            assert not any("cuda" in part.split(".") for part in (*names, module)), f"{file}: cuda.graphs imports nn"


def test_backends_describe_themselves():
    import scaffolding as sf

    cpu = sf.backends.cpu
    assert "native" in cpu.providers() and cpu.instruction_sets()[0] == "base"
    assert any("float32" in unit for unit in cpu.units()) and min(cpu.units().values()) > 0
    before = cpu.memory_allocated()
    x = sf.zeros(1 << 20)
    assert cpu.memory_allocated() >= before + x.nbytes and cpu.max_memory_allocated() >= cpu.memory_allocated()
    assert (
        sf.cuda.is_available() == (sf.cuda.device_count() > 0)
        and sf.backends.cuda.is_available() == sf.cuda.is_available()
    )
    assert isinstance(sf.backends.mps.is_available(), bool) and isinstance(sf.backends.cudnn.is_available(), bool)
    assert sf.cuda.is_available() or sf.cuda.why_not()
