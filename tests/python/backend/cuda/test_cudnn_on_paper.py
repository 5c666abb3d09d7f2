"""Our convolutions and attention given to the real cuDNN, on a machine without a GPU: since 9.8 it plans for a GPU that
a description names. Every graph must find an engine, and the engine with its settings, as they are kept on disk, must
make the same plan again. What cuDNN compiles itself is compiled too, where the toolkit's stub of the driver is; only
the driver could load it. Nothing is computed here: the emulator's stand-in does that."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EMULATOR = pathlib.Path(os.environ.get("SF_CUDA_LIBRARY", ""))
TOOLKIT = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"

COMMON = {
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024,
    "warpSize": 32,
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152,
    "reservedSharedMemoryPerBlock": 1024,
    "memClockRateKHz": 3201000,
    "smClockRateKHz": 1980000,
    "driverVer": 13000,
    "cudaDeviceId": 0,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
}
GPUS = {
    "NVIDIA H200": {
        "deviceVer": 900,
        "multiProcessorCount": 132,
        "maxThreadsPerSM": 2048,
        "maxCtasPerSM": 32,
        "maxSharedMemoryPerBlockOptin": 232448,
        "l2CacheSize": 62914560,
        "totalGlobalMem": 150121545728,
    },
    "NVIDIA A100-SXM4-80GB": {
        "deviceVer": 800,
        "multiProcessorCount": 108,
        "maxThreadsPerSM": 2048,
        "maxCtasPerSM": 32,
        "maxSharedMemoryPerBlockOptin": 166912,
        "l2CacheSize": 41943040,
        "totalGlobalMem": 85899345920,
    },
    "NVIDIA GeForce RTX 4090": {
        "deviceVer": 890,
        "multiProcessorCount": 128,
        "maxThreadsPerSM": 1536,
        "maxCtasPerSM": 24,
        "maxSharedMemoryPerBlockOptin": 101376,
        "l2CacheSize": 75497472,
        "totalGlobalMem": 25769803776,
    },
}

COMPILED_FOR = "NVIDIA H200"  # the others would take a minute each

PROGRAM = """
import ctypes, os, sys
library = ctypes.CDLL(os.environ["SF_CUDA_LIBRARY"])
report = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda line: print(line.decode(), flush=True))
library.sf_cudnn_on_paper(sys.argv[1].encode(), sys.argv[2] == "compile", report)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Answers by name, for a GPU."""
    if not EMULATOR.name or b"sf_cudnn_on_paper" not in EMULATOR.read_bytes():
        pytest.skip("unproven here: needs the emulator's library")
    if not (TOOLKIT / "libcudnn.so.9").exists():
        pytest.skip(f"unproven here: there is no libcudnn.so.9 in {TOOLKIT}")
    stub = tmp_path_factory.mktemp("driver")
    if (TOOLKIT / "stubs" / "libcuda.so").exists():
        (stub / "libcuda.so.1").symlink_to(TOOLKIT / "stubs" / "libcuda.so")
    found = {}

    def ask(gpu):
        if gpu not in found:
            environment = os.environ | {"SF_CUDA_LIBRARY_PATH": str(TOOLKIT), "LD_LIBRARY_PATH": f"{stub}:{TOOLKIT}"}
            description = json.dumps({**COMMON, **GPUS[gpu], "deviceName": gpu})
            how = "compile" if gpu == COMPILED_FOR and ask.compiles else "look up"
            run = subprocess.run(
                [sys.executable, "-c", PROGRAM, description, how], env=environment, capture_output=True, text=True
            )
            assert run.returncode == 0, run.stderr
            first, *lines = run.stdout.strip().split("\n")
            if first.startswith(("missing", "failed")) or int(first.split()[1]) < 90800:
                pytest.skip(f"unproven here: {first}")
            found[gpu] = dict(line.split(": ", 1) for line in lines)
        return found[gpu]

    ask.compiles = (stub / "libcuda.so.1").exists()
    return ask


@pytest.fixture
def compiled(answers):
    """Answers for the GPU for which cuDNN compiles what it has not finished."""
    if not answers.compiles:
        pytest.skip("unproven here: there is no stub of the driver")
    return answers(COMPILED_FOR)


def is_planned(answer):
    return re.fullmatch(r"engine \d+, \d+ knobs, workspace \d+ bytes(, text of \d+ bytes)?", answer) is not None


COMPILED = "compiled, and no driver to load it"


@pytest.mark.parametrize("gpu", GPUS)
def test_every_convolution_has_a_finished_engine(answers, gpu):
    convolutions = {
        name: a
        for name, a in answers(gpu).items()
        if "attention" not in name and not name.startswith(("silu", "depthwise", "rivals"))
    }
    assert len(convolutions) > 150 and sum(name.startswith("network") for name in convolutions) > 60
    assert not {name: a for name, a in convolutions.items() if not is_planned(a)}
    # and its text, which is kept on disk, makes the same plan again
    assert not {name: a for name, a in convolutions.items() if "text of" not in a}


def test_attention_and_what_else_has_no_finished_engine_is_compiled(compiled):
    others = {name: a for name, a in compiled.items() if name.startswith(("attention", "silu", "depthwise"))}
    assert len(others) > 60
    assert not {name: a for name, a in others.items() if a != COMPILED and not is_planned(a)}


RIVALS = re.compile(r"(\d+) plans of \d+ proposals, workspace (?:unknown|(\d+) to (\d+) bytes), (\d+) ms")
MOST_WORKSPACE = {"SD 2.1": 8, "SDXL": 8, "decoder 512": 8, "decoder 1024": 24}  # MB


def test_networks_find_rivals_with_little_workspace(compiled, capsys):
    """What a benchmark would time, and what its plans take: of each network's convolutions and attention."""
    rows = {}
    for name, answer in compiled.items():
        if name.startswith("rivals, network "):
            network, layer = name.removeprefix("rivals, network ").split(", ", 1)
            found = RIVALS.fullmatch(answer)
            assert found, f"{name}: {answer}"
            kind = "attention" if "attention" in layer else "convolutions"
            rows.setdefault((network, kind), []).append([int(x or 0) for x in found.groups()])
    assert {network for network, _ in rows} == set(MOST_WORKSPACE) and len(rows) == 6
    with capsys.disabled():
        print()
        for (network, kind), layers in rows.items():
            plans, first, most, ms = zip(*layers, strict=True)
            line = f"{network}, {kind} of {len(layers)} kinds: {min(plans)} to {max(plans)} rivals each, "
            line += f"made in {sum(ms) / 1000:.1f} s"
            print(line + f", workspace {max(first)} bytes, of a rival {max(most)}" * (kind == "convolutions"))
    for (network, _), layers in rows.items():
        for plans, _, most, _ in layers:
            assert plans >= 4
            assert most <= MOST_WORKSPACE[network] << 20
