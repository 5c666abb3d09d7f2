"""Writes the golden files of a family of pipelines: pictures that diffusers makes with tiny networks whose weights are
hashed_weights.py's.

A script make_golden_pipelines_FAMILY.py names the parts and lists calls; run it with a Python that has torch,
diffusers and transformers:

    fixture = PipelineFixture("dit")
    fixture.network("transformer", DiTTransformer2DModel, {"num_layers": 2, ...})
    fixture.network("vae", AutoencoderKL, {...})
    fixture.scheduler("ddim", DDIMScheduler, {...})
    fixture.pipeline(DiTPipeline, differences={"__call__": {"some_argument": "why ours differs from theirs"}})
    parts = {"transformer": "transformer", "vae": "vae", "scheduler": "ddim"}
    fixture.case("labels", DiTPipeline, parts, {"class_labels": [1, 2], "num_inference_steps": 4}, seed=3)
    fixture.write()

It writes pipelines/FAMILY.json.gz and pipelines/FAMILY.safetensors.xz; pipeline_cases.py says what is in them and how a
call says "a picture" or "a callback". test_every_pipeline.py finds them and does the rest for every pipeline class of
the library: pictures, folders, single files, dtypes, output types, callbacks, signatures. A class's first case is the
one that it tries these on: let it be a plain one of few steps. Networks of few channels, and configs in which pictures
are not clipped, tell errors apart best.
"""

import inspect
import json

import diffusers
import numpy as np
import PIL.Image
import torch
import transformers
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
from hashed_weights import hashed_weight
from model_cases import thinned
from model_fixture import made, plain, signature, tensors_of, text_of
from packed import JSON_SUFFIX, LONG_SUFFIX, write_json, write_packed
from pipeline_cases import FOLDER, arguments_of, levels_of
from safetensors.numpy import save

# Where every pipeline of ours differs from diffusers'; a family's own differences are its script's.
PARTS = "a pipeline may be made of some parts, and asks for the others where it needs them"
LOADED = dict.fromkeys(
    ("torch_dtype", "variant", "use_safetensors", "dtype", "device", "device_map"), "diffusers takes it among **kwargs"
)
OUTPUT = "None is 'pil' where Pillow is, 'np' where it is not"


def differences_of(signatures, more):
    usual = {
        "__init__": {n: PARTS for n, p in signatures["__init__"].items() if "default" not in p},
        "from_pretrained": LOADED,
    }
    usual["__call__"] = {"output_type": OUTPUT} if "output_type" in signatures["__call__"] else {}
    return {method: {**usual.get(method, {}), **(more or {}).get(method, {})} for method in {**usual, **(more or {})}}


def in_levels(pictures):
    """uint8, in C's order: safetensors writes what lies in memory."""
    return pictures if pictures.dtype == np.uint8 else (pictures * 255).round().astype("uint8", order="C")


def kept(name, out):
    """What a golden file holds of what came out of a call."""
    if isinstance(out, torch.Tensor):
        return thinned(name, out.numpy())
    return out if out.dtype == np.uint8 else levels_of(out)


