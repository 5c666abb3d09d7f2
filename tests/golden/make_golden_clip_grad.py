#!/usr/bin/env python3
"""Writes clip_grad.json: total norms and clipped gradients from torch.nn.utils. Needs torch; tests read the file only.

Gradients are grad(i, n), made by the same integer arithmetic in nn/clip_grad_test.cpp;
each case has the sizes of its parameters.
"""

import json
import math
import pathlib

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

CASES = [
    {"sizes": [7, 1, 12], "max_norm": 1.0, "norm_type": 2.0},
    {"sizes": [7, 1, 12], "max_norm": 100.0, "norm_type": 2.0},
    {"sizes": [5000, 3], "max_norm": 0.5, "norm_type": 2.0},
    {"sizes": [7, 12], "max_norm": 1.0, "norm_type": 1.0},
    {"sizes": [7, 12], "max_norm": 1.0, "norm_type": 3.0},
    {"sizes": [7, 12], "max_norm": 0.25, "norm_type": "inf"},
    {"sizes": [9], "clip_value": 0.3},
    {"sizes": [9, 4], "clip_value": 0.0},
]


def grad(i, n):
    return ((torch.arange(n) * 37 + i * 11) % 41 - 20) / 16.0


def main():
    cases = []
    for case in CASES:
        parameters = [torch.zeros(n) for n in case["sizes"]]
        for i, p in enumerate(parameters):
            p.grad = grad(i, p.numel())
        case = dict(case)
        if "clip_value" in case:
            clip_grad_value_(parameters, case["clip_value"])
        else:
            case["total"] = clip_grad_norm_(
                parameters, case["max_norm"], math.inf if case["norm_type"] == "inf" else case["norm_type"]
            ).item()
        case["clipped"] = [float(f"{v:.9g}") for p in parameters for v in p.grad[:8].tolist()]
        cases.append(case)
    path = pathlib.Path(__file__).with_name("clip_grad.json")
    path.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, indent=1) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
