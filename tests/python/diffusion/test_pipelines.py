"""Stable Diffusion's pipelines as the golden files have them, and what only two of them together do.
Every class's pictures: test_every_pipeline.py.
"""

import golden_pipelines
import pytest
from golden_pipelines import CASES, FAMILIES, assert_is, one_thread, run  # noqa: F401

from scaffolding import diffusion

FAMILY = "stable_diffusion"
CONFIGS = {name: config for name, (_, config) in FAMILIES[FAMILY]["networks"].items()}


def filled(name):
    """A network whose weights are the golden files' rule; one for all tests."""
    return golden_pipelines.part(FAMILY, name)


def tokenizer(which="tokenizer"):
    return golden_pipelines.part(FAMILY, which)


def scheduler(name="ddim"):
    return golden_pipelines.part(FAMILY, name)


def make(name="StableDiffusionPipeline", unet=None, schedule="ddim", **others):
    xl = "XL" in name
    unet = unet or ("xl" if xl else "unet")
    parts = {
        "unet": unet,
        "vae": "xl_vae" if xl else "vae",
        "scheduler": schedule,
        "tokenizer": "tokenizer",
        "text_encoder": "text",
    }
    if xl:
        parts |= {"text_encoder_2": "text_2", "tokenizer_2": "tokenizer_2"}
        if unet == "refiner":
            parts |= {"text_encoder": None, "tokenizer": None}
        if name == "StableDiffusionXLImg2ImgPipeline":
            others.setdefault("requires_aesthetics_score", unet == "refiner")
    made = {
        component: golden_pipelines.part(FAMILY, part) for component, part in parts.items() if component not in others
    }
    return getattr(diffusion, name)(**made, **others)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "then" in case])
def test_a_pipeline_goes_on_where_another_stopped(name):
    case = CASES[name]
    stopped = golden_pipelines.images_of(golden_pipelines.pipeline_of(case, FAMILY), case)
    assert stopped.shape[1] == 4  # latents
    assert_is(name, run(case))
