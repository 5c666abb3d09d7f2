"""Writes tests/golden/testing.json.xz: what torch.testing.assert_close says to the calls of testing_cases.py.

python tests/golden/make_golden_testing.py     # a Python that has torch
"""

import json
import pathlib

import torch
from packed import write_json
from testing_cases import verdicts

write_json(pathlib.Path(__file__).parent / "testing.json.xz", json.dumps(verdicts(torch), indent=0) + "\n")
