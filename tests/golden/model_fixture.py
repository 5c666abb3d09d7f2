"""Writes the golden files of a family of models: what diffusers or transformers compute with small networks, and the
keys of the published ones.

A script make_golden_models_FAMILY.py is a list of cases; run it with a Python that has torch,
diffusers and transformers:

    from diffusers import DiTTransformer2DModel
    from model_fixture import ModelFixture, floats

    fixture = ModelFixture("dit")
    fixture.model(DiTTransformer2DModel, full_size={"dit_xl_2": {"num_layers": 28, "out_channels": 8}},
                  differences={"forward": {"some_argument": "why ours differs from theirs"}, "config": {}})
    tiny = {"num_attention_heads": 2, "attention_head_dim": 10, "num_layers": 2}
    fixture.case("plain", DiTTransformer2DModel, tiny, {"hidden_states": floats(2, 4, 8, 8), "timestep": [17, 903],
    "class_labels": [3, 7]}) fixture.write()

It writes models/FAMILY.json.gz, models/FAMILY.safetensors.xz and NAME.txt in keys.tar.xz for each name in full_size;
model_cases.py says what is in them. test_every_model.py finds them and does the rest for every class that the library
registers: keys, outputs, gradients, files, dtypes, the meta device, signatures. A family's own test file holds only
what no other model has; numbers for it go through `fixture.extra(name, tensor_or_json)`.

Everything is computed in float64 from float32 weights, so that what is compared is the error of one side. Small
integers in lists are int64 tensors, lists of floats float32 ones (timesteps), which keep their dtype; `floats(...)`
becomes float64 and gets a gradient. Choose a first case that trains (gradients=True): files, casts and checkpointing
are tried on a class's first one.

Where a file's keys are not those of the class at hand (transformers 5 left out a prefix), pass key=function to model().
A network that neither library has comes from a torch.nn.Module of its name in the script:
its constructor's keywords are the config.
"""

import inspect
import json
import tempfile

import diffusers
import numpy as np
import torch
import transformers
from hashed_weights import hashed_weight
from model_cases import FOLDER, arguments_of, cotangent, floats, gradient_row, outputs_of, thinned
from packed import JSON_SUFFIX, LONG_SUFFIX, write_json, write_member, write_packed
from safetensors.numpy import save

MOST_PARAMETERS = 20_000_000  # of a case: the tests compute each many times
torch.set_num_threads(2)
diffusers.logging.set_verbosity_error()
transformers.logging.set_verbosity_error()


def plain(value):
    """As JSON gives it back; what JSON does not know by its repr."""
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return repr(value)


def signature(function):
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return {p.name: {} if p.default is p.empty else {"default": plain(p.default)} for p in parameters}


def of_transformers(cls):
    return issubclass(cls, transformers.PreTrainedModel)


def config_of(cls):
    """Fields of the config that the class itself has, and their defaults."""
    if not of_transformers(cls):
        return {name: field.get("default") for name, field in signature(cls.__init__).items()}
    fields, defaults = signature(cls.config_class.__init__), signature(transformers.PretrainedConfig.__init__)
    return {name: field.get("default") for name, field in fields.items() if name not in defaults}


def made(cls, config):
    return cls(cls.config_class(**config)) if of_transformers(cls) else cls(**config)


def tensors_of(model, key):
    """{name in files: tensor}; of tied tensors the first."""
    saved = model.state_dict()
    buffers = {name: b for name, b in model.named_buffers() if name in saved}
    return {key(name): t for name, t in (*model.named_parameters(), *buffers.items())}


def text_of(document):
    """JSON with a line for each entry of a part."""

    def part(value):
        if isinstance(value, list):
            return "[\n" + ",\n".join("  " + json.dumps(v) for v in value) + "\n ]"
        return "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"

    return "{\n" + ",\n".join(f" {json.dumps(k)}: {part(v)}" for k, v in document.items()) + "\n}\n"


def kept_in_float32(model, key):
    """{dtype: names of the tensors that loading in it leaves in float32}"""
    if not hasattr(model, "save_pretrained"):
        return {}
    kept = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for dtype in (torch.float16, torch.bfloat16):
            loaded = type(model).from_pretrained(
                folder, **{"dtype" if of_transformers(type(model)) else "torch_dtype": dtype}
            )
            names = sorted(k for k, t in tensors_of(loaded, key).items() if t.dtype == torch.float32)
            kept |= {str(dtype).removeprefix("torch."): names} if names else {}
    return kept


def rounded(array, largest, bits):
    """To so many bits of a largest value: the rest would not compress, and tests ask for a share of that value, 1e-5 of
    outputs and 1e-4 of gradients.
    """
    step = 2.0 ** (np.frexp(largest)[1] - 1 - bits)
    return (array / step).round() * step


