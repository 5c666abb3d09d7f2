"""Golden pictures of diffusers' pipelines whose networks were changed as people change them there: without a seam,
once every Conv2d of the UNet and the VAE has padding_mode = "circular"; and with FreeU.

    python tests/golden/make_golden_changed_networks.py    # with torch, diffusers, transformers

Writes seamless.safetensors and freeu.safetensors, the pictures of two of make_golden_pipelines_stable_diffusion.py's
cases.
"""

import diffusers
import torch
import transformers
from make_golden_pipelines_stable_diffusion import SCHEDULERS, cases, configs, key
from pipeline_cases import FOLDER
from pipeline_fixture import PipelineFixture, in_levels
from safetensors.numpy import save_file

CASES = ("t2i_ddim", "i2i_euler")


def seamless(parts):
    for name in ("unet", "vae"):
        for module in parts[name].modules():
            if isinstance(module, torch.nn.Conv2d):
                module.padding_mode = "circular"


def freeu(parts):
    parts["unet"].enable_freeu(s1=0.9, s2=0.2, b1=1.5, b2=1.6)


def write(name, change):
    fixture = PipelineFixture(name)
    fixture.tokenizer("tokenizer", transformers.CLIPTokenizer)
    classes = {
        "text": transformers.CLIPTextModel,
        "unet": diffusers.UNet2DConditionModel,
        "vae": diffusers.AutoencoderKL,
    }
    for part, config in configs(len(fixture.parts["tokenizer"])).items():
        if part in classes:
            fixture.network(part, classes[part], config, key if part == "text" else lambda k: k)
    change(fixture.parts)
    for scheduler in ("ddim", "euler"):
        cls, config = SCHEDULERS[scheduler]
        fixture.scheduler(scheduler, getattr(diffusers, cls), config)
    unchecked = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    for case in cases():
        if case["name"] in CASES:
            fixture.pipeline(case["cls"], None, unchecked)
            fixture.case(**case)
    path = FOLDER.parent / f"{name}.safetensors"
    save_file({name: in_levels(out) for name, out in fixture.pictures.items()}, path)
    path.chmod(0o644)


if __name__ == "__main__":
    write("seamless", seamless)
    write("freeu", freeu)
