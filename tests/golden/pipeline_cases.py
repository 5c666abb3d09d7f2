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
    cases       name, pipeline, components (by name in the three tables, a list of names, or null), options of the
                constructor, call, seed (a list: one for each picture); then: pipeline, components and call of a second
                one that goes on with the first one's latents as its image; shape: of what comes out, pictures [B, H, W,
                3], clips [B, T, H, W, 3], or latents

pipelines/FAMILY.safetensors.xz: what came out of each case: int16, levels_of() pictures and clips; uint8, pictures that
diffusers gives in levels; float32, latents and other tensors, thinned as model_cases.py does, and NAME.audio, the sound
of clips.

An argument of a call is as JSON has it, but for {"picture": [height, width]}, {"mask": [height, width]}, {"floats":
shape}, {"numbers": [...]}, {"tuple": [...]}, {"list": [...]} of such, {"callback": name} and {"conditions": [{"frames":
n, "size": [height, width], "index": i, "strength": s}, ...]}: see pipeline_inputs.py.
"""

import pathlib

import numpy as np
from hashed_weights import folded
from packed import read_families
from pipeline_inputs import CALLBACKS, embeds, mask, picture

FOLDER = pathlib.Path(__file__).parent / "pipelines"
IN_A_SUM, PARTS_OF_A_LEVEL = 16, 16


def arguments_of(call, make):
    """The call's keywords. make(kind, array) gives a "picture", a "mask" or a "tensor"."""

    def value(name, spec):
        if not isinstance(spec, dict):
            return spec
        ((kind, given),) = spec.items()
        if kind == "list":
            return [value(f"{name}.{i}", part) for i, part in enumerate(given)]
        if kind == "tuple":
            return tuple(given)
        if kind == "numbers":
            return make("tensor", np.array(given))
        if kind == "floats":
            return make("tensor", embeds(name, given))
        if kind == "conditions":
            return [
                make("condition", {**c, "frames": [picture(*c["size"]) for _ in range(c["frames"])]}) for c in given
            ]
        if kind == "callback":
            return CALLBACKS[given]
        return make(kind, {"picture": picture, "mask": mask}[kind](*given))

    return {name: value(name, spec) for name, spec in call.items()}


def sums_of(pictures):
    """Pictures in [0, 1] as sums of IN_A_SUM values each, over all of them, in levels of 255."""
    return 255 * folded("pictures", np.asarray(pictures, np.float64) - 0.5, -(-pictures.size // IN_A_SUM))


def levels_of(pictures):
    """The same in an int16's parts of a level."""
    return (sums_of(pictures) * PARTS_OF_A_LEVEL).round().astype(np.int16)


def sums_off(got, want):
    """The most by which a sum over pictures in [0, 1] differs from a golden file's, in levels of 255: what one value is
    off by, all of its sum is.
    """
    sums = sums_of(got)
    assert sums.shape == want.shape, f"{got.shape} has {sums.size} sums, and the golden file {want.size}"
    return np.abs(sums - want / PARTS_OF_A_LEVEL).max()


def families():
    """{family: its JSON}"""
    return read_families(FOLDER)
