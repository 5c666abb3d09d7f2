"""The package imports quickly, alone, and without NumPy."""

import subprocess
import sys


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_numpy_is_not_imported():
    assert run("import sys, scaffolding; print('numpy' in sys.modules, 'inspect' in sys.modules)") == "False False"


def test_import_takes_less_than_a_tenth_of_a_second():
    code = "import time; t = time.process_time(); import scaffolding; print(time.process_time() - t)"
    assert min(float(run(code)) for _ in range(5)) < 0.1


def test_submodules():
    run(
        "import scaffolding.nn.functional as F, scaffolding.nn as nn, scaffolding.autograd, scaffolding.utils.checkpoint, scaffolding.backends.mps,"
        " scaffolding.backends.cuda, scaffolding.backends.cudnn; import scaffolding as sf; sf.backends.cudnn.is_available(), sf.cuda.device_count()"
    )


def test_backends_describe_themselves():
    import scaffolding as sf

    cpu = sf.backends.cpu
    assert "native" in cpu.providers() and cpu.instruction_sets()[0] == "base"
    before = cpu.memory_allocated()
    x = sf.zeros(1 << 20)
    assert cpu.memory_allocated() >= before + x.nbytes and cpu.max_memory_allocated() >= cpu.memory_allocated()
    assert sf.cuda.is_available() == (sf.cuda.device_count() > 0) and sf.backends.cuda.is_available() == sf.cuda.is_available()
    assert isinstance(sf.backends.mps.is_available(), bool) and isinstance(sf.backends.cudnn.is_available(), bool)
    assert sf.cuda.is_available() or sf.cuda.why_not()
