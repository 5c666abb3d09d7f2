"""tools/gpu_check.sh and tools/gpu_pack.sh without a GPU: every stage with stand-ins for NVIDIA's tools, the tests and
the benchmark. The stand-ins refuse options that the real tools have not, and can hang, fail and find errors."""

import os
import pathlib
import re
import subprocess
import sys

from folders import ROOT

STAND_INS = {
    "build/scaffolding": """
case $1 in devices) echo "cuda:0: available, NVIDIA H200" ;; env) echo "SF_TEST_DEVICE=$SF_TEST_DEVICE" ;; esac""",
    "build/scaffolding_tests": """
echo "tests cache=$SF_CUDA_CACHE shards=$GTEST_TOTAL_SHARDS device=$SF_TEST_DEVICE $*" >>"$CALLS"
echo "[ RUN      ] op_softmax.runs"
if [ -n "$FOUND" ]; then echo "$FOUND"; fi
if [ -n "$STUCK" ]; then echo "half a test"; exec sleep 1000; fi
if [[ "$BREAK" == *ops* ]]; then echo "wrong number"; echo "[  FAILED  ] op_softmax.runs (1 ms)"; exit 1; fi
echo "[       OK ] op_softmax.runs (1 ms)" """,
    "bin/nvidia-smi": """
for word; do
  [[ $word == --format=csv || $word == --query-gpu=* ]] || { echo "refused: $word" >&2; exit 1; }
done
echo "NVIDIA H200, 580" """,
    "bin/compute-sanitizer": """
echo "compute-sanitizer $*" >>"$CALLS"
while [[ $1 == --* ]]; do
  case $1=$2 in
    --tool=memcheck | --tool=racecheck | --tool=synccheck) tool=$2 ;;
    --kernel-regex=kns=_ZN2sf | --error-exitcode=[0-9]* | --print-limit=[0-9]*) ;;
    *) echo "refused: $1 $2" >&2; exit 1 ;;
  esac
  shift 2
done
echo "========= COMPUTE-SANITIZER"
if [[ "$HANG" == *$tool* ]]; then export STUCK=1; fi
if [[ "$BREAK" != *$tool* ]]; then "$@"; code=$?; echo "========= ERROR SUMMARY: 0 errors"; exit $code; fi
FOUND="========= Invalid write by $tool" "$@"
echo "========= ERROR SUMMARY: 1 error"
exit 9""",
    # its table is written when the program has ended, as the real one's
    "bin/ncu": """
echo "ncu $*" >>"$CALLS"
while [[ $1 == --* ]]; do
  case $1=$2 in
    --csv=*) shift; continue ;;
    --log-file=*) log=$2 ;;
    --clock-control=none | --profile-from-start=off | --target-processes=all | --section=* | --page=raw) ;;
    --kernel-name-base=mangled | --kernel-name=regex:_ZN2sf) ;;
    *) echo "refused: $1 $2" >&2; exit 1 ;;
  esac
  shift 2
done
"$@"
code=$?
printf '"ID","Kernel Name"\\n"",""\\n"0","sf::softmax"\\n"1","sf::copy"\\n' >"$log"
exit $code""",
    "bin/python": """
hang() { if [[ "$HANG" == *$1* ]]; then exec sleep 1000; fi; }
fail() { if [[ "$BREAK" == *$1* ]]; then echo "$1 broke"; exit 3; fi; }
case "$1 $*" in
  -c*) exec "$REAL" "$@" ;;
  *" -m pytest "*) echo "python $*" >>"$CALLS"; hang pytest; fail pytest; echo "3 passed" ;;
  *--ncu*) hang counters ;;
  benchmarks/gpu/kernel_times.py*) echo "$*" >>"$CALLS"; echo network >"$OUT/kernels.csv"; hang profile; fail profile ;;
  benchmarks/gpu*) echo "$*" >>"$CALLS"; echo "the table" >"$OUT/bench_gpu.txt"; hang bench; fail bench ;;
  *) echo "refused: $*" >&2; exit 1 ;;
esac""",
}
STAGES = ["devices", "ops", "bench", "profile", "python", "memcheck", "racecheck", "synccheck", "counters"]


class Check:
    """A call of the script, with what it left."""

    def __init__(self, folder, *arguments, without=(), **environment):
        self.folder, self.out = folder, folder / "out"
        for name, text in STAND_INS.items():
            if name not in without:
                file = folder / name
                file.parent.mkdir(exist_ok=True, parents=True)
                file.write_text("#!/bin/bash" + text + "\n")
                file.chmod(0o755)
        system = folder / "system"  # all that the machine has, but NVIDIA's tools
        system.mkdir()
        for program in [*pathlib.Path("/bin").iterdir(), *pathlib.Path("/usr/bin").iterdir()]:
            if f"bin/{program.name}" not in STAND_INS and not (system / program.name).is_symlink():
                (system / program.name).symlink_to(program)
        variables = {
            "PATH": f"{folder / 'bin'}:{system}",
            "OUT": str(self.out),
            "CALLS": str(folder / "calls"),
            "PYTHON": str(folder / "bin" / "python"),
            "REAL": sys.executable,
            "HOME": str(folder),
        }
        self.process = subprocess.Popen(
            [ROOT / "tools" / "gpu_check.sh", "--build", folder / "build", *map(str, arguments)],
            env=variables | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self):
        self.said = self.process.communicate(timeout=60)[0]
        self.summary = (self.out / "summary.txt").read_text()
        self.logs = (self.out / "logs.txt").read_text()
        self.ends = dict(re.findall(r"^(\w+): (ok|skipped|ENDED|FAILED)", self.summary, re.M))
        calls = self.folder / "calls"
        self.calls = calls.read_text().split("\n") if calls.exists() else []
        return self


