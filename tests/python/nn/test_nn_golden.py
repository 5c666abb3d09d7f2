"""Every layer against PyTorch: initial parameters from a seed, state-dict keys, repr,
output and gradients (tests/golden/make_golden_nn.py).
"""

import gzip
import json

import numpy as np
import pytest
from folders import GOLDEN
from packed import unpacked

import scaffolding as sf
from scaffolding import nn

FILES = {
    name: json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))
    for name in ("nn", "nn_recurrent", "nn_margins", "nn_parametrized")
}
CASES = [(name, number, case) for name, file in FILES.items() for number, case in enumerate(file["cases"])]


@pytest.fixture(scope="module")
def numbers_of():
    return {name: apart(read_safetensors(GOLDEN / f"{name}.safetensors.xz"), file) for name, file in FILES.items()}


def apart(tensors, file):
    """Numbers by name; some files hold those of a case in one tensor."""
    numbers = dict(tensors)
    for i, case in enumerate(file["cases"]):
        if "sizes" in case:
            parts = np.split(numbers.pop(str(i)), np.cumsum(case["sizes"])[:-1])
            numbers.update((f"{i}.{name}", part) for name, part in zip(case["numbers"], parts))
    return numbers


def read_safetensors(path):
    data = unpacked(path)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], types[entry["dtype"]])
    return out


def thinned(t, kept):
    flat = t.detach().reshape(-1).numpy()
    return flat if flat.size <= kept else flat[[i * (flat.size - 1) // (kept - 1) for i in range(kept)]]


def close(got, want, what, tolerance=1e-5):
    assert got.shape == want.shape, what
    scale = max(float(np.abs(want).max(initial=0)), 1e-3)
    worst = float(np.abs(got.astype(np.float64) - want).max(initial=0))
    assert worst <= tolerance * scale, f"{what}: off by {worst:.2e} at a scale of {scale:.2e}"


def tensors_of(outputs):
    """Tensors of nested tuples, absent ones left out."""
    if isinstance(outputs, tuple):
        return [t for o in outputs for t in tensors_of(o)]
    return [] if outputs is None else [outputs]


@pytest.mark.parametrize("name, number, case", CASES, ids=[case["layer"].replace("nn.", "") for _, _, case in CASES])
def test_layer(name, number, case, numbers_of):
    numbers, kept = numbers_of[name], FILES[name]["kept"]
    scope = {"nn": nn, "torch": sf, "randn": sf.randn, "randint": sf.randint}
    evaluate, expression = case["layer"].startswith("eval:"), case["layer"].removeprefix("eval:")
    sf.manual_seed(number)
    module = eval(expression, scope)
    state = module.state_dict()
    assert {k: list(v.shape) for k, v in state.items()} == case["keys"]
    assert list(state) == list(case["keys"])
    assert repr(module) == case["repr"]
    # normal numbers are torch's bit for bit only where the processor has FMA
    normal = "Embedding" in expression or "bias_kv" in expression or name == "nn_parametrized"
    for key, value in state.items():
        close(thinned(value, kept), numbers[f"{number}.initial.{key}"], f"initial {key}", 1e-6 if normal else 0)
    module.train(not evaluate)
    arguments = list(eval(f"({case['inputs']},)", scope))
    leaves = [
        a.detach().requires_grad_() if a.is_floating_point() and not bool((a.abs() == 1).all()) else a
        for a in arguments
    ]
    outputs = module(*[a * 1 if a.requires_grad else a for a in leaves], **eval(f"dict({case['kwargs']})", scope))
    outputs = tensors_of(outputs)
    total = 0
    for i, y in enumerate(outputs):
        close(thinned(y, kept), numbers[f"{number}.output.{i}"], f"output {i}")
        if y.requires_grad:
            total = total + (y * sf.cos(sf.arange(y.numel(), dtype=y.dtype) + i).reshape(y.shape)).sum()
    if isinstance(total, sf.Tensor):
        total.backward()
    found = {f"initial.{k}" for k in state} | {f"output.{i}" for i in range(len(outputs))}
    for i, a in enumerate(leaves):
        if a.requires_grad and a.grad is not None:
            found.add(f"input.{i}")
            close(thinned(a.grad, kept), numbers[f"{number}.input.{i}"], f"gradient of input {i}")
    for name, p in module.named_parameters():
        if p.grad is not None:
            found.add(f"gradient.{name}")
            close(thinned(p.grad, kept), numbers[f"{number}.gradient.{name}"], f"gradient of {name}")
    for name, b in module.named_buffers():
        found.add(f"buffer.{name}")
        close(thinned(b, kept), numbers[f"{number}.buffer.{name}"], f"buffer {name}")
    assert sorted(found) == case["numbers"]


def test_every_layer_is_covered():
    """A layer that no case names is a layer nobody compares with PyTorch."""
    text = " ".join(case["layer"] for _, _, case in CASES)
    # a part of MultiheadAttention
    ours = {name for name in sf._core._layer_names} - {"NonDynamicallyQuantizableLinear"}
    # AlphaDropout: its formula and random numbers are ops/dropout's, compared there. Quantised layers: with
    # bitsandbytes in test_quantize.py, with the gguf package in test_gguf.py; Conv2dInt8 with float64 in C++.
    family = ["AlphaDropout", "LinearNF4", "LinearFP4", "LinearInt8", "LinearFP8"]
    family += ["LinearGGUF", "Conv2dGGUF", "EmbeddingGGUF", "Conv2dInt8"]
    # one class, all modes above
    pads = {
        f"{kind}Pad{d}d" for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular") for d in (1, 2, 3)
    }
    assert {name for name in ours - pads if f"nn.{name}(" not in text} == set(family)
