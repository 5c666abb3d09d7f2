"""Runs the tests of a build folder and says, in its last line, how many passed and failed.

    python tools/run_tests.py build                # C++ and Python
    python tools/run_tests.py build/asan --cpp     # C++ only: a sanitizer build has no Python module
    python tools/run_tests.py build --python tests/python/ops     # Python tests of these paths only

Both run in as many processes as there are cores, up to four: most tests use one thread, or wait. Each of the C++ ones
has its share; the Python ones take file after file, so that tests of one file never meet (pytest-xdist).
"""

import argparse
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

PROCESSES = max(1, min(os.cpu_count() or 1, 4))
# Threads that wait for each other by spinning take the cores from the other processes' threads.
SHARED_CORES = {"GOMP_SPINCOUNT": "2000"}


def run_cpp(build, results, arguments):
    processes = []
    for i in range(PROCESSES):
        report, log = results / f"cpp_{i}.json", results / f"cpp_{i}.log"
        report.unlink(missing_ok=True)
        share = {"GTEST_TOTAL_SHARDS": str(PROCESSES), "GTEST_SHARD_INDEX": str(i)}
        command = [build / "scaffolding_tests", f"--gtest_output=json:{report}", *arguments]
        environment = SHARED_CORES | os.environ | share
        process = subprocess.Popen(command, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT)
        processes.append((process, report, log))
    passed, failed, skipped = 0, [], 0
    for process, report, log in processes:
        code = process.wait()
        lines = log.read_text(errors="replace").splitlines() if code != 0 else []
        if lines:
            print("\n".join(line for line in lines if not line.startswith(("[ RUN ", "[       OK"))))
        if not report.exists():  # the process died before it could write
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            begun = [line.split()[-1] for line in lines if line.startswith("[ RUN ")]
            failed.append(f"scaffolding_tests ended with {how} in {begun[-1] if begun else 'no test'}")
            print(f"run_tests: {failed[-1]}")
            continue
        cases = [case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"]]
        bad = [f"{case['classname']}.{case['name']}" for case in cases if case.get("failures")]
        idle = sum(case["result"] != "COMPLETED" for case in cases)
        passed, skipped = passed + len(cases) - len(bad) - idle, skipped + idle
        failed += bad or [f"scaffolding_tests ended with {code}, no test has failed"] * (code != 0)
    return passed, failed, skipped


def run_python(build, results, arguments):
    report = results / "python.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--build-dir={build}", f"--junitxml={report}", *arguments]
    # Hundreds of processes import the package: containers' habit to keep no byte code costs each a tenth of a second.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if PROCESSES > 1 and importlib.util.find_spec("xdist"):
        command += ["-n", str(PROCESSES), "--dist", "loadfile", "--no-loadscope-reorder"]
        environment = SHARED_CORES | environment
    elif PROCESSES > 1:
        print("run_tests: pytest-xdist is not installed: the Python tests run in one process", flush=True)
    code = subprocess.call(command, env=environment)
    if code == 5:  # nothing collected
        return 0, [], 0
    if not report.exists():
        return 0, [f"pytest ended with {code} and wrote no report"], 0
    passed, failed, skipped = 0, [], 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad, idle = case.find("failure") is not None or case.find("error") is not None, case.find("skipped") is not None
        passed, skipped = passed + (not bad and not idle), skipped + idle
        failed += [f"{case.get('classname')}::{case.get('name')}"] * bad
    return passed, failed or [f"pytest ended with {code}, no test has failed"] * (code != 0), skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--cpp", action="store_true", help="C++ tests only")
    parser.add_argument(
        "--gtest",
        action="append",
        default=[],
        help="an argument for scaffolding_tests, such as --gtest=--gtest_filter=op_add*",
    )
    parser.add_argument("--python", nargs="+", metavar="PATH", help="Python tests of these paths only")
    options = parser.parse_args()
    if options.cpp and options.python:
        parser.error("--cpp and --python exclude each other")
    build = options.build.resolve()
    # A shell's background jobs ignore Ctrl-C and so would their children;
    # what has a handler here is the default in them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results = build / "test_results"
    results.mkdir(exist_ok=True)
    total, failures = 0, []
    for name, run, arguments in (("C++", run_cpp, options.gtest), ("Python", run_python, options.python or [])):
        if options.cpp and name == "Python" or options.python and name == "C++":
            continue
        start = time.time()
        passed, failed, skipped = run(build, results, arguments)
        print(
            f"{name}: {passed} passed, {len(failed)} failed, {skipped} skipped in {time.time() - start:.0f} s",
            flush=True,
        )
        total, failures = total + passed, failures + failed
    # For .ci/run, which names the failures again at its end.
    (results / "total.json").write_text(json.dumps({"passed": total, "failed": len(failures), "failures": failures}))
    print(f"{total} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
