"""ModelMixin: what every model has besides a module's methods: a config, and a folder to live in."""

import os
import types
import warnings

from .. import _core, cuda, hub
from .._core import _models
from ..nn import Module, quantize_
from .adapters import PeftAdapterMixin
from .frozen_dict import FrozenDict
from .offloading import OffloadingMixin
from .quantization_config import blocks_kept, native_config

# Of transformer blocks: what a norm or a GEGLU comes before.
_FLOAT8_LAYERS = ("attn1.to_q", "attn1.to_k", "attn1.to_v", "attn2.to_q", "ff.net.0.proj", "ff.net.2")


def size_in_bytes(size):
    """10_000_000, or "10MB" as diffusers writes it. ValueError for other texts."""
    if not isinstance(size, str):
        return size
    digits = size.strip().upper().removesuffix("B")
    power = {"K": 1, "M": 2, "G": 3, "T": 4}.get(digits[-1:], 0)
    try:
        return int(float(digits[:-1] if power else digits) * 1000**power)
    except (ValueError, OverflowError):
        raise ValueError(f'max_shard_size must be a number of bytes or a text such as "10GB", got {size!r}') from None


def device_argument(who, device, device_map):
    """The device of a call that takes both names for it. NotImplementedError for maps of several devices."""
    if device_map is None:
        return device
    if device is not None:
        raise TypeError(f"{who}: device and device_map are two names of one argument; pass one")
    if not isinstance(device_map, (str, _core.device)) or device_map in (
        "auto",
        "balanced",
        "balanced_low_0",
        "sequential",
    ):
        raise NotImplementedError(
            f'{who}: device_map must be one device, such as "cuda", got {device_map!r}; a model is not split over '
            "devices"
        )
    return device_map


_fields = {}  # by class: its config's, as the parameters of a signature


def _parameters_of(class_name):
    """The fields of a class's config with their defaults; those of one that cannot do without some, without."""
    import inspect

    if class_name not in _fields:
        names, kind = _models.field_names(class_name), inspect.Parameter.POSITIONAL_OR_KEYWORD
        try:
            defaults = _models.defaults(class_name)
        except (TypeError, ValueError):
            defaults = {}
        _fields[class_name] = [inspect.Parameter(n, kind, default=defaults.get(n, ...)) for n in names]
    return _fields[class_name]


class _FieldsSignature:
    """inspect.signature of a class of models: the fields of its config."""

    def __get__(self, model, cls):
        if model is not None or not isinstance(_found(cls, "__init__"), _FieldsInit) or not cls._class_name:
            return None
        import inspect

        return inspect.Signature(_parameters_of(cls._class_name))


def _found(cls, name):
    return next(vars(c)[name] for c in cls.__mro__ if name in vars(c))


class _FieldsInit:
    """The constructor of all classes of models. Asked for by the class, it shows the fields of the class's config with
    their defaults, which C++ knows."""

    def __get__(self, model, cls):
        if model is not None:
            return types.MethodType(_make, model)
        if not cls._class_name:
            return _make
        import inspect

        def __init__(self, *args, **kwargs):
            _make(self, *args, **kwargs)

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = inspect.Signature([own, *_parameters_of(cls._class_name)])
        return __init__


def _make(self, *args, **kwargs):
    names = _models.field_names(self._class_name)
    if len(args) > len(names):
        raise TypeError(f"{self._class_name}: takes at most {len(names)} arguments, got {len(args)}")
    config = dict(zip(names, args))
    for name, value in kwargs.items():
        if name in config:
            raise TypeError(f"{self._class_name}: got several values for '{name}'")
        if name not in names:
            raise TypeError(f"{self._class_name}: unexpected keyword argument '{name}'")
        config[name] = value
    _models.make(self, self._class_name, config)


