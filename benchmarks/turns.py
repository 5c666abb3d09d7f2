"""Ours and PyTorch's in turn, each measurement in a process of its own: what unet.py, vae.py and video.py share.

Such a program starts itself with --child for one measurement, which prints an object of JSON on its last line. What a
child says on standard error (warnings of libraries) is shown only where it fails."""

import argparse
import json
import os
import subprocess
import sys


def options_of(doc, rounds, add=lambda parser: None):
    """What the command line says; options.child is None, or the names of one measurement."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--torch-python", default=os.environ.get("TORCH_PYTHON"), help="a Python that has torch and diffusers"
    )
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    add(parser)
    return parser.parse_args()


def programs(options):
    """{name: the Python that has it}"""
    return {"ours": sys.executable} | ({"torch": options.torch_python} if options.torch_python else {})


def library(which):
    """The module that a child measures, and the one that has its models: scaffolding's or diffusers'."""
    if which == "ours":
        import scaffolding
        import scaffolding.models

        return scaffolding, scaffolding.models
    import diffusers
    import torch

    return torch, diffusers


def measure(python, script, options, names, arguments=()):
    """One measurement in a process of its own, where threads that wait do not count as work."""
    command = [python, script, "--threads", str(options.threads), *arguments, "--child", *names]
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}{' '.join(map(str, names))}: the measurement failed")
    return json.loads(done.stdout.splitlines()[-1])


def take_turns(options, script, names, peers, arguments=(), before=lambda: None):
    """{program: its answers}, one a round; names: of the measurement, after the program's; before: called each round"""
    answers = {which: [] for which in peers}
    for _ in range(options.rounds):
        before()
        for which, python in peers.items():
            answers[which].append(measure(python, script, options, [which, *names], arguments))
    return answers
