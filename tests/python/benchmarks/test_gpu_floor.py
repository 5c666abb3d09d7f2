"""benchmarks/gpu_floor.py in the dry emulator: how many launches the networks ask for, as upper bounds,
so that a fusion that gets lost is noticed.
"""

import os
import re
import subprocess
import sys

import folders
import pytest

from scaffolding import cuda

SCRIPT = folders.ROOT / "benchmarks" / "gpu_floor.py"
LIBRARY = os.environ.get("SF_CUDA_LIBRARY", "")


@pytest.fixture
def networks(monkeypatch):
    """benchmarks/gpu/networks.py, under its own name."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent / "gpu"))
    import networks

    yield networks
    for name in ("networks", "operators", "work"):
        sys.modules.pop(name, None)


def counted(row, *options, **environment):
    """What the script prints of the row."""
    if "cuda_emulator" not in LIBRARY:
        pytest.skip(f"unproven here: counts are the emulator's; {cuda.why_not()}")
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--row", row, *options],
        env={**os.environ, "SF_CUDA_EMULATOR_DRY": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


# The operations are those of the networks, whatever the kernels: they must not change.
@pytest.mark.parametrize(
    ("row", "most_nodes", "gflop"),
    [
        ("UNet SD2.1 b2 64x64", 385, 1600.6),
        ("UNet SDXL b2 128x128", 1026, 13417.5),
        ("UNet SD2.1 b2 64x64, float8", 385, 1600.6),
        ("UNet SDXL b2 128x128, float8", 1026, 13417.5),
        ("VAE decode 512", 106, 2514.5),
        ("VAE decode 1024", 127, 10470.4),
        ("training SD2.1 b16", 1740, 39545.3),
        ("group_norm + SiLU [2, 320, 128, 128]", 1, 0.0),
        ("train step 256-512-10 batch 32", 15, 0.0),
    ],
)
def test_launches_stay_below_what_they_were(row, most_nodes, gflop, networks):
    said = counted(row)
    nodes, work = re.search(rf"^{re.escape(row)}: (\d+) nodes, ([\d.]+) GFLOP", said, re.MULTILINE).groups()
    assert float(work) == pytest.approx(gflop, rel=1e-4)
    assert 0 < int(nodes) <= most_nodes, said
    if row.endswith("float8"):  # what the floors of benchmarks/gpu take to be so
        product = re.search(r"^  scaled_product .* ([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+$", said, re.MULTILINE)
        flop = 2 * networks.FLOAT8_FLOP["sdxl" if "SDXL" in row else "sd21"]
        assert 1e9 * float(product[1]) == pytest.approx(flop, rel=1e-4)


# What a model expects is worth something as long as it says of networks what was measured of them. Set on SDXL's.
@pytest.mark.parametrize(
    ("row", "within"),
    [("UNet SDXL b2 128x128", 0.02), ("UNet SD2.1 b2 64x64", 0.05), ("VAE decode 1024", 0.1), ("training SD2.1", 0.1)],
)
def test_the_model_says_what_was_measured(row, within):
    said = counted(row, "--estimate", SF_CUDA_WGMMA="off", SF_CUDA_PDL="off")
    found = re.search(r"no measurement: ([\d.]+) ms; measured with [a-z ]+: ([\d.]+) ms", said)
    estimated, measured = map(float, found.groups())
    assert estimated == pytest.approx(measured, rel=within), said


# Of the kernels that our own products are among: those that may start early, and what stands behind such.
@pytest.mark.parametrize(
    ("row", "least_early", "least_behind", "most_nodes"),
    [("UNet SD2.1 b2 64x64", 312, 258, 369), ("UNet SDXL b2 128x128", 908, 863, 956)],
)
def test_kernels_that_may_start_early_stay_so(row, least_early, least_behind, most_nodes):
    said = counted(row, "--dependent", SF_CUDA_WGMMA="on")
    found = re.search(r"(\d+) of (\d+) kernels of ours may start early, (\d+) of (\d+) nodes", said)
    early, kernels, behind, nodes = map(int, found.groups())
    assert least_early <= early <= kernels and least_behind <= behind < nodes <= most_nodes, said
