"""tools/gpu_check.sh: what it says where it cannot begin, and that a stage which hangs costs itself alone."""

import io
import os
import subprocess
import sys
import tarfile

import pytest
from folders import ROOT

from scaffolding import cuda


def check(out, *arguments, **environment):
    command = [ROOT / "tools" / "gpu_check.sh", *map(str, arguments)]
    variables = os.environ | {"OUT": str(out), "PYTHON": sys.executable} | environment
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def test_a_pack_for_another_python_is_refused(tmp_path):
    pack = tmp_path / "pack.tar.xz"
    with tarfile.open(pack, "w:xz") as archive:
        entry = tarfile.TarInfo("python_version")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"3.3\n"))
    done = check(tmp_path / "out", "--pack", pack)
    assert done.returncode == 1 and f"is for Python 3.3, and {sys.executable} is 3." in done.stdout
    done = check(tmp_path / "out", "--pack", tmp_path / "none")
    assert done.returncode == 1 and "tools/gpu_pack.sh writes it" in done.stdout
    assert check(tmp_path / "out", "--fast").returncode == 2


def test_a_folder_without_tests_is_refused(tmp_path):
    done = check(tmp_path / "out", "--build", tmp_path)
    assert done.returncode == 1 and "has no scaffolding_tests" in done.stdout


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_run(tmp_path, build_dir):
    if not (build_dir / "scaffolding_tests").exists():
        pytest.skip("the C++ tests are not built")
    done = check(tmp_path / "out", "--build", build_dir)
    assert (
        done.returncode == 1
        and "devices: FAILED" in done.stdout
        and "nothing is proven" in done.stdout
        and "ops:" not in done.stdout
    )


@pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
def test_a_stage_that_hangs_is_ended_and_the_summary_comes_all_the_same(tmp_path, build_dir):
    python = tmp_path / "python"  # which never comes back from pytest
    python.write_text(f'#!/bin/sh\n[ "$2" = pytest ] && exec sleep 100000\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = check(
        tmp_path / "out", "--build", build_dir, "--stages", "devices,python", "--seconds", 20, PYTHON=str(python)
    )
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert done.returncode == 1 and summary.strip() in done.stdout
    assert "python: ENDED after" in summary
    assert "devices: ok" in summary and cuda.get_device_name(0) in summary
    assert "=== python" in (tmp_path / "out" / "logs.txt").read_text()
