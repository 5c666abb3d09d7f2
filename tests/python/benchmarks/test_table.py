"""benchmarks/table.py: which rows hold. A row that is slower than its peer never does, and says so in capitals."""

import importlib.util
import json
import subprocess

import folders
import pytest

spec = importlib.util.spec_from_file_location("table", folders.ROOT / "benchmarks" / "table.py")
table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)

SLOW = "SLOWER THAN PEER"


def row(wall=1.0, cpu=2.0, share=0.9, share_cpu=0.9, goal="share", goal_value=0.8, **more):
    return {
        "wall": wall,
        "cpu": cpu,
        "share": share,
        "share_cpu": share_cpu,
        "goal": goal,
        "goal_value": goal_value,
    } | more


FASTER, SLOWER = {"wall": 1.5, "cpu": 3.0}, {"wall": 0.5, "cpu": 1.0}


@pytest.mark.parametrize(
    ("ours", "peer", "met"),
    [
        (row(), None, "yes"),
        (row(), FASTER, "yes"),
        (row(), {"wall": 1.0, "cpu": 2.0}, "yes"),  # as fast as the peer
        (row(share_cpu=0.7), FASTER, "wall"),
        (row(share=0.7), FASTER, "cpu"),
        (row(share=0.7, share_cpu=0.7), FASTER, "no"),
        (row(share=0.7, share_cpu=0.7), None, "no"),
        (row(), SLOWER, f"no, {SLOW}"),  # its share is met, and it does not hold
        (row(share=0.7, share_cpu=0.7), SLOWER, f"no, {SLOW}"),
        (row(), {"wall": 0.5, "cpu": 3.0}, f"cpu, {SLOW} (wall)"),
        (row(), {"wall": 1.5, "cpu": 1.0}, f"wall, {SLOW} (cpu)"),
        (row(share=0.7), {"wall": 1.5, "cpu": 1.0}, f"no, {SLOW} (cpu)"),
        (row(goal="seconds", goal_value=3), FASTER, "yes"),
        (row(goal="seconds", goal_value=3), SLOWER, f"no, {SLOW}"),
        (row(goal="seconds", goal_value=1.5), None, "wall"),
        (row(goal="speedup", goal_value=1.2), FASTER, "yes"),
        (row(goal="speedup", goal_value=2), FASTER, "no"),
        (row(goal="speedup", goal_value=2), None, "?"),
        (row(goal="speedup", goal_value=1), SLOWER, f"no, {SLOW}"),
        (row(goal="speedup", goal_value=0.5), SLOWER, f"no, {SLOW}"),
        (row(goal="none"), None, ""),
        (row(goal="none"), FASTER, ""),
        (row(goal="none"), SLOWER, SLOW),
    ],
)
def test_a_row_holds_beside_its_goal_and_its_peer(ours, peer, met):
    assert table.judge(ours, peer)[1] == met


def test_bytes_have_goals_too():
    ours = {"bytes": 10, "goal": "peer_bytes"}
    assert [table.judge(ours, peer)[1] for peer in ({"bytes": 10}, {"bytes": 9}, None)] == ["yes", "no", "?"]
    assert table.judge({"bytes": 10, "goal": "bytes", "goal_value": 20e6}, None) == ("<= 20 MB", "yes")


def test_a_line_names_the_unit_and_the_main_kernel():
    line = table.line_of(row(name="matmul", unit="AMX bfloat16", kernels=["gemm native avx512amx", "copy"]), SLOWER)
    assert line[7:] == ["AMX bfloat16", "gemm native avx512amx", ">= 80% of peak", f"no, {SLOW}"]
    python = {"name": "import", "wall": 0.05, "cpu": 0.05, "goal": "seconds", "goal_value": 0.1}
    assert table.line_of(python, None)[5:] == ["", "", "", "", "<= 100 ms", "yes"]


def bench(build_dir, *arguments):
    program = build_dir / "scaffolding_bench"
    done = subprocess.run([program, *arguments, "--quick"], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_rows_say_what_computed_them(build_dir):
    (found,) = bench(build_dir, "--filter", "matmul 1024 bf16")
    assert found["kernels"] and all(len(name.split()) in (2, 3) for name in found["kernels"])
    peaks = {p["peak"]: p for p in bench(build_dir, "--peaks") if "peak" in p}
    assert "bf16" in peaks[found["unit"]]["types"].split() and found["peak"] > 0
    assert all(rate > 0 for p in peaks.values() for key, rate in p.items() if key.endswith("_per_second"))
