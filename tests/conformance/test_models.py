"""Programs written against torch run with the imports renamed and give torch's numbers
(tests/golden/conformance.json).
"""

import json
import pathlib
import re
import types

import pytest

import scaffolding as sf

HERE = pathlib.Path(__file__).resolve().parent
TORCH = json.loads((HERE.parent / "golden" / "conformance.json").read_text())


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors: a second thread would only wait, long where the machine is busy."""
    threads = sf.get_num_threads()
    sf.set_num_threads(1)
    yield
    sf.set_num_threads(threads)


def renamed(name):
    """The program as a module, with `import torch` read as `import scaffolding as torch`."""
    source = (HERE / f"{name}.py").read_text()
    assert len(source.split("\n")) <= 151
    source = re.sub(r"^import torch$", "import scaffolding as torch", source, flags=re.MULTILINE)
    source = re.sub(r"^(import|from) torch\.", r"\1 scaffolding.", source, flags=re.MULTILINE)
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return module


def check_start(got, want):
    """Initial weights come from torch's random numbers: a difference here is no matter of training."""
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


def test_transformer():
    want, got = TORCH["transformer"], renamed("transformer").main()
    check_start(got["start"], want["start"])
    assert len(got["losses"]) == 20
    assert got["losses"] == pytest.approx(want["losses"], rel=1e-4)
    assert got["norms"] == pytest.approx(want["norms"], rel=2e-3)
    assert got["generated"] == want["generated"] and got["rate"] == pytest.approx(want["rate"])


def test_resnet():
    want, got = TORCH["resnet"], renamed("resnet").main()
    check_start(got["start"], want["start"])
    assert len(got["losses"]) == 20
    assert got["losses"] == pytest.approx(want["losses"], rel=1e-4)
    assert got["logits"] == pytest.approx(want["logits"], rel=5e-3, abs=5e-3)
    assert (
        got["accuracy"] == want["accuracy"]
        and got["batches"] == 20
        and got["rate"] == pytest.approx(want["rate"], abs=1e-12)
    )
