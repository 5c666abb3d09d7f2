"""What the documents and tools say holds: README's programs run, tools/new_op.py writes files that compile."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("README.md", "python"))))
def test_readme_python(number, tmp_path):
    pytest.importorskip("scaffolding")
    program = f"import os, scaffolding\nos.chdir({str(tmp_path)!r})\n" + blocks("README.md", "python")[number]  # it may write files
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_readme_cpp_is_the_program_that_is_tested():
    programs = blocks("README.md", "cpp")
    assert programs == [(ROOT / "tests/find_package/main.cpp").read_text()]


def test_readme_cmake_is_the_project_that_is_tested():
    (text,) = blocks("README.md", "cmake")
    assert text in (ROOT / "tests/find_package/CMakeLists.txt").read_text()


def test_makefile_has_the_documented_targets():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        for target in re.findall(r"`make ([a-z-]+)", (ROOT / document).read_text()):
            assert target in targets, f"{document} names `make {target}`"


def test_new_op_writes_files_that_compile(tmp_path):
    ops = tmp_path / "scaffolding/ops"
    ops.mkdir(parents=True)
    shutil.copy(ROOT / "scaffolding/ops/ops.h", ops)
    command = [sys.executable, ROOT / "tools/new_op.py", "sample_of_an_op", "--root", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    assert '#include "scaffolding/ops/sample_of_an_op/sample_of_an_op.h"' in (ops / "ops.h").read_text()
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode != 0 and "exists already" in again.stderr
    compiler = shutil.which("c++") or shutil.which("g++")
    for source in sorted((ops / "sample_of_an_op").glob("*.cpp")):
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{tmp_path}", f"-I{ROOT}", source], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
