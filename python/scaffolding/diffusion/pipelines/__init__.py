"""Pipelines: prompts to pictures, with diffusers' classes, arguments, files and numbers.

>>> pipe = StableDiffusionPipeline.from_pretrained("stable-diffusion-v1-5")
>>> pipe("a photo of an astronaut", generator=sf.Generator().manual_seed(0)).images[0].save("astronaut.png")
"""

from .auto_pipeline import AutoPipelineForImage2Image, AutoPipelineForInpainting, AutoPipelineForText2Image
from .image_processor import VaeImageProcessor
from .outputs import StableDiffusionPipelineOutput, StableDiffusionXLPipelineOutput
from .pipeline import DiffusionPipeline
from .progress_bar import ProgressBar
from .stable_diffusion import StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline, StableDiffusionPipeline
from .stable_diffusion_xl import StableDiffusionXLImg2ImgPipeline, StableDiffusionXLPipeline
from .text_to_image import auto_devices, get_profile_config, img2img, load_from_hf, load_pipeline, models2devices, resolve_profile, txt2img_sd21, txt2img_sdxl

__all__ = [
    "AutoPipelineForImage2Image",
    "AutoPipelineForInpainting",
    "AutoPipelineForText2Image",
    "DiffusionPipeline",
    "ProgressBar",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInpaintPipeline",
    "StableDiffusionPipeline",
    "StableDiffusionPipelineOutput",
    "StableDiffusionXLImg2ImgPipeline",
    "StableDiffusionXLPipeline",
    "StableDiffusionXLPipelineOutput",
    "VaeImageProcessor",
    "auto_devices",
    "get_profile_config",
    "img2img",
    "load_from_hf",
    "load_pipeline",
    "models2devices",
    "resolve_profile",
    "txt2img_sd21",
    "txt2img_sdxl",
]
