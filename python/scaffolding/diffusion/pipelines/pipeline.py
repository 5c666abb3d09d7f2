"""DiffusionPipeline: components with names, from and to folders. Classes, loading and the loops are C++'s;
a pipeline's call hands them its components.
"""

import os
import sys
import warnings

from ... import _core, _missing, hub, tokenizers
from ..._core import _pipelines
from ...models.controlnet import MultiControlNetModel
from ...models.modeling import ModelMixin, device_argument
from ...models.quantization_config import PipelineQuantizationConfig, blocks_kept, for_part, native_config
from ...nn import Module
from ...nn.module import to_arguments
from .. import schedulers as _schedulers
from ..configuration import ConfigMixin, FrozenDict
from .calls import ENTRIES, PipelineCalls
from .image_processor import VaeImageProcessor
from .lora import LoraLoaderMixin
from .memory import PlannedMemory
from .offloading import PipelineOffloadingMixin
from .outputs import ImagePipelineOutput, VideoPipelineOutput
from .progress_bar import ShowsProgress
from .textual_inversion import TextualInversionLoaderMixin
from .video_processor import VideoProcessor

_UNUSED = ("low_cpu_mem_usage", "resume_download", "offload_state_dict", "use_onnx")  # so here, or meaningless
_COMPONENT_NAMES = {name for entry in ENTRIES.values() for name in entry["components"]}
_classes = {}  # by name: the registered ones and those of users


def pipeline_class(name):
    """The pipeline class of that name. ValueError naming those there are."""
    if name not in _classes:
        raise ValueError(
            f"DiffusionPipeline: there is no pipeline class '{name}'; there are {', '.join(sorted(_classes))}"
        )
    return _classes[name]


def row_of(name, component):
    """(library, class) of a component as model_index.json has them."""
    if isinstance(component, MultiControlNetModel):
        return "diffusers", "MultiControlNetModel"
    return _row_of_one(component)


def _row_of_one(component):
    """The same of what is one object; of a scheduler that is a class of one's own, the
    module that it stands in. TypeError for what cannot be saved."""
    own = isinstance(component, ConfigMixin) and not hasattr(component, "_core") and hasattr(component, "step")
    if own:
        return type(component).__module__, type(component).__name__
    return _pipelines.component_row(component)


