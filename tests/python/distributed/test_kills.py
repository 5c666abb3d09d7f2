"""Processes that are killed at random moments: the training goes on from its last whole checkpoint, in the same bits.

SF_KILLS=100 SF_KILLS_SEED=7 pytest -s tests/python/distributed/test_kills.py    (make test-kills)
"""

import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time

KILLS = int(os.environ.get("SF_KILLS", "3"))
SEED = int(os.environ.get("SF_KILLS_SEED") or 0) or random.SystemRandom().randrange(1, 1 << 31)
SCRIPT = pathlib.Path(__file__).with_name("training_under_kills.py")
LIMIT = 60  # seconds from a kill to the next step, before it counts as a hang


def launch(build_dir, folder, processes, *options):
    command = [build_dir / "scaffolding", "launch", "--python", sys.executable, "--nproc-per-node", processes]
    command += [*options, SCRIPT, folder]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    log = open(folder / "launcher", "w")
    return subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=subprocess.STDOUT)


def lines(folder, kind):
    """The words of the log's lines of one kind, each with its time at the end."""
    try:
        text = (folder / "log").read_text()
    except FileNotFoundError:
        return []
    return [line.split()[1:] for line in text.split("\n")[:-1] if line.startswith(kind + " ")]


def wait_for(what, run, seconds=LIMIT):
    until = time.time() + seconds
    while not (found := what()):
        assert run.poll() is None, f"the launcher has ended: {run.returncode}"
        assert time.time() < until, f"nothing for {seconds} s"
        time.sleep(0.002)
    return found


def running():
    """The processes of the script that there are."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(SCRIPT) in words and b"launch" not in words:
            found.append(int(entry.parent.name))
    return found


def one_kill(folder, run, number, seed):
    """Kills a random process of the attempt under way at a random moment; seconds to the next step."""
    draw = random.Random(seed)
    wait, while_saving, how = draw.uniform(0, 1.0), draw.random() < 0.4, draw.random()
    how = signal.SIGSTOP if how < 0.15 else signal.SIGKILL
    print(f"kill {number}: SF_KILLS_SEED={seed}, {how.name} after {wait:.2f} s", end="", flush=True)
    time.sleep(wait)
    if while_saving:  # the folder of a checkpoint that is being written
        wait_for(lambda: any(folder.glob("checkpoint.*.tmp")), run)
        time.sleep(draw.uniform(0, 0.02))
    choice = draw.random()
    while True:
        attempt = lines(folder, "process")[-1][0]
        pids = sorted({int(words[2]) for words in lines(folder, "process") if words[0] == attempt})
        begun = time.time()
        try:
            os.kill(pids[int(choice * len(pids))], how)
            break
        except ProcessLookupError:  # it had ended with another: the next attempt is about to begin
            time.sleep(0.05)
    saved = [int(words[0]) for words in lines(folder, "saved") if float(words[1]) < begun]
    first = wait_for(lambda: [w for w in lines(folder, "step") if int(w[0]) > int(attempt)], run)[0]
    begins = [words for words in lines(folder, "begin") if int(words[0]) > int(attempt)]
    assert not saved or int(begins[0][2]) >= saved[-1], f"step {saved[-1]} was saved, and {begins[0][2]} came back"
    taken = float(first[2]) - begun
    saving = ", while a checkpoint was written" if while_saving else ""
    print(f"{saving}: rank {int(choice * len(pids))} of {len(pids)}; the next step after {taken:.1f} s", flush=True)
    return taken


def test_kills_lose_nothing_and_change_nothing(build_dir, tmp_path):
    folder = tmp_path / "killed"
    folder.mkdir()
    (folder / "end").write_text("1000000")
    options = ["--max-restarts", 3 * KILLS, "--regrow-seconds", 4, "--stopped-seconds", 1]
    run = launch(build_dir, folder, "1:4", *options)
    times = []
    try:
        wait_for(lambda: lines(folder, "step"), run)
        for number in range(KILLS):
            times.append(one_kill(folder, run, number, (SEED + number) % (1 << 31)))
        end = int(lines(folder, "step")[-1][1]) + 40
        (folder / "end").write_text(str(end))
        run.wait(timeout=120)
        assert run.returncode == 0, (folder / "launcher").read_text()
    finally:
        run.kill()
        run.wait()
    left = time.time() + 10
    while running() and time.time() < left:
        time.sleep(0.05)
    assert not running()
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint", "end", "final", "launcher", "log"]
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    (undisturbed / "end").write_text(str(end))
    run = launch(build_dir, undisturbed, 2)
    try:
        assert run.wait(timeout=300) == 0, (undisturbed / "launcher").read_text()
    finally:
        run.kill()
        run.wait()
    assert (undisturbed / "final").read_text() == (folder / "final").read_text()
    worlds = sorted({int(words[1]) for words in lines(folder, "begin")})
    print(
        f"{len(times)} kills; to the next step {statistics.median(times):.1f} s in the middle, {max(times):.1f} s at "
        f"most; {end} steps by {worlds} processes end in the bits of an undisturbed run"
    )