class ModelMixin(PeftAdapterMixin, OffloadingMixin):
    """A model: made from the fields of its config by keyword, `from_config` or `from_pretrained`.

    >>> vae = sf.models.AutoencoderTiny(latent_channels=8)
    >>> vae.save_pretrained("taesd")
    >>> sf.models.AutoencoderTiny.from_pretrained("taesd").config.latent_channels
    8
    """

    __signature__ = _FieldsSignature()
    _class_name = ""  # of the C++ class
    config_name = "config.json"

    __init__ = _FieldsInit()

    @property
    def config(self):
        """The fields, as a dict whose entries are attributes too."""
        return FrozenDict(_models.config(self))

    @property
    def dtype(self):
        """Of the first floating parameter."""
        return _models.dtype(self)

    @property
    def device(self):
        """Of the first parameter."""
        return _models.device(self)

    @classmethod
    def from_config(cls, config=None, **kwargs):
        """A model with initial values from the fields of a config (a dict, or another model's `.config`); keywords
        override.

        Entries that are no fields are kept in `.config`, with a warning. TypeError for a field of another type,
        ValueError for an impossible one."""
        if not isinstance(config, dict):
            raise TypeError(f"{cls.__name__}.from_config: config must be a dict, got {type(config).__name__}")
        model = cls._of_config(config, kwargs)
        model._warn_of_unknown()
        return model

    @classmethod
    def _of_config(cls, config, overrides):
        model = cls.__new__(cls)
        defaults = [name for name in config.get("_use_default_values", []) if name not in overrides]
        _models.make(model, cls._class_name, {**config, **overrides, "_use_default_values": defaults})
        return model

    def _warn_of_unknown(self):
        known = {
            "architectures",
            "model_type",
            "torch_dtype",
            "dtype",
            "transformers_version",
            "return_dict",
            "output_attentions",
            "output_hidden_states",
        }
        strange = sorted(k for k in _models.unknown(self) if not k.startswith("_") and k not in known)
        if strange:
            warnings.warn(
                f"{type(self).__name__}: its config has fields that are not known here: {', '.join(strange)}; they "
                "are kept",
                stacklevel=3,
            )

    @classmethod
    def load_config(cls, pretrained_model_name_or_path, subfolder=None):
        """The entries of config.json in a folder."""
        return _models.load_config(os.fspath(pretrained_model_name_or_path), subfolder or "")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path,
        subfolder=None,
        variant=None,
        torch_dtype=None,
        use_safetensors=None,
        low_cpu_mem_usage=True,
        *,
        quantization_config=None,
        device=None,
        device_map=None,
        revision=None,
        cache_dir=None,
        force_download=False,
        token=None,
        local_files_only=False,
        **kwargs,
    ):
        """A model from a folder with config.json and weights (safetensors, in shards or not, or torch's .bin), in eval
        mode.

        Instead of a folder the name of a repository of the hub ("organisation/name"), found in the local cache or
        downloaded into it (scaffolding.hub): revision, cache_dir, force_download,
        token and local_files_only are for that.
        subfolder: below it. variant: "fp16" for files of that name. torch_dtype: floating tensors in this dtype instead
        of the file's; the file's tensors are mapped, not copied, where no conversion is wanted. device (or device_map,
        a device in diffusers' words): where the model goes; to a GPU tensor by tensor through a few pinned buffers,
        converted there. Other keywords replace fields of the config. quantization_config: a BitsAndBytesConfig,
        GGUFQuantizationConfig, TorchAoConfig or QuantoConfig: weights are quantised one by one while they are read, so
        that no more than one is in memory as it was.
        A folder whose weights are quantised (config.json has quantization_config) gives a model of quantised layers;
        bitsandbytes' NF4, FP4 and eight bits are read, and what save_pretrained writes. ValueError naming the
        files looked for or what is wrong with quantised weights, RuntimeError naming keys that do not fit or why
        nothing could be downloaded, NotImplementedError for other ways of quantising.
        """
        if not low_cpu_mem_usage:
            warnings.warn(
                "from_pretrained: low_cpu_mem_usage=False has no effect: models are never in memory twice", stacklevel=2
            )
        device = device_argument(f"{cls.__name__}.from_pretrained", device, device_map)
        folder = os.fspath(pretrained_model_name_or_path)
        if not os.path.isdir(folder):
            place = {
                "revision": revision,
                "cache_dir": cache_dir,
                "force_download": force_download,
                "token": token,
                "local_files_only": local_files_only,
            }
            folder = hub.model_folder(
                folder, subfolder=subfolder, variant=variant, use_safetensors=use_safetensors, **place
            )
            subfolder = None
        quantize, torch_dtype = native_config(f"{cls.__name__}.from_pretrained", quantization_config, torch_dtype)
        return cls._of_folder(
            folder, subfolder or "", variant or "", torch_dtype, use_safetensors, device, overrides=kwargs,
            quantize=quantize,
        )  # fmt: skip

    @classmethod
    def _of_folder(
        cls, folder, subfolder, variant, torch_dtype, use_safetensors, device, config=None, overrides=None,
        quantize=None,
    ):  # fmt: skip
        """config: what config.json says, where that was read before."""
        model = cls.__new__(cls)
        _models.load(
            model,
            cls._class_name,
            folder,
            subfolder,
            variant,
            torch_dtype,
            use_safetensors,
            device,
            config,
            overrides or {},
            quantize,
        )
        return model

    @classmethod
    def from_single_file(
        cls,
        pretrained_model_link_or_path_or_dict,
        config=None,
        torch_dtype=None,
        extract_ema=False,
        *,
        quantization_config=None,
        device=None,
        device_map=None,
        revision=None,
        cache_dir=None,
        force_download=False,
        token=None,
        local_files_only=False,
        **kwargs,
    ):
        """The model out of a checkpoint in one file (.safetensors, .ckpt or .gguf of Stable Diffusion 1.x, 2.x, XL, 3
        and 3.5, of LTX-2), or out of the file in which another program keeps it alone (FLUX's, Z-Image's, CogVideoX'
        and Tora's transformers as they were trained, .gguf files of such, ESRGAN's and Real-ESRGAN's networks), in eval
        mode.

        The file may be one of a repository of the hub, by its page's address (scaffolding.hub.model_file): revision,
        cache_dir, force_download, token and local_files_only are for that. config: a dict, or a folder with
        config.json, for a model of another size than its kind has, or, of one that a file has alone, than the class's
        defaults or the tensors' shapes say. torch_dtype: floating tensors in this dtype; without one they are mapped,
        not copied. device, device_map: as in from_pretrained. extract_ema: a UNet's averaged weights.
        quantization_config: GGUFQuantizationConfig for a .gguf file's weights to stay in blocks; without it they become
        torch_dtype, or float32. Any other config, and one with quant_type, as in from_pretrained. Other keywords
        replace fields of the config.
        ValueError for a file that is no such checkpoint, lacks tensors or has some of another shape;
        NotImplementedError for other families of models."""
        places = {
            p: None
            for _, _, parts in _core._single_file_kinds().values()
            for p, (_, name, _) in parts.items()
            if name == cls._class_name
        }
        alone = _models.layouts(cls._class_name) or _models.tells_config(cls._class_name)
        if not places and not alone:
            raise TypeError(f"{cls.__name__}.from_single_file: no checkpoint has a {cls._class_name}")
        if config is not None and not isinstance(config, dict):
            config = cls.load_config(config)
        place = {
            "revision": revision,
            "cache_dir": cache_dir,
            "force_download": force_download,
            "token": token,
            "local_files_only": local_files_only,
        }
        path = hub.model_file(pretrained_model_link_or_path_or_dict, **place)
        device = device_argument(f"{cls.__name__}.from_single_file", device, device_map)
        keep_blocks, quantize, torch_dtype = blocks_kept(
            f"{cls.__name__}.from_single_file", quantization_config, torch_dtype
        )
        model = cls.__new__(cls)
        if not places or _core._SingleFile.is_alone(path, cls._class_name):
            fields = {**(config or {}), **kwargs}
            _models.load_alone(model, cls._class_name, path, fields, torch_dtype, device, keep_blocks, quantize)
            return model
        configs = {} if config is None else {place: {**config, **kwargs} for place in places}
        file = _core._SingleFile(path, configs, parts=list(places), extract_ema=extract_ema, class_name=cls._class_name)
        place = next(place for place in places if place in file.parts())
        file.load(model, place, torch_dtype, device, kwargs, keep_blocks, quantize)
        return model

    def save_pretrained(self, save_directory, variant=None, safe_serialization=True, max_shard_size="10GB"):
        """Writes config.json and the weights into a folder, which is made where it is not there.

        variant: "fp16" for files of that name. safe_serialization: False for PyTorch's .bin. max_shard_size: bytes of a
        file, or a text such as "5GB". Of a model that nn.quantize_ changed, config.json gets a quantization_config; NF4
        layers have bitsandbytes' names and metadata.
        """
        _models.save(self, os.fspath(save_directory), variant or "", safe_serialization, size_in_bytes(max_shard_size))

    def enable_gradient_checkpointing(self):
        """Parts are computed again in the backward pass instead of keeping what it needs:
        the same gradients with less memory.
        """
        _models.enable_gradient_checkpointing(self, True)

    def disable_gradient_checkpointing(self):
        """Back to keeping."""
        _models.enable_gradient_checkpointing(self, False)

    def fuse_qkv_projections(self):
        """Lays weights that read the same input side by side in memory: each self-attention's queries, keys and values,
        and a UNet's time projections. On CUDA one product does them all then, where no gradient is recorded. Names and
        values stay. Pipelines do so themselves."""
        _models.pack_projections(self)

    def unfuse_qkv_projections(self):
        """Does nothing: see fuse_qkv_projections, which changes no name and no value."""

    def enable_xformers_memory_efficient_attention(self, attention_op=None):
        """Does nothing: attention never holds all scores in memory here."""

    def disable_xformers_memory_efficient_attention(self):
        """Does nothing: see enable_xformers_memory_efficient_attention."""

    def set_default_attn_processor(self):
        """Does nothing: there is one way to compute attention here."""

    def get_memory_footprint(self, return_buffers=True):
        """Bytes of all parameters, and of buffers."""
        held = [*self.parameters(), *(self.buffers() if return_buffers else ())]
        return sum(t.numel() * t.element_size() for t in held)

    def quantize_fp8(self):
        """For sampling on GPUs that multiply in float8: the projections of transformer blocks whose input a norm or a
        GEGLU makes (attn1's to_q, to_k and to_v, attn2's to_q, both of the feed-forward) become LinearFP8 with scales
        of rows; norms and GEGLU then write float8 themselves. Output projections, keys and values of the text, time
        projections and convolutions stay in 16 bits. The weights are frozen and the 16-bit ones are gone.
        Returns the model.

        RuntimeError on a GPU that does not multiply in float8 (compute capability below 8.9), ValueError where no layer
        fits. On others than 9.0 products get their scales in a pass of their own."""
        device = self.device
        if device.type == "cuda" and (capability := cuda.get_device_capability(device)) < (8, 9):
            raise RuntimeError(
                "quantize_fp8: float8 products need compute capability 8.9, and "
                f"{cuda.get_device_name(device)} has "
                f"{capability[0]}.{capability[1]}; nn.quantize_(model, 'float8_e4m3fn') stores weights in float8 on "
                "any GPU"
            )

        def fits(layer, name):
            return name.endswith(_FLOAT8_LAYERS) and layer.in_features % 16 == 0 and layer.out_features % 16 == 0

        quantize_(self, "float8_e4m3fn", fits, per_row=True, dynamic=True)
        self.fuse_qkv_projections()
        return self

    @property
    def is_gradient_checkpointing(self):
        """Whether parts are computed again in the backward pass."""
        return _models.is_gradient_checkpointing(self)

    def num_parameters(self, only_trainable=False):
        """The number of elements of all parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad or not only_trainable)

    def to_json_string(self):
        """The config as config.json has it."""
        return _models.config_json(self)

    # for copying and pickling
    def _rebuild_arguments(self):
        return _models.config(self)

    def _rebuild(self, arguments):
        _models.make(self, self._class_name, arguments, empty=True)


MODEL_CLASSES = {}  # by name


def model_class(cls):
    """Decorator: `class UNet2DConditionModel(ModelMixin)` becomes a class over the C++ one of its name.

    Its forward, if it writes one, shapes arguments and results around `self.native_forward(...)`;
    C++ callers go past it.
    """
    native = getattr(_core, "_layer_" + cls.__name__)
    body = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    body["_class_name"] = cls.__name__
    body["native_forward"] = native.forward
    body["__init__"] = vars(ModelMixin)["__init__"]
    if "forward" in body:
        body["forward"]._calls_native = True
    made = type(cls.__name__, (*cls.__bases__, native), body)
    _core._register_module_type(cls.__name__, made)
    MODEL_CLASSES[cls.__name__] = made
    return made


def native_method(name):
    """A method that is the C++ class's of this name."""

    def call(self, *args, **kwargs):
        return _core._layer_method(self, name, *args, **kwargs)

    call.__name__ = name
    return call


__all__ = ["ModelMixin", "Module", "model_class", "native_method"]
