"""set_float32_matmul_precision, and the processor's tiles (AMX) that it speaks of."""

import os
import subprocess
import sys

import pytest

import scaffolding as sf


@pytest.fixture(autouse=True)
def _as_it_was():
    before = sf.get_float32_matmul_precision()
    yield
    sf.set_float32_matmul_precision(before)


def test_the_highest_precision_is_the_first():
    code = "import scaffolding as sf; print(sf.get_float32_matmul_precision(), sf.backends.cuda.matmul.allow_tf32)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "highest False\n"


@pytest.mark.parametrize("name", ["highest", "high", "medium"])
def test_a_precision_is_what_was_set(name):
    sf.set_float32_matmul_precision(name)
    assert sf.get_float32_matmul_precision() == name
    sf.set_float32_matmul_precision(precision=name)
    assert sf.backends.cuda.matmul.allow_tf32 is (name != "highest")


def test_tf32_is_a_precision():
    sf.set_float32_matmul_precision("medium")
    sf.backends.cuda.matmul.allow_tf32 = True
    assert sf.get_float32_matmul_precision() == "medium", "it rounded to TF32 before"
    sf.backends.cuda.matmul.allow_tf32 = False
    assert sf.get_float32_matmul_precision() == "highest"
    sf.backends.cuda.matmul.allow_tf32 = True
    assert sf.get_float32_matmul_precision() == "high"


@pytest.mark.parametrize("name", ["", "HIGH", "low", "ieee", "highest "])
def test_an_unknown_precision_is_refused(name):
    sf.set_float32_matmul_precision("high")
    rule = f"^set_float32_matmul_precision: must be highest, high or medium, got '{name}'$"
    with pytest.raises(ValueError, match=rule):
        sf.set_float32_matmul_precision(name)
    assert sf.get_float32_matmul_precision() == "high"
    for wrong in (None, 1, b"high"):
        with pytest.raises(TypeError):
            sf.set_float32_matmul_precision(wrong)


def test_errors_are_those_of_the_precision():
    sf.manual_seed(1)
    a, b = sf.randn(64, 300), sf.randn(300, 320)
    want, terms = a.double() @ b.double(), a.double().abs() @ b.double().abs()

    def error(name):
        sf.set_float32_matmul_precision(name)
        return ((a @ b - want).abs() / terms).max().item()

    assert error("highest") < 2**-21 and error("high") < 2**-16 and error("medium") < 2**-8
    if "avx512amx" in sf.backends.cpu.instruction_sets():
        assert error("highest") < 2**-21 < error("high") < 2**-16 < error("medium")


# A process that has a signal stack on which tiles cannot be saved does not get them.
SMALL_STACK = """
import ctypes

class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

memory = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(memory), 0, len(memory))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
import scaffolding as sf

assert "avx512amx" not in sf.backends.cpu.instruction_sets()
a, b = sf.randn(64, 64), sf.randn(64, 64)
assert (a @ b - (a.double() @ b.double())).abs().max().item() < 1e-4
print("fine")
"""


def test_a_process_that_cannot_have_tiles_does_without():
    done = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("isa", ["base", "avx512bf16", "avx512amx", "amx_emulated"])
def test_an_instruction_set_is_a_limit(isa):
    code = "import scaffolding as sf; print(*sf.backends.cpu.instruction_sets())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"SF_ISA": isa}, check=True, capture_output=True, text=True
    )
    names = ["base", "avx2", "avx512", "avx512bf16", "avx512amx"]
    allowed = names[: names.index("avx512bf16" if isa == "amx_emulated" else isa) + 1]
    assert done.stdout.split() == names[: len(done.stdout.split())] and set(done.stdout.split()) <= set(allowed)


@pytest.mark.parametrize(
    ("isa", "said"),
    [
        (
            "avx9",
            "SF_ISA: must be base, avx2, avx512, avx512bf16, avx512amx or amx_emulated, got 'avx9'; going on with ",
        ),
        ("avx512amx", "SF_ISA: there is no avx512amx here"),
    ],
)
def test_an_instruction_set_that_cannot_be_had_is_told(isa, said):
    code = "import scaffolding as sf; print(*sf.backends.cpu.instruction_sets(), (sf.ones(3, 3) @ sf.ones(3, 3)).sum())"
    plain, asked = (
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"SF_ISA": wish}, check=True, capture_output=True, text=True
        )
        for wish in ("", isa)
    )
    assert asked.stdout == plain.stdout and plain.stderr == ""  # the next best, and one sentence
    if isa in plain.stdout.split():
        assert asked.stderr == ""
    else:
        best = plain.stdout.split("tensor")[0].split()[-1]
        assert asked.stderr.startswith(said) and asked.stderr.endswith(f"going on with {best}\n")
        assert asked.stderr.count("\n") == 1
