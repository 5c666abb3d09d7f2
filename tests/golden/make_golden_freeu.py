"""Golden pictures with FreeU, by diffusers' pipelines.

    python tests/golden/make_golden_freeu.py    # with torch, diffusers, transformers

Writes freeu.safetensors, the pictures of two of make_golden_pipelines_stable_diffusion.py's cases.
"""

import diffusers
import transformers
from make_golden_pipelines_stable_diffusion import SCHEDULERS, cases, configs, key
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture
from safetensors.numpy import save_file

CASES = ("t2i_ddim", "i2i_euler")
FACTORS = {"s1": 0.9, "s2": 0.2, "b1": 1.5, "b2": 1.6}


def main():
    fixture = PipelineFixture("freeu")
    fixture.tokenizer("tokenizer", transformers.CLIPTokenizer)
    classes = {
        "text": transformers.CLIPTextModel,
        "unet": diffusers.UNet2DConditionModel,
        "vae": diffusers.AutoencoderKL,
    }
    for name, config in configs(len(fixture.parts["tokenizer"])).items():
        if name in classes:
            fixture.network(name, classes[name], config, key if name == "text" else lambda k: k)
    fixture.parts["unet"].enable_freeu(**FACTORS)
    for name in ("ddim", "euler"):
        cls, config = SCHEDULERS[name]
        fixture.scheduler(name, getattr(diffusers, cls), config)
    unchecked = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    for case in cases():
        if case["name"] in CASES:
            fixture.pipeline(case["cls"], None, unchecked)
            fixture.case(**case)
    path = FOLDER.parent / "freeu.safetensors"
    save_file(fixture.pictures, path)
    path.chmod(0o644)


if __name__ == "__main__":
    main()
