"""What the golden files of pipelines hold, for those who write them (pipeline_fixture.py) and those who compare
(test_every_pipeline.py).

pipelines/FAMILY.json.gz:

    made_by     versions of torch, diffusers, transformers
    networks    {name: [class, config]}; weights follow hashed_weights.py
    schedulers  {name: [class, config]}
    tokenizers  {name: class}; its files are in pipelines/NAME/
    pipelines   by class name:
                  signatures   of __init__, __call__, from_pretrained: {argument: {} or {"default": value}}
                  differences  {method: {argument: why ours differs}}
                  index        {component: [library, class]} as model_index.json names them
    cases       name, pipeline, components (by name in the three tables, or null), options of the constructor, call,
                seed (a list: one for each picture); then: pipeline, components and call of a second one that goes on
                with the first one's latents as its image

pipelines/FAMILY.safetensors.xz: what came out of each case, uint8 [B, H, W, 3], of clips [B, T, H, W, 3], or
float32 where it is latents.

An argument of a call is as JSON has it, but for {"picture": [height, width]}, {"mask": [height, width]}, {"floats":
shape}, {"numbers": [...]}, {"tuple": [...]} and {"callback": name}: see pipeline_inputs.py.
"""

import pathlib

import numpy as np
from packed import read_families
from pipeline_inputs import CALLBACKS, embeds, mask, picture

FOLDER = pathlib.Path(__file__).parent / "pipelines"


def arguments_of(call, make):
    """The call's keywords. make(kind, array) gives a "picture", a "mask" or a "tensor"."""

    def value(name, spec):
        if not isinstance(spec, dict):
            return spec
        ((kind, given),) = spec.items()
        if kind == "tuple":
            return tuple(given)
        if kind == "numbers":
            return make("tensor", np.array(given))
        if kind == "floats":
            return make("tensor", embeds(name, given))
        if kind == "callback":
            return CALLBACKS[given]
        return make(kind, {"picture": picture, "mask": mask}[kind](*given))

    return {name: value(name, spec) for name, spec in call.items()}


def families():
    """{family: its JSON}"""
    return read_families(FOLDER)
