"""The programs in examples/ run, and learn something."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def run(*command):
    # One thread: the networks are small, and what they learn is the same on every machine.
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=os.environ | {"SF_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_train_digits(tmp_path):
    pytest.importorskip("scaffolding")
    shown = run(sys.executable, EXAMPLES / "train_digits.py", tmp_path)
    assert float(re.search(r"400 steps, best accuracy ([\d.]+)", shown)[1]) > 0.9, shown
    assert (tmp_path / "checkpoint-400").is_dir() and (tmp_path / "metrics.jsonl").exists()


def test_train_mlp(build_dir, tmp_path):
    program = build_dir / "examples" / "train_mlp"
    if not program.exists():
        pytest.skip(f"{program} is not built: -DSF_BUILD_EXAMPLES=ON")
    assert re.search(r"1920 steps, mean squared error", run(program, tmp_path))
    assert (tmp_path / "checkpoint-1920").is_dir()