class DiffusionPipeline(
    LoraLoaderMixin, TextualInversionLoaderMixin, PlannedMemory, PipelineOffloadingMixin, ShowsProgress, PipelineCalls
):
    """What pipelines have in common. `DiffusionPipeline.from_pretrained(folder)` gives the pipeline that the folder's
    model_index.json names.

    Components are attributes and may be replaced: `pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)`.

    >>> pipe = sf.diffusion.DiffusionPipeline.from_pretrained("emoji-128")  # doctest: +SKIP
    >>> pipe("red apple, fluent 3d", seed=7).images[0].save("apple.png")  # doctest: +SKIP
    """

    config_name = "model_index.json"
    _entry_name = ""  # in C++'s registry
    _components = ()  # in diffusers' order
    _optional_components = ()
    _denoisers = ()  # the components that run in each step
    _options = {}  # other fields of model_index.json, with their defaults
    _callback_tensor_inputs = ()
    _output_class = ImagePipelineOutput
    _has_sound = False  # of clips

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls._components:
            _classes.setdefault(cls.__name__, cls)
            if ENTRIES[cls._entry_name]["makes_clips"] and cls._output_class is ImagePipelineOutput:
                cls._output_class = VideoPipelineOutput

    def _look_at(self, given):
        """What a class's constructor refuses or remembers of its arguments."""

    def _register(self, components, options):
        for name in self._components:
            setattr(self, name, components.get(name))
        self._set_options = {**self._options, **options}
        self._progress_bar_config = {}
        self._interrupt = False
        self._graphs, self._captures = _pipelines.DenoiserGraphs(), True
        self._savings, self._placement = (False, False, 0), None
        self._guidance_scale, self._guidance_rescale, self._num_timesteps = 0.0, 0.0, 0
        self._predicts = self._predicted(getattr(self, "scheduler", None))
        _pipelines.check_components(self._entry_name, self._parts())
        sizes = {
            "vae_scale_factor": _pipelines.side_multiple(self._entry_name, self._parts()),
            "vae_latent_channels": self._vae_config("latent_channels", 4),
        }
        self.image_processor = VaeImageProcessor(**sizes)
        if ENTRIES[self._entry_name]["makes_clips"]:
            self.video_processor = VideoProcessor(**sizes)

    def _parts(self):
        return {**{name: getattr(self, name) for name in self._components}, **self._set_options}

    def _vae_config(self, field, otherwise):
        config = getattr(getattr(self, "vae", None), "config", None) or {}
        value = config.get(field) if isinstance(config, dict) else getattr(config, field, None)
        return otherwise if value is None else value

    # ---- what it is made of

    @property
    def components(self):
        """{name: component}, as the constructor takes them."""
        return {name: getattr(self, name) for name in self._components}

    def _networks(self):
        """The components, each network of one that is several by a name of its own."""
        return self.components

    @property
    def config(self):
        """model_index.json's entries, as attributes too."""
        rows = {name: list(row_of(name, c)) for name, c in self.components.items()}
        return FrozenDict(_class_name=type(self).__name__, **self._set_options, **rows)

    def register_to_config(self, **options):
        """Sets fields of model_index.json: requires_aesthetics_score, force_zeros_for_empty_prompt.
        TypeError for others.
        """
        for name in options:
            if name not in self._options:
                raise TypeError(f"{type(self).__name__}: has no option '{name}'; there are {', '.join(self._options)}")
        self._set_options.update(options)

    @property
    def vae_scale_factor(self):
        """Pixels for each latent."""
        return _pipelines.vae_scale_factor(self._entry_name, self._parts())

    def _modules(self):
        return [c for c in self.components.values() if isinstance(c, Module)]

    @property
    def device(self):
        """Of the first network."""
        return next((m.device for m in self._modules() if isinstance(m, ModelMixin)), _core.device("cpu"))

    _execution_device = device

    @property
    def dtype(self):
        """Of the first network."""
        return next((m.dtype for m in self._modules() if isinstance(m, ModelMixin)), _core.float32)

    def to(self, *args, **kwargs):
        """Moves and converts every network: to(device), to(dtype), or both; returns itself."""
        self._graphs.clear()
        device, dtype, memory_format = to_arguments(args, kwargs)
        ring = _core._upload_ring(device) if device is not None else None  # one for all networks
        for module in self._modules():
            module.to(device=device, dtype=dtype, memory_format=memory_format)
        del ring
        return self

    @classmethod
    def from_pipe(cls, pipeline, **kwargs):
        """This class's pipeline around another's components, which are shared. Keywords replace some of them."""
        have = {
            **pipeline.components,
            **{k: v for k, v in pipeline._set_options.items() if k in cls._options},
            **kwargs,
        }
        missing = [n for n in cls._components if n not in have and n not in cls._optional_components]
        if missing:
            raise ValueError(f"{cls.__name__}.from_pipe: a {type(pipeline).__name__} has no {', '.join(missing)}")
        try:
            made = cls(**{n: have[n] for n in (*cls._components, *cls._options) if n in have})
        except TypeError as e:
            raise TypeError(f"{cls.__name__}.from_pipe: of a {type(pipeline).__name__}, {e}") from None
        if all(getattr(made, n) is getattr(pipeline, n, None) for n in cls._denoisers):
            made._graphs, made._captures = pipeline._graphs, pipeline._captures
            made._savings, made._placement = pipeline._savings, pipeline._placement
            made._predicts = pipeline._predicts
        return made

    # ---- files

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path,
        torch_dtype=None,
        variant=None,
        use_safetensors=None,
        dtype=None,
        device=None,
        device_map=None,
        **kwargs,
    ):
        """A pipeline from a folder with model_index.json and a folder for each component, as diffusers writes it;
        "emoji-128" or "emoji-video", the models that come with Scaffolding; or the hub's repository of that name
        ("organisation/name"), found in the cache or downloaded: revision, cache_dir, force_download, token,
        local_files_only (scaffolding.hub).

        torch_dtype (or dtype): networks in this dtype instead of the files'. device (or device_map, a device in
        diffusers' words): where the networks go, to a GPU tensor by tensor through a few pinned buffers of host memory.
        profile, max_vram, max_ram: where the networks go and what is saved is a memory plan's, see memory_plan; any of
        them, instead of a device. device_map="balanced" with max_memory={0: "6GB", "cpu": "8GB"} is the same in
        diffusers' words; numbers there are bytes.
        variant: "fp16" for files of that name; components without such files are read without. A component's name as
        keyword replaces it, None leaves it out: `safety_checker=None`, `scheduler=other`.
        quantization_config: a PipelineQuantizationConfig; weights of its components are quantised one by one while they
        are read.
        Pictures are not checked: safety_checker, feature_extractor and image_encoder are left out with a warning.
        ValueError naming the file and what is wrong with it, TypeError for an unknown keyword.
        """
        quantization_config = kwargs.pop("quantization_config", None)
        for name in _UNUSED:
            kwargs.pop(name, None)
        planned, device_map = cls._asked_plan(f"{cls.__name__}.from_pretrained", kwargs, device, device_map)
        place = {k: kwargs.pop(k) for k in hub.KEYWORDS if k in kwargs}
        passed = [k for k in kwargs if k in _COMPONENT_NAMES]
        folder = cls._folder(
            pretrained_model_name_or_path,
            variant=variant,
            use_safetensors=use_safetensors,
            passed_components=passed,
            **place,
        )
        plan = _pipelines.plan(folder, cls._entry_name, passed, variant or "")
        target = cls if cls._components else pipeline_class(plan["class_name"])
        target._check_keywords("from_pretrained", kwargs, plan["listed"])
        device = device_argument(f"{target.__name__}.from_pretrained", device, device_map)
        how = {
            "torch_dtype": torch_dtype if torch_dtype is not None else dtype,
            "use_safetensors": use_safetensors,
            "device": device,
        }
        quantize = cls._quantizes(f"{target.__name__}.from_pretrained", quantization_config, plan["steps"])
        ring = _core._upload_ring(device) if device is not None else None  # one for all networks
        parts = {
            step["name"]: cls._load(step, cls._loading(how, target.__name__, quantize, step)) for step in plan["steps"]
        }
        del ring
        ignored = [name for name in plan["ignored"] if name not in kwargs]
        if ignored:
            warnings.warn(
                f"{target.__name__}: {', '.join(ignored)} of {folder} left out: pictures are not checked", stacklevel=2
            )
        pipe = target._of(parts, plan["config"], kwargs)
        if "scheduler" in kwargs and os.path.isfile(os.path.join(folder, "scheduler", "scheduler_config.json")):
            config = ConfigMixin.load_config(os.path.join(folder, "scheduler", "scheduler_config.json"))
            pipe._predicts = config.get("prediction_type")
        return pipe if planned is None else pipe.apply_memory_plan(pipe.memory_plan(**planned))

    @staticmethod
    def _quantizes(who, config, steps):
        if config is not None:
            if not isinstance(config, PipelineQuantizationConfig):
                raise TypeError(
                    f"{who}: quantization_config must be a PipelineQuantizationConfig, got {type(config).__name__}"
                )
            config.check(who, [step["name"] for step in steps if step["kind"] == "model"])
        return config

    @staticmethod
    def _loading(how, name, quantize, step):
        """How a component is loaded: quantised where the config is of it."""
        if quantize is None or step["kind"] != "model":
            return how
        native, dtype = native_config(
            f"{name}.from_pretrained: {step['name']}", quantize.of(step["name"]), how["torch_dtype"]
        )
        return {**how, "quantize": native, "torch_dtype": dtype}

    @classmethod
    def _check_keywords(cls, method, kwargs, listed=()):
        unknown = [k for k in kwargs if k not in cls._components and k not in cls._options and k not in listed]
        if unknown:
            raise TypeError(f"{cls.__name__}.{method}: unexpected keyword argument '{unknown[0]}'")

    @classmethod
    def _of(cls, parts, config, given):
        """The pipeline of loaded parts and of what was given instead."""
        options = {k: given.get(k, config.get(k, v)) for k, v in cls._options.items()}
        return cls(**{n: given[n] if n in given else parts.get(n) for n in cls._components}, **options)

    @classmethod
    def from_single_file(
        cls,
        pretrained_model_link_or_path,
        config=None,
        torch_dtype=None,
        prediction_type=None,
        extract_ema=False,
        dtype=None,
        device=None,
        device_map=None,
        quantization_config=None,
        **kwargs,
    ):
        """A pipeline from one checkpoint file of Stable Diffusion 1.x, 2.x, XL, 3 or 3.5 (.safetensors or .ckpt), of
        LTX-2 beside its text_encoder and tokenizer, which its files have not; or of any pipeline as save_single_file
        writes it; or from such a file's page on the hub.

        config: a folder of such a pipeline as from_pretrained takes it, for the tokenizers, the scheduler, and the
        configs of networks of unusual size. Absent, all are those that the file brings, or those of its kind, which are
        part of the library: nothing is downloaded. prediction_type: "epsilon" or "v_prediction" where the file cannot
        tell. extract_ema: the UNet's averaged weights. quantization_config: GGUFQuantizationConfig for a .gguf file's
        weights to stay in blocks. Components as keywords, torch_dtype, device, device_map,
        profile, max_vram, max_ram, max_memory and revision, cache_dir, force_download, token, local_files_only are as
        in from_pretrained. ValueError for a file that is no such checkpoint, and for one whose text encoder has another
        vocabulary than its kind's.
        """
        for name in (*_UNUSED, "load_safety_checker"):
            kwargs.pop(name, None)
        planned, device_map = cls._asked_plan(f"{cls.__name__}.from_single_file", kwargs, device, device_map)
        place = {k: kwargs.pop(k) for k in hub.KEYWORDS if k in kwargs}
        if config is not None and not os.path.isdir(os.fspath(config)):
            raise FileNotFoundError(2, "from_single_file: config must be a pipeline's folder", os.fspath(config))
        passed = [
            k for k in kwargs if k in _COMPONENT_NAMES and (kwargs[k] is not None or not k.startswith("text_encoder"))
        ]
        path = hub.model_file(pretrained_model_link_or_path, **place)
        found = _pipelines.SingleFilePlan(
            path,
            cls._entry_name,
            passed,
            "" if config is None else os.fspath(config),
            prediction_type or "",
            extract_ema,
        )
        plan, file = found.steps(), found.file
        dtype = torch_dtype if torch_dtype is not None else dtype
        by_part = isinstance(quantization_config, PipelineQuantizationConfig)
        if by_part:
            cls._quantizes(f"{cls.__name__}.from_single_file", quantization_config, plan["steps"])
        target = cls if cls._components else pipeline_class(plan["class_name"])
        target._check_keywords("from_single_file", kwargs)
        device = device_argument(f"{target.__name__}.from_single_file", device, device_map)
        ring = _core._upload_ring(device) if device is not None else None  # one for all networks
        parts = {}
        for step in plan["steps"]:
            name = step["name"]
            if name in kwargs:
                continue
            if step["kind"] == "model":
                how = quantization_config.of(name) if by_part else for_part(quantization_config, name)
                keeps, quantize, own = blocks_kept(f"{cls.__name__}.from_single_file: {name}", how, dtype)
                parts[name] = cls._part(file, name, step["class_name"], own, device, keeps, quantize)
            elif step["kind"] == "scheduler" and not step["folder"]:
                parts[name] = getattr(_schedulers, step["class_name"]).from_config(step["config"])
            elif step["kind"] == "tokenizer" and not step["folder"]:
                parts[name] = cls._tokenizer(step["class_name"])(found.tokenizer(name))
            else:
                parts[name] = cls._load(step, {})
        del ring
        pipe = target._of(parts, plan["config"], kwargs)
        return pipe if planned is None else pipe.apply_memory_plan(pipe.memory_plan(**planned))

    @staticmethod
    def _part(file, name, class_name, dtype, device, keep_blocks, quantize):
        from ... import models

        cls = getattr(models, class_name)
        model = cls.__new__(cls)
        file.load(model, name, dtype, device, {}, keep_blocks, quantize)
        return model

    @staticmethod
    def _tokenizer(class_name):
        return getattr(tokenizers, class_name.removesuffix("Fast"))

    @classmethod
    def _folder(cls, name_or_path, **options):
        """A folder as it is, or the hub's repository of that name in its cache."""
        folder = os.fspath(name_or_path)
        return folder if os.path.isdir(folder) else hub.model_folder(folder, **options)

    @staticmethod
    def _own_scheduler(step):
        """One whose class was written in Python, by a module that the program has imported: none is imported because a
        folder names it."""
        found = getattr(sys.modules.get(step["library"]), step["class_name"], None)
        if not isinstance(found, type) or not issubclass(found, ConfigMixin):
            raise ValueError(
                f"{step['folder']}: the scheduler is a {step['library']}.{step['class_name']}, which is not there: "
                f"import {step['library']} before, or pass scheduler="
            )
        return found.from_config(found.load_config(step["folder"]))

    @staticmethod
    def _scheduler(place):
        config = _schedulers.DDIMScheduler.load_config(place)
        if config.get("_class_name") not in _schedulers.__all__:
            raise ValueError(
                f"{os.path.join(place, 'scheduler_config.json')}: _class_name must be a scheduler's, got "
                f"{config.get('_class_name')!r}"
            )
        return getattr(_schedulers, config["_class_name"]).from_config(config)

    @classmethod
    def _load(cls, step, how):
        """A component of a plan, by its Python class."""
        if step["kind"] == "model":
            from ... import models

            return getattr(models, step["class_name"])._of_folder(
                step["folder"], "", step["variant"], config=step["config"], **how
            )
        if step["kind"] == "scheduler" and step["library"]:
            return cls._own_scheduler(step)
        if step["kind"] == "scheduler":
            return cls._scheduler(step["folder"])
        return cls._tokenizer(step["class_name"]).from_pretrained(step["folder"])

    def save_pretrained(self, save_directory, safe_serialization=True, variant=None, max_shard_size="10GB"):
        """Writes each component into a folder of its name, and model_index.json last; diffusers reads it. All files are
        written beside before the first takes its place: a full disk leaves what was there, and what is stopped in
        between refuses to load.

        A scheduler that is a class of one's own is named by its module, and from_pretrained finds it there once the
        program has imported it. TypeError for a component that is no model, scheduler or tokenizer of this library, and
        for a scheduler without a config.
        """
        folder = os.fspath(save_directory)
        rows = {name: row_of(name, c) for name, c in self.components.items()}
        with _core._ReplacingFolder(folder, "model_index.json"):
            for name, component in self.components.items():
                place = os.path.join(folder, name)
                if isinstance(component, (ModelMixin, MultiControlNetModel)):
                    component.save_pretrained(
                        place, variant=variant, safe_serialization=safe_serialization, max_shard_size=max_shard_size
                    )
                elif component is not None:
                    component.save_pretrained(place)
            _pipelines.save_index(
                folder, type(self).__name__, rows, {k: v for k, v in self._set_options.items() if v is not None}
            )

    def save_single_file(self, path, torch_dtype=None):
        """Writes the whole pipeline as one safetensors file, with the configs and tokenizers in its metadata:
        from_single_file reads it back without anything else, and its pictures are the same to the bit.

        Networks of Stable Diffusion's own sizes get the names that other programs know; those of other pipelines stand
        behind their component's name. torch_dtype: of floating tensors; None for theirs. TypeError for a component that
        is no model, scheduler or tokenizer of this library, NotImplementedError for a model whose calls go through
        Python.
        """
        _pipelines.save_single_file(self._entry_name, self._parts(), os.fspath(path), torch_dtype)

    # ---- comfort

    def enable_vae_slicing(self):
        """Decodes one picture of a batch at a time."""
        self.vae.enable_slicing()

    def disable_vae_slicing(self):
        """Decodes a batch at once."""
        self.vae.disable_slicing()

    def enable_vae_tiling(self):
        """Decodes large pictures in overlapping tiles, with less memory."""
        self.vae.enable_tiling()

    def disable_vae_tiling(self):
        """Decodes pictures as a whole."""
        self.vae.disable_tiling()

    def enable_seamless_tiling(self, axes="xy"):
        """Pictures that can be laid side by side without a seam: left and right meet ("x"), top and bottom ("y"), or
        both. The UNet, the VAE and ControlNets see a picture's other side beyond its border instead of zeros, from the
        next call on; pipelines that share them share that. NotImplementedError for a pipeline whose denoiser is no
        UNet: transformers are told where in a picture they are.
        """
        unet = getattr(self, "unet", None)
        if not isinstance(unet, Module):
            raise NotImplementedError(f"{type(self).__name__}: seamless tiling needs a UNet, which this has not")
        for network in (unet, getattr(self, "vae", None), getattr(self, "controlnet", None)):
            if isinstance(network, Module):
                _core._models.set_seamless(network, axes)

    def disable_seamless_tiling(self):
        """Zeros beyond the borders again."""
        self.enable_seamless_tiling("")

    def _unet_for_freeu(self):
        unet = getattr(self, "unet", None)
        if not hasattr(unet, "enable_freeu"):
            raise ValueError(f"{type(self).__name__}: FreeU needs a UNet with text, which this has not")
        return unet

    def enable_freeu(self, s1, s2, b1, b2):
        """FreeU from the next call on, of all pipelines that share the UNet: see UNet2DConditionModel.enable_freeu.
        ValueError for a pipeline without such a UNet.
        """
        self._unet_for_freeu().enable_freeu(s1, s2, b1, b2)

    def disable_freeu(self):
        """Without FreeU again."""
        self._unet_for_freeu().disable_freeu()

    def enable_cuda_graphs(self, enable=True):
        """On CUDA, as from the start: the UNet's calls are replays of a CUDA graph, captured once for each shape of
        its inputs and again when weights, adapters or dtypes change; twelve are kept. The numbers are the same. Off, or
        with capture=False in one call, each op is launched by itself, and the graphs' memory is given back. A UNet with
        hooks, or one that is called through Python, is never captured: see cuda_graphs."""
        self._captures = bool(enable)
        if not enable:
            self._graphs.clear()

    @property
    def cuda_graphs(self):
        """{"captures", "replays", "kept", "why_not"}: graphs made and replayed so far, those kept,
        and why the UNet's calls are none ("" where they are).
        """
        why = (
            _pipelines.DenoiserGraphs.why_not(self._entry_name, self._parts())
            if self._captures
            else "enable_cuda_graphs(False)"
        )
        return {**self._graphs.statistics(), "why_not": why}

    def enable_attention_slicing(self, slice_size="auto"):
        """Does nothing, and says so in a warning: attention never holds all scores in memory here."""
        warnings.warn(
            "enable_attention_slicing does nothing: attention is computed in pieces here, as slicing would have it",
            stacklevel=2,
        )

    def disable_attention_slicing(self):
        """Does nothing: see enable_attention_slicing."""

    def enable_xformers_memory_efficient_attention(self, attention_op=None):
        """Does nothing: attention never holds all scores in memory here."""

    def disable_xformers_memory_efficient_attention(self):
        """Does nothing: see enable_xformers_memory_efficient_attention."""

    def fuse_qkv_projections(self, unet=True, vae=True):
        """Does nothing: pipelines lay weights that read the same input side by side themselves."""

    def unfuse_qkv_projections(self, unet=True, vae=True):
        """Does nothing: see fuse_qkv_projections."""

    numpy_to_pil = staticmethod(VaeImageProcessor.numpy_to_pil)

    def __getattr__(self, name):
        found = getattr(type(self), name, None)
        if isinstance(found, property):
            return found.fget(self)  # raises again what made Python come here
        raise _missing.missing_of_pipeline(type(self), name)

    guidance_scale = property(
        lambda self: self._guidance_scale, doc="Of the run under way; a callback may set `_guidance_scale`."
    )
    guidance_rescale = property(lambda self: self._guidance_rescale)
    num_timesteps = property(lambda self: self._num_timesteps)
    interrupt = property(
        lambda self: self._interrupt, doc="A callback sets `_interrupt` to leave out the steps that remain."
    )

    def __repr__(self):
        return (
            f"{type(self).__name__} "
            f"{{{', '.join(f'{n}: {type(c).__name__}' for n, c in self.components.items() if c is not None)}}}"
        )