def test_every_stage_runs_as_it_should(tmp_path):
    check = Check(tmp_path).wait()
    assert check.process.returncode == 0 and check.ends == dict.fromkeys(STAGES, "ok"), check.said
    assert list(check.ends) == STAGES and "the table" in check.said and "refused" not in check.logs
    assert "NVIDIA H200, 580" in check.logs and "counters of 2 kernel calls" in check.summary
    tests = [call for call in check.calls if call.startswith("tests ")]
    assert all("device=cuda" in call for call in tests)
    # memcheck alone has each tensor in a block of its own; four processes share each tool's tests
    assert sum("cache=0 shards=4" in call for call in tests) == 4
    assert sum("cache=1 shards=4" in call for call in tests) == 8
    assert sum("cache= " in call and "/Cuda*" in call for call in tests) in (4, 8)
    for tool in ("memcheck", "racecheck", "synccheck"):
        runs = [call for call in check.calls if call.startswith(f"compute-sanitizer --tool {tool} ")]
        assert len(runs) == 4
    (ncu,) = [call for call in check.calls if call.startswith("ncu ")]
    assert "--kernel-name-base mangled --kernel-name regex:_ZN2sf" in ncu


def test_stages_that_hang_cost_themselves_alone_and_leave_what_they_had(tmp_path):
    hang = {
        "memcheck": "memcheck",
        "synccheck": "synccheck",
        "counters": "counters",
        "profile": "profile",
        "bench": "bench",
        "python": "pytest",
    }
    checks = {
        stage: Check(tmp_path / stage, "--stages", f"devices,{stage}", "--seconds", 14, HANG=what)
        for stage, what in hang.items()
    }
    for stage, check in checks.items():
        check.wait()
        assert check.process.returncode == 1 and check.ends["devices"] == "ok", stage
        assert check.ends[stage] == "ENDED" and "results in" in check.summary, check.said
    for stage in ("memcheck", "synccheck"):
        assert "not ended: [ RUN      ] op_softmax.runs" in checks[stage].logs and "half a test" in checks[stage].logs
    # ncu had time to write its table; what other stages wrote is there too
    assert "sf::softmax" in (checks["counters"].out / "ncu.csv").read_text()
    assert "counters of 2 kernel calls" in checks["counters"].summary
    assert (checks["profile"].out / "kernels.csv").exists() and "the table" in checks["bench"].said


def test_a_stage_that_finds_something_fails_and_says_what(tmp_path):
    broken = ["memcheck", "racecheck", "synccheck", "bench", "profile", "python", "ops"]
    check = Check(tmp_path, BREAK="memcheck racecheck synccheck bench profile pytest").wait()
    assert check.process.returncode == 1
    assert [stage for stage, end in check.ends.items() if end == "FAILED"] == [s for s in STAGES if s in broken[:-1]]
    for tool in broken[:3]:  # in a test whose numbers were right
        assert f"[ RUN      ] op_softmax.runs\n========= Invalid write by {tool}\n[       OK" in check.logs
        assert f"{tool}: FAILED (1)" in check.summary
    assert "ERROR SUMMARY: 0" not in check.logs and "COMPUTE-SANITIZER" not in check.logs
    wrong = Check(tmp_path / "ops", "--stages", "devices,ops", BREAK="ops").wait()
    assert wrong.process.returncode == 1 and wrong.ends["ops"] == "FAILED" and "wrong number" in wrong.logs


def test_tools_that_are_not_there_are_said(tmp_path):
    check = Check(tmp_path, without=("bin/ncu", "bin/compute-sanitizer", "bin/nvidia-smi")).wait()
    assert check.process.returncode == 0, check.said
    skipped = ["memcheck", "racecheck", "synccheck", "counters"]
    assert [stage for stage, end in check.ends.items() if end == "skipped"] == skipped
    assert "memcheck: skipped: there is no compute-sanitizer" in check.summary
    assert "counters: skipped: there is no ncu" in check.summary


def test_a_stage_that_is_none_is_refused(tmp_path):
    done = subprocess.run(
        [ROOT / "tools" / "gpu_check.sh", "--stages", "devices,memchek"],
        env=os.environ | {"OUT": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 2
        and "there is no stage memchek: devices,ops" in done.stderr
        and not list(tmp_path.iterdir())
    )


def pack(folder, *arguments):
    """tools/gpu_pack.sh, whose cmake is none."""
    (folder / "cmake").write_text('#!/bin/sh\necho "cmake was called"\nexit 1\n')
    (folder / "cmake").chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = [ROOT / "tools" / "gpu_pack.sh", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_tree_that_is_too_large_is_told_before_anything_is_built(tmp_path):
    done = pack(tmp_path, "--limit", "3")
    if not (ROOT / ".git").exists():
        assert done.returncode == 2 and "needs a checkout" in done.stderr
        return
    assert done.returncode == 1 and "more than 3 MiB" in done.stderr and "The largest:" in done.stderr
    assert "cmake" not in done.stdout + done.stderr and "models/emoji-128/unet" not in done.stderr
    with_unet = pack(tmp_path, "--limit", "3", "--without", "none")
    assert "models/emoji-128/unet" in with_unet.stderr  # the largest file of all

    def tree(said):
        return float(re.search(r"working tree's ([\d.]+) without", said)[1])

    assert 25 < tree(with_unet.stdout) - tree(done.stdout) < 40
    assert tree(done.stdout) < 45  # what is left of 64 MiB is for the pack
