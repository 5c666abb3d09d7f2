"""Pipelines: prompts to pictures, with diffusers' classes, arguments, files and numbers.

>>> pipe = StableDiffusionPipeline.from_pretrained("stable-diffusion-v1-5")
>>> pipe("a photo of an astronaut", generator=sf.Generator().manual_seed(0)).images[0].save("astronaut.png")

A class is made from what C++ registered. Every module of this package is looked into for those that shape arguments in
Python; a new one needs no line here."""

import os
from importlib import import_module

from .auto_pipeline import AutoPipelineForImage2Image, AutoPipelineForInpainting, AutoPipelineForText2Image
from .hires_fix import hires
from .image_processor import VaeImageProcessor
from .ltx2 import LTX2LatentUpsamplePipeline, LTX2VideoCondition
from .memory import MemoryPlan
from .outputs import (
    ImagePipelineOutput,
    LTX2PipelineOutput,
    StableDiffusionPipelineOutput,
    StableDiffusionXLPipelineOutput,
    VideoPipelineOutput,
    ZImagePipelineOutput,
)
from .pipeline import DiffusionPipeline
from .progress_bar import ProgressBar
from .registration import PIPELINE_CLASSES, register_the_rest
from .run import PipelineRun
from .text_to_image import (
    auto_devices,
    get_profile_config,
    img2img,
    load_from_hf,
    load_pipeline,
    models2devices,
    resolve_profile,
    txt2img_sd21,
    txt2img_sdxl,
)
from .video_processor import VideoProcessor
from .vram import (
    clear_vram,
    load_to_gpu,
    offload_to_cpu,
    run_decode_sdxl,
    run_denoise_sdxl,
    sdxl_memory_profile,
    vram_report,
)

for _file in sorted(os.listdir(__path__[0])):
    if _file.endswith(".py") and not _file.startswith("_"):
        import_module(f"{__name__}.{_file.removesuffix('.py')}")
register_the_rest()
globals().update(PIPELINE_CLASSES)

__all__ = [
    *sorted(PIPELINE_CLASSES),
    "AutoPipelineForImage2Image",
    "AutoPipelineForInpainting",
    "AutoPipelineForText2Image",
    "DiffusionPipeline",
    "ImagePipelineOutput",
    "LTX2LatentUpsamplePipeline",
    "LTX2PipelineOutput",
    "LTX2VideoCondition",
    "MemoryPlan",
    "PipelineRun",
    "ProgressBar",
    "StableDiffusionPipelineOutput",
    "StableDiffusionXLPipelineOutput",
    "VaeImageProcessor",
    "VideoPipelineOutput",
    "VideoProcessor",
    "ZImagePipelineOutput",
    "auto_devices",
    "clear_vram",
    "get_profile_config",
    "hires",
    "img2img",
    "load_from_hf",
    "load_pipeline",
    "load_to_gpu",
    "models2devices",
    "offload_to_cpu",
    "resolve_profile",
    "run_decode_sdxl",
    "run_denoise_sdxl",
    "sdxl_memory_profile",
    "txt2img_sd21",
    "txt2img_sdxl",
    "vram_report",
]
