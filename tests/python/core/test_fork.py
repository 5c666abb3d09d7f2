"""Processes that fork after they have computed with several threads."""

import subprocess
import sys

PROGRAM = """
import multiprocessing, os, signal
import scaffolding as sf

sf.set_num_threads(2)
a, x, w = sf.randn(256, 256), sf.randn(1, 16, 32, 32), sf.randn(16, 16, 3, 3)

def both():
    return (a @ a).tolist(), sf.nn.functional.conv2d(x, w).tolist()

want = both()

def child(queue):
    signal.alarm(60)
    queue.put(both() == want)

pid = os.fork()
if pid == 0:
    signal.alarm(60)
    os._exit(7 if both() == want else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
context = multiprocessing.get_context("fork")
queue = context.Queue()
worker = context.Process(target=child, args=(queue,))
worker.start()
worker.join(100)
assert worker.exitcode == 0 and queue.get(timeout=10)
assert both() == want
print("fine")
"""


def test_children_compute_as_their_parent():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and done.stdout == "fine\n", done.stderr