class ModelFixture:
    def __init__(self, family):
        self.family, self.keys, self.names, self.tensors = family, {}, {}, {}
        versions = {module.__name__: module.__version__ for module in (torch, diffusers, transformers)}
        self.document = {"made_by": versions, "models": {}, "cases": [], "extra": {}}

    def model(
        self, cls, full_size, differences=None, methods=("forward",), key=lambda name: name, required=None, name=None
    ):
        """A class that the library registers under its name, or under this one.

        full_size: {name of a file in keys.tar.xz: config}. differences: {"config" or a method: {field or argument: why
        ours differs}}. required: fields without which ours refuses to be made.
        """
        self.keys[cls], self.names[cls] = key, name or cls.__name__
        library = cls.__module__.split(".")[0]
        self.document["models"][self.names[cls]] = {
            "library": library if library in ("diffusers", "transformers") else "reference",
            "config": config_of(cls),
            "signatures": {method: signature(getattr(cls, method)) for method in methods},
            "required": required or {},
            "differences": differences or {},
            "checkpointing": bool(
                getattr(cls, "supports_gradient_checkpointing", getattr(cls, "_supports_gradient_checkpointing", True))
            ),
            "full_size": list(full_size),
        }
        for file, config in full_size.items():
            with torch.device("meta"):
                state = tensors_of(made(cls, config), key)
            lines = [
                f"# {self.names[cls]} {json.dumps(config)}",
                *sorted(f"{k} {list(t.shape)}" for k, t in state.items()),
            ]
            write_member(FOLDER / "keys.tar.xz", f"{file}.txt", "\n".join(lines) + "\n")

    def filled(self, cls, config):
        """A model in eval mode whose weights follow the rule."""
        model = made(cls, config).eval()
        with torch.no_grad():
            for name, t in tensors_of(model, self.keys[cls]).items():
                if t.is_floating_point():
                    t.copy_(torch.from_numpy(hashed_weight(name, tuple(t.shape))))
        return model

    def case(
        self, name, cls, config, arguments, *, method="forward", gradients=True, tolerance=None, dtype=torch.float64
    ):
        """A call of a small model. tolerance: of outputs, relative to the largest value,
        where 1e-5 is not what float32 can do.
        """
        with torch.device("meta"):
            numbers = sum(t.numel() for t in made(cls, config).parameters())
        if numbers > MOST_PARAMETERS:
            raise SystemExit(
                f"{self.family}: {name} has {numbers / 1e6:.0f} million parameters: give its config fewer layers and "
                "channels"
            )
        case = {
            "name": name,
            "class": self.names[cls],
            "config": plain(config),
            "method": method,
            "arguments": arguments,
            "gradients": gradients,
        }
        entry, model, inputs = self.document["models"][self.names[cls]], self.filled(cls, config), {}
        if "kept_in_float32" not in entry:
            entry["kept_in_float32"] = kept_in_float32(model, self.keys[cls])
        model = model.to(dtype)

        def make(path, array, by_rule):
            t = torch.from_numpy(array)
            if by_rule:
                t = inputs[path] = t.to(dtype).requires_grad_(gradients)
            return t

        with torch.set_grad_enabled(gradients):
            outputs = outputs_of(getattr(model, method)(**arguments_of(case, make)), torch.Tensor)
        case["outputs"] = {k: list(y.shape) for k, y in outputs.items()}
        for k, y in outputs.items():
            self.put(f"{name}/{k}", y)
        if gradients:
            sum((y * torch.from_numpy(cotangent(k, y.shape)).to(dtype)).sum() for k, y in outputs.items()).backward()
            parameters = {self.keys[cls](k): p for k, p in model.named_parameters()}
            rows = [
                gradient_row(k, np.zeros(p.shape) if p.grad is None else p.grad.numpy())
                for k, p in sorted(parameters.items())
            ]
            self.tensors[f"{name}/gradients"] = np.stack(rows)
            case["inputs"] = [path for path, t in inputs.items() if t.grad is not None]
            for path in case["inputs"]:
                self.put(f"{name}/gradient of {path}", inputs[path].grad)
        if tolerance:
            case["tolerance"] = tolerance
        self.document["cases"].append(case)

    def put(self, name, tensor):
        array, bits = tensor.detach().double().numpy(), 17 if "gradient of" in name else 20
        numbers = thinned(name, array)
        largest = min(np.abs(array).max(initial=0), np.abs(numbers).max(initial=0))
        self.tensors[name] = rounded(numbers, largest, bits).astype(np.float32)

    def extra(self, name, value):
        """What only the family's own tests read: a tensor, thinned, whose shape stands in the JSON,
        or anything that JSON has.
        """
        if isinstance(value, torch.Tensor):
            self.put(name, value)
            value = list(value.shape)
        self.document["extra"][name] = value

    def write(self):
        for name in {c["class"] for c in self.document["cases"]} ^ set(self.document["models"]):
            raise SystemExit(f"{self.family}: {name} has no case, or no model() before its cases")
        write_json(FOLDER / "models" / f"{self.family}{JSON_SUFFIX}", text_of(self.document))
        path = FOLDER / "models" / f"{self.family}{LONG_SUFFIX}"
        write_packed(path, save(self.tensors))  # versions are in the JSON: metadata has its entries in any order
        print(f"{self.family}: {len(self.document['cases'])} cases, {path.stat().st_size} bytes")


__all__ = ["ModelFixture", "floats"]
