"""AutoPipelineFor...: the pipeline of a task for whatever family of models a folder holds."""

from ... import hub
from ..._core import _pipelines
from .calls import ENTRIES
from .pipeline import _COMPONENT_NAMES, DiffusionPipeline, pipeline_class


class _AutoPipeline:
    _task = ""

    def __init__(self, *args, **kwargs):
        raise TypeError(f"{type(self).__name__}: is made by from_pretrained(folder) or from_pipe(pipeline)")

    @classmethod
    def _class_for(cls, class_name, controlled=False):
        name = _pipelines.pipeline_for(cls.__name__, class_name, cls._task)
        family = ENTRIES[name]["family"] + "-controlnet"
        beside = (n for n, e in ENTRIES.items() if controlled and e["family"] == family and e["task"] == cls._task)
        return pipeline_class(next(beside, name))

    @classmethod
    def from_pretrained(cls, pretrained_model_or_path, **kwargs):
        """The pipeline of this task for the models of a folder,
        with the keywords of DiffusionPipeline.from_pretrained.
        """
        place = {k: kwargs.pop(k) for k in hub.KEYWORDS if k in kwargs}
        passed = [k for k in kwargs if k in _COMPONENT_NAMES]
        options = {k: kwargs[k] for k in ("variant", "use_safetensors") if k in kwargs}
        folder = DiffusionPipeline._folder(pretrained_model_or_path, passed_components=passed, **options, **place)
        made = cls._class_for(_pipelines.read_class_name(folder), "controlnet" in kwargs)
        return made.from_pretrained(folder, **kwargs)

    @classmethod
    def from_pipe(cls, pipeline, **kwargs):
        """The pipeline of this task around another one's components, which are shared."""
        return cls._class_for(pipeline._entry_name, "controlnet" in kwargs).from_pipe(pipeline, **kwargs)


class AutoPipelineForText2Image(_AutoPipeline):
    """The class of the model's family that makes pictures of prompts.

    >>> pipe = sf.diffusion.AutoPipelineForText2Image.from_pretrained("folder")  # doctest: +SKIP
    >>> pipe("a red apple").images[0]  # doctest: +SKIP
    """

    _task = "text-to-image"


class AutoPipelineForImage2Image(_AutoPipeline):
    """The class of the model's family that changes pictures by prompts.

    >>> pipe = sf.diffusion.AutoPipelineForImage2Image.from_pretrained("folder")  # doctest: +SKIP
    >>> pipe("a red apple", image=picture).images[0]  # doctest: +SKIP
    """

    _task = "image-to-image"


class AutoPipelineForInpainting(_AutoPipeline):
    """The class of the model's family that makes a part of a picture anew.

    >>> pipe = sf.diffusion.AutoPipelineForInpainting.from_pretrained("folder")  # doctest: +SKIP
    >>> pipe("a red apple", image=picture, mask_image=mask).images[0]  # doctest: +SKIP
    """

    _task = "inpainting"
