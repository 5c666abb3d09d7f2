"""Runs the tests of a build folder and says, in its last line, how many passed and failed.

    python tools/run_tests.py build                # C++ and Python
    python tools/run_tests.py build/asan --cpp     # C++ only: a sanitizer build has no Python module

The C++ tests run in as many processes as there are cores, each with its share: most of them use one thread.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree


def run_cpp(build, results, arguments):
    shards = max(1, min(os.cpu_count() or 1, 4))
    processes = []
    for i in range(shards):
        report, log = results / f"cpp_{i}.json", results / f"cpp_{i}.log"
        report.unlink(missing_ok=True)
        environment = (
            {"GOMP_SPINCOUNT": "2000"} | os.environ | {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(i)}
        )
        command = [build / "scaffolding_tests", f"--gtest_output=json:{report}", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT)
        processes.append((process, report, log))
    passed = failed = skipped = 0
    for process, report, log in processes:
        code = process.wait()
        lines = log.read_text(errors="replace").splitlines() if code != 0 else []
        if lines:
            print("\n".join(line for line in lines if not line.startswith(("[ RUN ", "[       OK"))))
        if not report.exists():  # the process died before it could write
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            begun = [line.split()[-1] for line in lines if line.startswith("[ RUN ")]
            print(f"run_tests: scaffolding_tests ended with {how} in {begun[-1] if begun else 'no test'}")
            failed += 1
            continue
        cases = [case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"]]
        bad = sum(bool(case.get("failures")) for case in cases)
        idle = sum(case["result"] != "COMPLETED" for case in cases)
        passed, failed, skipped = passed + len(cases) - bad - idle, failed + bad, skipped + idle
        if code != 0 and bad == 0:
            failed += 1
    return passed, failed, skipped


def run_python(build, results, arguments):
    report = results / "python.xml"
    report.unlink(missing_ok=True)
    code = subprocess.call(
        [sys.executable, "-m", "pytest", "-q", f"--build-dir={build}", f"--junitxml={report}", *arguments]
    )
    if code == 5:  # nothing collected
        return 0, 0, 0
    if not report.exists():
        return 0, 1, 0
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad, idle = case.find("failure") is not None or case.find("error") is not None, case.find("skipped") is not None
        passed, failed, skipped = passed + (not bad and not idle), failed + bad, skipped + idle
    return passed, failed or int(code not in (0, 1)), skipped


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
    options = parser.parse_args()
    build = options.build.resolve()
    # A shell's background jobs ignore Ctrl-C and so would their children;
    # what has a handler here is the default in them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results = build / "test_results"
    results.mkdir(exist_ok=True)
    total = [0, 0, 0]
    for name, run, arguments in (("C++", run_cpp, options.gtest), ("Python", run_python, [])):
        if options.cpp and name == "Python":
            continue
        start = time.time()
        counts = run(build, results, arguments)
        print(
            f"{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped in {time.time() - start:.0f} s",
            flush=True,
        )
        total = [a + b for a, b in zip(total, counts)]
    (results / "total.json").write_text(json.dumps({"passed": total[0], "failed": total[1]}))
    print(f"{total[0]} passed, {total[1]} failed")
    sys.exit(1 if total[1] else 0)


if __name__ == "__main__":
    main()
