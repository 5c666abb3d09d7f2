#!/usr/bin/env python3
"""Writes conformance.json: what the programs of tests/conformance give with torch. Needs torch; tests read the file
only.

Each program's main() runs as it is: initial weights come from torch's generator, so a difference there shows in "start"
(sums of absolute values)."""

import importlib.util
import json
import pathlib

import torch

HERE = pathlib.Path(__file__).resolve().parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE.parent / "conformance" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main():
    found = {"torch": torch.__version__} | {name: rounded(load(name).main()) for name in ("transformer", "resnet")}
    path = HERE / "conformance.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path, path.stat().st_size, "bytes")
    for name in ("transformer", "resnet"):
        print(name, [round(v, 4) for v in found[name]["losses"]])


if __name__ == "__main__":
    main()
