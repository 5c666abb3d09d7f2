"""`make bench-gpu`: what its table says, and every row with small shapes on a GPU or its emulator (SF_CUDA_LIBRARY)."""

import csv
import json
import subprocess
import sys

import folders
import pytest

from scaffolding import cuda

FOLDER = folders.ROOT / "benchmarks" / "gpu"
LIMITS = {"bytes": 4e12, "flop": 800e12}


@pytest.fixture
def bench(monkeypatch):
    """benchmarks/gpu's modules, under their own names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("report", "rows", "operators", "networks", "work")
    import report
    import rows

    yield report, rows
    for name in names:
        sys.modules.pop(name, None)


def figure(ms, flop=0.0, moved=0.0, **more):
    return {
        "ms": ms,
        "flop": flop,
        "moved": moved,
        "in_turn": False,
        "tensor_rate": 1,
        "images": 0,
        "peak_bytes": 0,
    } | more


def test_a_floor_is_the_larger_of_arithmetic_and_bytes_or_their_sum(bench):
    report, _ = bench
    assert report.floor_ms(figure(1, flop=800e9, moved=8e9), LIMITS) == pytest.approx(2)
    assert report.floor_ms(figure(1, flop=800e9, moved=8e9, in_turn=True), LIMITS) == pytest.approx(3)
    assert report.floor_ms(figure(1, flop=800e9, tensor_rate=2), LIMITS) == pytest.approx(0.5)
    assert report.floor_ms(figure(1), LIMITS) is None


def test_convolutions_and_attention_stay_at_bfloat16s_rate_in_a_float8_network(bench):
    report, rows = bench
    networks = rows.networks
    floor = {
        fp8: report.floor_ms(
            figure(1, flop=2 * networks.UNET_FLOP["sdxl"][1], tensor_rate=networks.float8_rate("sdxl") if fp8 else 1),
            LIMITS,
        )
        for fp8 in (False, True)
    }
    rest = 1e3 * (13522e9 - 7516e9) / LIMITS["flop"]
    assert floor[True] == pytest.approx(rest + 1e3 * 7516e9 / (2 * LIMITS["flop"]), rel=1e-3)
    assert floor[False] / 2 < 0.75 * floor[True] < floor[False]


def test_ceilings_are_the_best_that_either_library_reached(bench):
    report, _ = bench
    results = {
        "copy": {
            "ours": {"graph": figure(1, moved=3e9)},
            "peer": {"eager": figure(1, moved=4e9), "graph": {"error": "no"}},
        },
        "product": {"ours": {"graph": figure(2, flop=1.6e12)}, "peer": {}},
    }
    assert report.ceilings(results, "copy", "product") == LIMITS


def test_a_row_says_ratios_goal_and_memory(bench):
    report, rows = bench
    row = rows.Row(None, (), (), (100, "img/s"), goal_gb=20)
    ours = {"graph": figure(100, flop=40e12, images=16, peak_bytes=18e9), "eager": figure(120)}
    peer = {"eager": figure(300), "graph": figure(200, peak_bytes=30e9)}
    line = dict(zip(report.HEAD, report.line_of("training", row, {"ours": ours, "peer": peer}, LIMITS)))
    assert line["ours"] == "100.0 ms" and line["eager"] == "300.0 ms" and line["PyTorch's best"] == "200.0 ms graph"
    assert line["floor"] == "50 ms" and line["ours/floor"] == "2.00" and line["best/ours"] == "2.00"
    assert (
        line["rate"] == "160 img/s"
        and line["goal"] == "100 img/s, 20 GB"
        and line["peak GB"] == "18.0 / 30.0"
        and line["met"] == "yes"
    )
    too_large = {"graph": figure(100, images=16, peak_bytes=21e9)}
    assert report.line_of("training", row, {"ours": too_large, "peer": {}}, LIMITS)[-1] == "no"
    failed = {"ours": {"graph": {"error": "x"}}, "peer": peer}
    assert report.line_of("training", row, failed, LIMITS)[1] == "failed"


def test_tracks_are_apart_and_rows_without_a_figure_are_named(bench):
    report, rows = bench
    table = {"plain": rows.Row(None, (), ()), "small": rows.Row(None, (), (), track="quantised")}
    results = {
        "plain": {"ours": {"graph": figure(1)}, "peer": {}},
        "small": {"ours": {"graph": {"error": "E: bad"}}, "peer": {}},
    }
    text = report.text(table, results, LIMITS, ["late"])
    lossless, quantised = text.split("quantised\n")
    assert "plain" in lossless and "small" not in lossless and "plain" not in quantised
    assert "small, ours, graph: E: bad" in quantised and "not measured: late" in quantised


def test_goals_are_those_of_the_issue(bench):
    _, rows = bench
    goals = {name: row.goal for name, row in rows.ROWS.items() if row.goal}
    assert goals["UNet SD2.1 b2 64x64"] == (4.5, "ms") and goals["UNet SDXL b2 128x128"] == (26, "ms")
    assert goals["training SD2.1 b16 64x64"] == (180, "img/s") and rows.ROWS["training SDXL b4 128x128"].goal_gb == 50
    assert {row.track for row in rows.ROWS.values()} == {"lossless", "quantised"}
    assert all(name in rows.ROWS for name in (r.peer_of for r in rows.ROWS.values()) if name)


def run(*arguments):
    command = [sys.executable, FOLDER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


needs_cuda = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")


@needs_cuda
def test_every_row_runs_from_end_to_end(tmp_path):
    done = run("--tiny", "--row-limit", 1200, "--output", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "failed" not in done.stdout and "not measured" not in done.stdout
    document = json.loads((tmp_path / "bench_gpu.json").read_text())
    listed = run("--list").stdout.splitlines()
    assert list(document["rows"]) == listed and len(listed) >= 35
    for name, entry in document["rows"].items():
        for how, answer in entry["ours"].items():
            assert answer["ms"] > 0 and answer["samples"] >= 3, (name, how)
    assert (tmp_path / "bench_gpu.txt").read_text().strip() in done.stdout


@needs_cuda
def test_rows_after_the_time_is_over_are_named_and_a_row_that_fails_costs_itself_alone(tmp_path):
    late = run("--tiny", "--seconds", 0)
    assert late.returncode == 0 and "not measured: copy, 2 GiB; matmul 8192; UNet" in late.stdout
    alone = run(
        "--tiny", "--filter", "gelu", "--row-limit", 1200, "--output", tmp_path, "--torch-python", sys.executable
    )
    assert alone.returncode == 0  # a peer without torch fails in each row, ours goes on
    document = json.loads((tmp_path / "bench_gpu.json").read_text())
    assert all("error" in a for entry in document["rows"].values() for a in entry["peer"].values())
    assert all("ms" in a for entry in document["rows"].values() for a in entry["ours"].values())


@needs_cuda
def test_every_kernel_call_of_a_network_has_its_time(tmp_path):
    command = [sys.executable, FOLDER / "kernel_times.py", "--tiny", "--filter", "training", "--output", tmp_path]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "kernels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert f" in {len(rows)} calls" in done.stdout
    assert {"gemm", "adamw", "group_norm_backward"} <= {r["kernel"] for r in rows}, sorted({r["kernel"] for r in rows})
    assert all(float(r["us"]) >= 0 for r in rows) and sum(float(r["us"]) for r in rows) > 0


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    done = run("--tiny")
    assert done.returncode == 1 and "nothing measured: " in done.stderr