class PipelineFixture:
    def __init__(self, family):
        torch.set_num_threads(1)
        versions = {module.__name__: module.__version__ for module in (torch, diffusers, transformers)}
        self.family, self.parts, self.classes, self.only_theirs, self.pictures = family, {None: None}, {}, {}, {}
        self.document = {
            "made_by": versions,
            "networks": {},
            "schedulers": {},
            "tokenizers": {},
            "pipelines": {},
            "cases": [],
        }

    def network(self, name, cls, config, key=lambda name: name):
        """key: as in model_fixture.py."""
        model = made(cls, plain(config)).eval()
        with torch.no_grad():
            for k, t in tensors_of(model, key).items():
                if t.is_floating_point():
                    t.copy_(torch.from_numpy(hashed_weight(k, tuple(t.shape))))
        self.parts[name] = model
        self.document["networks"][name] = [cls.__name__, plain(config)]

    def scheduler(self, name, cls, config):
        self.parts[name] = lambda: cls(**config)
        self.document["schedulers"][name] = [cls.__name__, plain(config)]

    def tokenizer(self, name, cls):
        """Its files are in pipelines/NAME/."""
        self.parts[name] = cls.from_pretrained(FOLDER / name)
        self.document["tokenizers"][name] = cls.__name__

    def pipeline(self, cls, differences=None, only_theirs=None):
        """A class that the library has under this name.

        differences: {method: {argument: why ours differs}} beside those that all pipelines have. only_theirs: what
        diffusers' constructor is given besides."""
        self.classes[cls.__name__], self.only_theirs[cls.__name__] = cls, only_theirs or {}
        methods = ("__init__", "__call__", "from_pretrained")
        signatures = {method: signature(inspect.unwrap(getattr(cls, method))) for method in methods}
        for names in signatures.values():
            names.pop("cls", None)
        self.document["pipelines"][cls.__name__] = {
            "signatures": signatures,
            "differences": differences_of(signatures, differences),
            "index": {},
        }

    def made(self, class_name, components, options):
        def made_of(part):
            if isinstance(part, list):
                return [made_of(p) for p in part]
            return self.parts[part]() if inspect.isfunction(self.parts[part]) else self.parts[part]

        parts = {name: made_of(part) for name, part in components.items()}
        pipe = self.classes[class_name](**parts, **options, **self.only_theirs[class_name])
        pipe.set_progress_bar_config(disable=True)
        index = self.document["pipelines"][class_name]["index"]  # of the first case
        index.update(
            {
                k: list(row)
                for k, row in pipe.config.items()
                if not index and isinstance(row, (list, tuple)) and row[0] is not None
            }
        )
        return pipe

    def case(self, name, cls, components, call, *, seed=0, options=None, then=None):
        case = {
            "name": name,
            "pipeline": cls.__name__,
            "components": components,
            "options": options or {},
            "call": call,
            "seed": seed,
        }
        case |= {"then": then} if then else {}

        def make(kind, array):
            if kind == "condition":
                frames = [PIL.Image.fromarray(f) for f in array["frames"]]
                return LTX2VideoCondition(frames, index=array["index"], strength=array["strength"], crf=0)
            return torch.from_numpy(array) if kind == "tensor" else PIL.Image.fromarray(array)

        def pictures(pipe, call, **more):
            arguments = {"output_type": "np", **arguments_of(plain(call), make), **more}  # lists are written to
            if "padding_mask_crop" in arguments:
                arguments["output_type"] = "pil"
            seeds = [torch.Generator("cpu").manual_seed(s) for s in (seed if isinstance(seed, list) else [seed])]
            result = pipe(generator=seeds if isinstance(seed, list) else seeds[0], **arguments)
            if "audio" in result:
                self.pictures[f"{name}.audio"] = torch.as_tensor(result.audio)
            return result.frames if hasattr(result, "frames") else result.images

        out = pictures(self.made(cls.__name__, components, case["options"]), call)
        if then:
            out = pictures(
                self.made(then["pipeline"], then["components"], then.get("options", {})), then["call"], image=out
            )
        if isinstance(out, list):
            out = np.stack([np.array(i) for i in out])
        self.pictures[name] = out
        self.document["cases"].append(case | {"shape": list(out.shape)})
        levels = out.numpy() if isinstance(out, torch.Tensor) else in_levels(out)
        clipped = float(((levels == 0) | (levels == 255)).mean())
        print(name, levels.shape, levels.dtype, "mean", round(float(levels.mean()), 1), "clipped", round(clipped, 2))

    def write(self):
        for name in {c["pipeline"] for c in self.document["cases"]} ^ set(self.document["pipelines"]):
            raise SystemExit(f"{self.family}: {name} has no case, or no pipeline() before its cases")
        write_json(FOLDER / f"{self.family}{JSON_SUFFIX}", text_of(json.loads(json.dumps(self.document))))
        write_packed(
            FOLDER / f"{self.family}{LONG_SUFFIX}", save({name: kept(name, out) for name, out in self.pictures.items()})
        )
