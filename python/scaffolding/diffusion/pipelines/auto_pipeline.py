"""AutoPipelineFor...: the pipeline of a task for whatever family of models a folder holds."""

from ..._core import _pipelines
from .pipeline import _COMPONENT_NAMES, _HUB, DiffusionPipeline
from .stable_diffusion import StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline, StableDiffusionPipeline
from .stable_diffusion_xl import StableDiffusionXLImg2ImgPipeline, StableDiffusionXLPipeline


class _AutoPipeline:
    _tasks = {}  # family: class

    def __init__(self, *args, **kwargs):
        raise TypeError(f"{type(self).__name__}: is made by from_pretrained(folder) or from_pipe(pipeline)")

    @classmethod
    def _class_for(cls, class_name):
        family = "StableDiffusionXL" if class_name.startswith("StableDiffusionXL") else "StableDiffusion" if class_name.startswith("StableDiffusion") else ""
        if family not in cls._tasks:
            raise ValueError(f"{cls.__name__}: knows no pipeline for {class_name}; there are {', '.join(c.__name__ for c in cls._tasks.values())}")
        return cls._tasks[family]

    @classmethod
    def from_pretrained(cls, pretrained_model_or_path, **kwargs):
        """The pipeline of this task for the models of a folder, with the keywords of DiffusionPipeline.from_pretrained."""
        place = {k: kwargs.pop(k) for k in _HUB if k in kwargs}
        passed = [k for k in kwargs if k in _COMPONENT_NAMES]
        options = {k: kwargs[k] for k in ("variant", "use_safetensors") if k in kwargs}
        folder = DiffusionPipeline._folder(pretrained_model_or_path, passed_components=passed, **options, **place)
        return cls._class_for(_pipelines.read_index(folder)["class_name"]).from_pretrained(folder, **kwargs)

    @classmethod
    def from_pipe(cls, pipeline, **kwargs):
        """The pipeline of this task around another one's components, which are shared."""
        return cls._class_for(type(pipeline).__name__).from_pipe(pipeline, **kwargs)


class AutoPipelineForText2Image(_AutoPipeline):
    """StableDiffusionPipeline or StableDiffusionXLPipeline."""

    _tasks = {"StableDiffusion": StableDiffusionPipeline, "StableDiffusionXL": StableDiffusionXLPipeline}


class AutoPipelineForImage2Image(_AutoPipeline):
    """StableDiffusionImg2ImgPipeline or StableDiffusionXLImg2ImgPipeline."""

    _tasks = {"StableDiffusion": StableDiffusionImg2ImgPipeline, "StableDiffusionXL": StableDiffusionXLImg2ImgPipeline}


class AutoPipelineForInpainting(_AutoPipeline):
    """StableDiffusionInpaintPipeline."""

    _tasks = {"StableDiffusion": StableDiffusionInpaintPipeline}
