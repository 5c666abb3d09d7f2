"""Runs of pipelines that are stopped, and what a person sees of them meanwhile."""

import subprocess
import sys
import types

from test_pipelines import make, one_thread  # noqa: F401

QUICK = {"num_inference_steps": 2, "output_type": "np", "seed": 0}

SLOW = """
import os, signal, sys, threading
sys.path[:] = {path!r}
from test_pipelines import make
import scaffolding as sf
sf.set_num_threads(1)
pipe = make()
steps, sent = [], []
def ctrl_c():
    sent.append(len(steps))
    os.kill(os.getpid(), signal.SIGINT)
def callback(pipe, step, timestep, tensors):
    steps.append(step)
    if step == 2:
        threading.Timer(0.01, ctrl_c).start()
    return {{}}
before = sf.backends.cpu.memory_allocated()
try:
    pipe("the cat", num_inference_steps=900, height=256, width=256, output_type="np", callback_on_step_end=callback)
except KeyboardInterrupt:
    word = "stopped"
# Here, not above: while the exception is handled its traceback holds the callback's arguments,
# where the signal came in it.
print(word, len(steps) - sent[0], sf.backends.cpu.memory_allocated() - before, flush=True)
"""


def test_ctrl_c_stops_within_a_step_and_frees_memory():
    code = SLOW.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    word, more, held = done.stdout.split()
    assert word == "stopped" and int(held) < 1 << 16
    assert int(more) <= 1  # the step in which the signal comes is the last


class Terminal(list):
    write = list.append
    isatty = staticmethod(lambda: True)
    flush = staticmethod(lambda: None)


def test_the_progress_bar_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    terminal = Terminal()
    pipe = make()
    pipe.set_progress_bar_config(file=terminal, desc="cat")
    pipe("the cat", num_inference_steps=3, output_type="np")
    assert (
        terminal[0].startswith("\rcat: [....")
        and "3/3 steps" in terminal[-1]
        and terminal[-1].endswith("\n")
        and len(terminal) == 4
    )
    plain = Terminal()
    plain.isatty = lambda: False
    pipe.set_progress_bar_config(file=plain)
    pipe("the cat", **QUICK)
    assert plain == []  # nobody looks
    pipe.set_progress_bar_config(file=plain, disable=False)
    pipe("the cat", **QUICK)
    assert len(plain) == 1 and plain[0].startswith("[####") and "\r" not in plain[0]


def test_the_progress_bar_is_that_of_tqdm(monkeypatch):
    made = []

    class Bar:
        def __init__(self, **words):
            self.words, self.n, self.closed = words, 0, False
            made.append(self)

        def update(self, steps):
            self.n += steps

        def close(self):
            self.closed = True

    tqdm = types.ModuleType("tqdm.auto")
    tqdm.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", tqdm)
    terminal = Terminal()
    pipe = make()
    pipe.set_progress_bar_config(file=terminal, desc="cat", ncols=40)
    pipe("the cat", num_inference_steps=3, output_type="np")
    (bar,) = made
    assert (bar.words["total"], bar.words["desc"], bar.words["ncols"], bar.words["disable"]) == (3, "cat", 40, None)
    assert bar.n == 3 and bar.closed and terminal == []
    pipe.set_progress_bar_config(disable=True, file=terminal)
    pipe("the cat", **QUICK)
    assert len(made) == 1
