"""What the golden files of models hold, for those who write them (model_fixture.py) and those who compare
(test_every_model.py).

models/FAMILY.json.gz:

    made_by   versions of torch, diffusers, transformers
    models    by class name:
                library              whose class it is: diffusers, transformers, or "reference" where the script writes
                                     one itself
                config               its fields and their defaults
                signatures           of forward and other methods: {argument: {} or {"default": value}}
                required             {field: value} without which ours cannot be made
                differences          {"config" or a method: {field or argument: why ours differs}}
                checkpointing        whether theirs can compute parts again in the backward pass
                kept_in_float32      {dtype: tensors of the first case that loading in it leaves in float32}
                full_size            names of files NAME.txt in keys.tar.xz: a line "# CLASS CONFIG", then name and
                                     shape of every tensor
    cases     calls of small models: name, class, config, method, arguments, outputs (name: shape), inputs (those with a
              gradient), gradients, tolerance
    extra     shapes of tensors and other things that only a family's own tests read

models/FAMILY.safetensors.xz: CASE/OUTPUT, thinned to MOST numbers; CASE/gradients, a row for each parameter in the
order of sorted names: the norm and KEPT sums; CASE/gradient of INPUT. Weights and inputs follow hashed_weights.py, so
that files hold none.

An argument is a number, a text or None as it is; a list, which is a tensor of these numbers; {"values": 77}, a tensor
without dimensions; `floats(...)`, a tensor of numbers by rule; {"list": [...]} or {"dict": {...}} of such.
"""

import functools
import json
import pathlib

import numpy as np
from hashed_weights import folded, hashed
from packed import read_families, unpacked_folder

FOLDER = pathlib.Path(__file__).parent
MOST, KEPT = 256, 2


def floats(*shape, name=None):
    """An argument: numbers in [-1, 1) by the rule, from this name or else from the argument's. It gets a gradient."""
    return {"shape": list(shape)} | ({} if name is None else {"name": name})


def arguments_of(case, make):
    """The call's keywords. make(path, array, by_rule) gives a tensor; paths of parts are
    "added_cond_kwargs.text_embeds", "residuals.0".
    """

    def value(path, spec):
        if isinstance(spec, list) or (isinstance(spec, dict) and "values" in spec):
            array = np.array(spec if isinstance(spec, list) else spec["values"])
            return make(path, array.astype(np.float32) if array.dtype.kind == "f" else array, False)
        if not isinstance(spec, dict):
            return spec
        if "shape" in spec:
            return make(path, hashed(spec.get("name", path), tuple(spec["shape"])), True)
        if "list" in spec:
            return [value(f"{path}.{i}", part) for i, part in enumerate(spec["list"])]
        return {name: value(f"{path}.{name}", part) for name, part in spec["dict"].items()}

    return {name: value(name, spec) for name, spec in case["arguments"].items()}


def outputs_of(output, tensor_type, name="output"):
    """{name: tensor} of what a call returned: a tensor, a tuple, a dict of those,
    or a distribution with `parameters`.
    """
    if isinstance(output, tensor_type):
        return {name: output}
    inner = "" if name == "output" else name + "."
    if hasattr(output, "items"):
        return {k: t for part, o in output.items() for k, t in outputs_of(o, tensor_type, inner + part).items()}
    if isinstance(output, (tuple, list)):
        return {k: t for i, o in enumerate(output) for k, t in outputs_of(o, tensor_type, f"{inner}{i}").items()}
    if hasattr(output, "parameters"):
        return outputs_of(output.parameters, tensor_type, inner + "parameters")
    return {}


def cotangent(output_name, shape):
    """What an output is multiplied by before all are added up and differentiated."""
    return hashed("cotangent of " + output_name, tuple(shape))


def thinned(name, array):
    """An array as at most MOST numbers: its values, flat, or sums over all of them."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat if flat.size <= MOST else folded(name, flat, MOST).astype(flat.dtype)


def away(name, got, want, least=1e-6):
    """The most by which an array differs from the numbers of a golden file, relative to its largest value, or `least`.

    So that no value may be wrong by more because others are added to it, of sums too; but where they are of more than
    four values, roundings alone grow with the root of their number.
    """
    wrong = np.abs(thinned(name, np.asarray(got, np.float64)) - want).max()
    grown = max(1, got.size / MOST / 4) ** 0.5
    return wrong / max(min(grown * np.abs(got).max(), np.abs(want).max()), least)


def gradient_row(name, gradient):
    """Norm of a parameter's gradient, and KEPT sums over it."""
    flat = np.ascontiguousarray(gradient).reshape(-1).astype(np.float64)
    return np.concatenate([[np.linalg.norm(flat)], folded(name, flat, KEPT)]).astype(np.float32)


def families():
    """{family: its JSON}"""
    return read_families(FOLDER / "models")


@functools.cache
def _keys():
    return unpacked_folder(FOLDER / "keys.tar.xz")


def keys_folder():
    """Where the files of keys.tar.xz lie."""
    return pathlib.Path(_keys().name)


def published(name):
    """(class name, config, {key: shape}) of NAME.txt in keys.tar.xz"""
    head, *lines = (keys_folder() / f"{name}.txt").read_text().splitlines()
    class_name, config = head.removeprefix("# ").split(" ", 1)
    return (
        class_name,
        json.loads(config),
        {key: json.loads(shape) for key, shape in (line.split(" ", 1) for line in lines)},
    )
