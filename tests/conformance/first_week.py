"""What users of PyTorch type in their first week: the expressions of first_week.txt, in PyTorch and here.

    PYTHONPATH=build/python .venv/bin/python tests/conformance/first_week.py [--torch-python PYTHON]

Evaluates each with `torch` standing for our package and prints, for each area, how many run and agree with
first_week.json.xz, then those that do not, with why. --torch-python: a Python that has torch, by which
first_week.json.xz is written anew first.
"""

import argparse
import collections
import contextlib
import copy
import importlib
import io
import json
import lzma
import math
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import warnings

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
LINES, RECORDED = HERE / "first_week.txt", HERE / "first_week.json.xz"
VALUES = 6  # as many values of a tensor are recorded, and the sum of all


def expressions():
    """{expression: (area, whether it is random)} in the file's order."""
    found, area = {}, None
    for line in LINES.read_text().splitlines():
        if line.startswith("## "):
            area = line[3:]
        elif not line.startswith("# "):
            random = line.startswith("~ ")
            expression = line[2:] if random else line
            assert expression not in found, f"{LINES.name}: twice: {expression}"
            found[expression] = (area, random)
    return found


def names_of(package, folder):
    """What the expressions may use, made anew for each of them; package: "torch" or "scaffolding"."""
    torch = importlib.import_module(package)
    nn, optim = importlib.import_module(f"{package}.nn"), importlib.import_module(f"{package}.optim")
    F, data = importlib.import_module(f"{package}.nn.functional"), importlib.import_module(f"{package}.utils.data")

    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            return F.relu(self.fc(x))

    class Squares(data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return torch.tensor([float(i)]), i * i

    def for_lr(scheduler):
        rates = []
        for _ in range(3):
            scheduler.optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
        return rates

    def with_no_grad(function):
        with torch.no_grad():
            return function()

    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    return {
        "torch": torch, "nn": nn, "F": F, "optim": optim, "data": data,
        "np": np, "math": math, "copy": copy, "pickle": pickle, "OrderedDict": collections.OrderedDict,
        "x": torch.tensor([[0.5, -1.25, 2.0], [3.1, 0.0, -0.7]]),
        "y": torch.tensor([[1.0, 2.0, -0.5], [-1.5, 0.25, 4.0]]),
        "v": torch.tensor([1.0, 2.0, 3.0]),
        "m": torch.tensor([[1.0, 0.5, -1.0], [2.0, 0.0, 0.25], [-0.5, 1.5, 3.0]]),
        "t": torch.arange(24.0).reshape(2, 4, 3) / 10,
        "e": torch.arange(24.0).reshape(2, 3, 4).sin(),
        "img": torch.arange(192.0).reshape(1, 3, 8, 8).cos(),
        "mask": torch.tensor([[True, False, True], [False, True, False]]),
        "idx": torch.tensor([0, 2, 1]),
        "labels": torch.tensor([2, 0]),
        "w0": torch.tensor([1.0, -2.0], requires_grad=True),
        "net": net, "sgd": optim.SGD(net.parameters(), lr=0.1),
        "path": os.path.join(folder, "saved.pt"),
        "Tiny": Tiny, "Squares": Squares, "for_lr": for_lr, "with_no_grad": with_no_grad,
    }  # fmt: skip


def number(value):
    """A number for JSON: six digits, and words for what JSON lacks."""
    if isinstance(value, complex):
        return [number(value.real), number(value.imag)]
    if isinstance(value, bool) or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def plain(text):
    for prefix in ("torch.", "scaffolding.", "sf."):
        text = text.replace(prefix, "")
    return text


def describe(value, package, random=False):
    """The value as JSON: dtype, shape and values of tensors and arrays, text of layers, types and the like."""
    torch = importlib.import_module(package)
    if isinstance(value, torch.Tensor):
        dtype, values = plain(str(value.dtype)), value.detach().reshape(-1).tolist()
    elif isinstance(value, np.ndarray | np.generic):
        dtype, values = f"numpy {value.dtype}", value.reshape(-1).tolist()
    elif value is None or isinstance(value, bool | int | float):
        return value if value is None or isinstance(value, bool) else number(value)
    elif isinstance(value, str):
        return plain(value)
    elif isinstance(value, dict):
        return {str(key): describe(item, package, random) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        return [describe(item, package, random) for item in value]
    elif isinstance(value, torch.nn.Module) or type(value).__name__ in ("device", "dtype", "layout"):
        return plain(str(value))
    else:
        return f"a {type(value).__name__}"
    told = [dtype, *value.shape]
    if random or not values:
        return {"tensor": told}
    if len(values) <= VALUES:
        return {"tensor": told, "values": [number(v) for v in values]}
    total = sum(v if math.isfinite(v) else 0 for v in map(abs, values))
    return {"tensor": told, "values": [number(v) for v in values[:VALUES]], "sum": number(total)}


def evaluate(expression, package, folder, random=False):
    """What describe() says of it; whatever the expression raises."""
    torch = importlib.import_module(package)
    names, threads = names_of(package, folder), torch.get_num_threads()
    *statements, last = expression.split("; ")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec("; ".join(statements), names)
            return describe(eval(last, names), package, random)
    finally:  # what expressions may have set
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.set_printoptions(profile="default")
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.deterministic = False


def agree(got, want):
    """Whether two descriptions are the same, numbers to four digits."""
    if isinstance(want, dict) and isinstance(got, dict):
        return list(got) == list(want) and all(agree(got[key], want[key]) for key in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(got) == len(want) and all(map(agree, got, want))
    if type(want) is float and type(got) in (int, float) or type(got) is float and type(want) is int:
        return math.isclose(got, want, rel_tol=1e-4, abs_tol=1e-5)
    return type(got) is type(want) and got == want


def record():
    """first_week.json.xz, by torch: a description for each expression, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        found = [evaluate(e, "torch", folder, random) for e, (_, random) in expressions().items()]
    lines = [json.dumps(description, separators=(",", ":")) for description in found]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    RECORDED.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def recorded():
    """{expression: (area, whether it is random, its description by torch)}."""
    found, told = expressions(), json.loads(lzma.decompress(RECORDED.read_bytes()))
    assert len(found) == len(told), f"{RECORDED.name} is of other expressions: run first_week.py with --torch-python"
    return {e: (*found[e], description) for e, description in zip(found, told)}


def difference(expression, random, want):
    """Why our package does not do what torch does; None where it does."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            got = evaluate(expression, "scaffolding", folder, random)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None if agree(got, want) else f"{got} instead of {want}"


def compare():
    """{area: (how many run and agree, how many there are)}, and [(expression, why not)]."""
    areas, failures = {}, []
    for expression, (area, random, want) in recorded().items():
        why = difference(expression, random, want)
        good, all_of = areas.get(area, (0, 0))
        areas[area] = (good + (why is None), all_of + 1)
        if why:
            failures.append((expression, why))
    return areas, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-python", help="a Python that has torch: write first_week.json.xz anew")
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.record:
        return record()
    if asked.torch_python:
        subprocess.run([asked.torch_python, __file__, "--record"], check=True)
    areas, failures = compare()
    for expression, why in failures:
        print(f"{expression}\n    {why[:200]}")
    for area, (good, all_of) in areas.items():
        print(f"{area}: {good} of {all_of}")
    good, all_of = (sum(column) for column in zip(*areas.values(), strict=True))
    print(f"run and agree: {good} of {all_of}, {100 * good / all_of:.1f} %")


if __name__ == "__main__":
    sys.exit(main())
