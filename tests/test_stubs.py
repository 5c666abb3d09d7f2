"""What editors and type checkers see of the package (tools/make_stubs.py): mypy and jedi read the build's stubs."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = """
import scaffolding as sf
import scaffolding.nn.functional as F
from scaffolding import nn
from scaffolding.data import DataLoader
from scaffolding.diffusion import DDIMScheduler, StableDiffusionPipeline

net = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
optimizer = sf.optim.AdamW(net.parameters(), lr=0.01)
x = sf.rand(64, 2)
reveal_type((x * 2 + 1).reshape(2, 64).softmax(dim=-1))
reveal_type(F.mse_loss(net(x), x.prod(dim=1, keepdim=True)))
reveal_type(nn.Linear(2, 3, bias=False))
reveal_type(nn.Linear(2, 3)(x))
reveal_type(nn.Conv2d(3, 8, (3, 3), padding="same", device="cpu", dtype=sf.float16).groups)
reveal_type(nn.Embedding(10, 4, padding_idx=None).padding_idx)
reveal_type(nn.MultiheadAttention(8, 2)(x, x, x)[0])
pipe = StableDiffusionPipeline.from_pretrained("emoji-128")
pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
"""
WRONG = {
    "import scaffolding as sf\\nsf.nn.Lineal(2, 3)": "Linear",
    "import scaffolding as sf\\nsf.zeros(2).reshap(2)": "reshape",
    "import scaffolding as sf\\nsf.nn.Linear(2, 3, bios=True)": "bios",
    "import scaffolding as sf\\nsf.nn.Conv2d('a', 3, 3)": '"str"; expected "int"',
    "import scaffolding as sf\\nsf.nn.Dropout(p='half')": '"str"; expected "float"',
    "import scaffolding as sf\\nsf.nn.LSTM(8, 'wide')": '"str"; expected "int"',
    "import scaffolding as sf\\nsf.nn.ReLU()([1.0, 2.0])": 'expected "Tensor"',
    "import scaffolding as sf\\nsf.nn.Linear(2, 3).in_features.shape": '"int" has no attribute "shape"',
}


@pytest.fixture(scope="module")
def stubs(build_dir):
    folder = pathlib.Path(build_dir).resolve() / "stubs"
    assert (folder / "scaffolding" / "py.typed").exists(), "the build wrote no stubs"
    return folder


def mypy(stubs, tmp_path, text):
    file = tmp_path / "program.py"
    file.write_text(text)
    environment = {**os.environ, "MYPYPATH": str(stubs)}
    command = [sys.executable, "-m", "mypy", "--cache-dir", stubs.parent / "mypy_cache", file]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path).stdout


def test_mypy_knows_the_names_and_types(stubs, tmp_path):
    said = mypy(stubs, tmp_path, PROGRAM)
    assert "error" not in said, said
    types = [line.rpartition("Revealed type is ")[2].strip('"') for line in said.splitlines() if "Revealed" in line]
    assert types == [
        *("scaffolding.Tensor", "scaffolding.Tensor", "scaffolding.nn.Linear", "scaffolding.Tensor"),
        *("int", "int | None", "scaffolding.Tensor"),
    ]


@pytest.mark.parametrize("text", WRONG)
def test_mypy_tells_what_is_wrong(stubs, tmp_path, text):
    said = mypy(stubs, tmp_path, text.replace("\\n", "\n") + "\n")
    assert "error" in said and WRONG[text] in said, said


@pytest.mark.parametrize(
    "text, completion",
    [
        ("import scaffolding as sf\nsf.nn.Lin", "Linear"),
        ("import scaffolding as sf\nsf.rel", "relu"),
        ("import scaffolding as sf\n(sf.zeros(2) + 1).resh", "reshape"),
        ("import scaffolding as sf\nsf.optim.Ada", "AdamW"),
        ("from scaffolding.diffusion import Stab", "StableDiffusionPipeline"),
        ("import scaffolding as sf\nsf.models.UNet2DC", "UNet2DConditionModel"),
    ],
)
def test_jedi_completes(stubs, text, completion):
    jedi = importlib.import_module("jedi")
    script = jedi.Script(text, project=jedi.Project(stubs, sys_path=[str(stubs)], smart_sys_path=False))
    assert completion in [c.name for c in script.complete()]


def test_every_public_module_has_a_stub(stubs):
    import scaffolding

    package = pathlib.Path(scaffolding.__file__).parent
    for source in package.rglob("*.py"):
        inner = source.relative_to(package)
        if not any(part.startswith("_") and part != "__init__.py" for part in inner.parts):
            assert (stubs / "scaffolding" / inner.with_suffix(".pyi")).exists(), inner
