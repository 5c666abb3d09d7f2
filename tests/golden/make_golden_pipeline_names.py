"""Writes tests/golden/pipeline_names.json.xz: the public names of diffusers' pipelines, each without those that all
have, which are under "DiffusionPipeline".

    TORCH_PYTHON tests/golden/make_golden_pipeline_names.py
"""

import json
import pathlib

import diffusers
from packed import write_json

CLASSES = """CogVideoXImageToVideoPipeline CogVideoXPipeline DDIMPipeline DDPMPipeline DiTPipeline PixArtSigmaPipeline
    StableDiffusionImg2ImgPipeline StableDiffusionInpaintPipeline StableDiffusionPipeline
    StableDiffusionXLImg2ImgPipeline StableDiffusionXLInpaintPipeline StableDiffusionXLPipeline""".split()


def public(cls):
    return {n for n in dir(cls) if not n.startswith("_")}


def main():
    common = public(diffusers.DiffusionPipeline)
    names = {"DiffusionPipeline": sorted(common)}
    names |= {c: sorted(public(getattr(diffusers, c)) - common) for c in CLASSES}
    golden = json.dumps({"diffusers": diffusers.__version__, "names": names}, indent=0) + "\n"
    write_json(pathlib.Path(__file__).with_name("pipeline_names.json.xz"), golden)


if __name__ == "__main__":
    main()
