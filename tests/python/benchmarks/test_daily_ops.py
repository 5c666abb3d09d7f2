"""benchmarks/daily_ops.py: every row is a call that we have, and a round without PyTorch prints them."""

import importlib.util
import os
import subprocess
import sys

import folders

import scaffolding as sf

SCRIPT = folders.ROOT / "benchmarks" / "daily_ops.py"


def test_rows_are_calls(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("daily_ops", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.rows(sf)
    assert len(rows) > 250
    with sf.no_grad():
        for name, call in rows.items():
            assert call() is not None, name


def test_a_round_prints_its_rows(build_dir):
    environment = os.environ | {"PYTHONPATH": str(build_dir / "python")}
    command = [sys.executable, SCRIPT, "--rounds", "1", "--threads", "1", "--row", "var of rows"]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    names = [line.split("  ")[0] for line in text.splitlines()]
    assert names == ["var of rows float32", "var of rows bfloat16"], text
