"""How weights are quantised while they are loaded, under diffusers' names and with its arguments."""

from .. import _core

_BLOCKS = {name.lower(): name for name in _core._gguf_blocks()}


def _dtype_name(dtype):
    return None if dtype is None else str(dtype).removeprefix("scaffolding.")


def _dtype(who, what, value):
    if isinstance(value, str):
        value = getattr(_core, value, value)
    if value is not None and not isinstance(value, type(_core.float32)):
        raise TypeError(f"{who}: {what} must be a dtype, got {value!r}")
    return value


def _names(who, what, value):
    if value is None:
        return []
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{who}: {what} must be a list of names, got {value!r}")
    return list(value)


class QuantizationConfig:
    """What the configs share. rules: {pattern: format or None}, after those that every model has; the last one that
    fits a layer's name counts, * stands for any text."""

    quant_method = ""
    _skipped = ()
    _rules = None

    def _take_rules(self, rules):
        if rules is not None and not isinstance(rules, dict):
            raise TypeError(f"{type(self).__name__}: rules must be a dict of patterns, got {type(rules).__name__}")
        self._rules = dict(rules or {})

    def _own_rules(self):
        out = []
        for name in self._skipped:
            out += [(name, ""), (f"*.{name}", ""), (f"*{name}.*", "")]
        return out + [(pattern, format or "") for pattern, format in self._rules.items()]

    def _format(self):
        """The name of the format, and what else there is to say of it."""
        raise NotImplementedError

    def _native(self):
        format, options = self._format()
        return _core._QuantizeConfig(format, self._own_rules(), **options)

    def __repr__(self):
        shown = ", ".join(f"{k}={v!r}" for k, v in self.to_dict().items() if k != "quant_method")
        return f"{type(self).__name__}({shown})"


class GGUFQuantizationConfig(QuantizationConfig):
    """Weights in the blocks of GGUF files. Of from_single_file: weights of linear layers and convolutions stay in the
    file's blocks. Of from_pretrained: they become quant_type ("q8_0", "q4_K"), which files say themselves.

    compute_dtype: of what is not in blocks, and of activations; absent: torch_dtype, or float32. dynamic, with
    quant_type: activations of linear layers become int8 too, block by block.

    >>> config = sf.models.GGUFQuantizationConfig(quant_type="q8_0")  # from_pretrained(quantization_config=config)
    """

    quant_method = "gguf"

    def __init__(self, compute_dtype=None, quant_type=None, *, dynamic=False, rules=None):
        self.compute_dtype = _dtype("GGUFQuantizationConfig", "compute_dtype", compute_dtype)
        if quant_type is not None and str(quant_type).lower() not in _BLOCKS:
            raise ValueError(
                f"GGUFQuantizationConfig: quant_type must be one of {', '.join(_BLOCKS.values())}, got {quant_type!r}"
            )
        if dynamic and quant_type is None:
            raise ValueError("GGUFQuantizationConfig: dynamic is for weights that are quantised here; give quant_type")
        self.quant_type = None if quant_type is None else _BLOCKS[quant_type.lower()]
        self.dynamic = bool(dynamic)
        self._take_rules(rules)

    def _format(self):
        if self.quant_type is None:
            raise ValueError(
                "GGUFQuantizationConfig: from_pretrained needs quant_type, as 'q8_0': a folder's weights have no "
                "blocks of their own"
            )
        return self.quant_type, {"dynamic": self.dynamic}

    def to_dict(self):
        return {
            "quant_method": self.quant_method,
            "compute_dtype": _dtype_name(self.compute_dtype),
            "quant_type": self.quant_type,
            "dynamic": self.dynamic,
        }


class BitsAndBytesConfig(QuantizationConfig):
    """Linear layers as bitsandbytes stores them: load_in_8bit (LinearInt8), or load_in_4bit with bnb_4bit_quant_type
    "nf4" or "fp4" (LinearNF4, LinearFP4); bnb_4bit_use_double_quant: magnitudes of blocks in eight bits.

    Activations stay as they are in all of them, so that llm_int8_threshold has nothing to keep apart; products are
    summed in float32. bnb_4bit_compute_dtype: of what is not quantised where no torch_dtype is given.
    llm_int8_skip_modules: names of layers or parts of a model that stay wide.

    >>> sf.models.T5EncoderModel(100, 64, num_layers=1).save_pretrained("t5")
    >>> config = sf.models.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    >>> sf.models.T5EncoderModel.from_pretrained("t5", quantization_config=config).get_memory_footprint()
    248576
    """

    quant_method = "bitsandbytes"

    def __init__(
        self,
        load_in_8bit=False,
        load_in_4bit=False,
        llm_int8_threshold=6.0,
        llm_int8_skip_modules=None,
        llm_int8_enable_fp32_cpu_offload=False,
        llm_int8_has_fp16_weight=False,
        bnb_4bit_compute_dtype=None,
        bnb_4bit_quant_type="fp4",
        bnb_4bit_use_double_quant=False,
        bnb_4bit_quant_storage=None,
        *,
        rules=None,
    ):
        who = "BitsAndBytesConfig"
        for name, value in (
            ("load_in_8bit", load_in_8bit),
            ("load_in_4bit", load_in_4bit),
            ("bnb_4bit_use_double_quant", bnb_4bit_use_double_quant),
        ):
            if not isinstance(value, bool):
                raise TypeError(f"{who}: {name} must be a boolean, got {value!r}")
        if load_in_8bit == load_in_4bit:
            raise ValueError(f"{who}: one of load_in_4bit and load_in_8bit must be True, got {load_in_4bit} for both")
        if bnb_4bit_quant_type not in ("nf4", "fp4"):
            raise ValueError(f"{who}: bnb_4bit_quant_type must be 'nf4' or 'fp4', got {bnb_4bit_quant_type!r}")
        if llm_int8_has_fp16_weight:
            raise NotImplementedError(f"{who}: llm_int8_has_fp16_weight keeps 16-bit weights beside; quantise without")
        storage = _dtype(who, "bnb_4bit_quant_storage", bnb_4bit_quant_storage)
        if storage not in (None, _core.uint8):
            raise NotImplementedError(f"{who}: bnb_4bit_quant_storage must be uint8, got {storage}")
        self.load_in_8bit, self.load_in_4bit = load_in_8bit, load_in_4bit
        self.llm_int8_threshold = llm_int8_threshold
        self.llm_int8_skip_modules = llm_int8_skip_modules
        self.llm_int8_enable_fp32_cpu_offload = llm_int8_enable_fp32_cpu_offload
        self.llm_int8_has_fp16_weight = False
        self.bnb_4bit_compute_dtype = _dtype(who, "bnb_4bit_compute_dtype", bnb_4bit_compute_dtype)
        self.bnb_4bit_quant_type = bnb_4bit_quant_type
        self.bnb_4bit_use_double_quant = bnb_4bit_use_double_quant
        self.bnb_4bit_quant_storage = _core.uint8
        self._skipped = _names(who, "llm_int8_skip_modules", llm_int8_skip_modules)
        self._take_rules(rules)

    @property
    def compute_dtype(self):
        return self.bnb_4bit_compute_dtype if self.load_in_4bit else None

    def _format(self):
        if self.load_in_8bit:
            return "int8", {}
        return self.bnb_4bit_quant_type, {"compress_statistics": self.bnb_4bit_use_double_quant}

    def to_dict(self):
        return {
            "quant_method": self.quant_method,
            "load_in_8bit": self.load_in_8bit,
            "load_in_4bit": self.load_in_4bit,
            "llm_int8_threshold": self.llm_int8_threshold,
            "llm_int8_skip_modules": self.llm_int8_skip_modules,
            "llm_int8_enable_fp32_cpu_offload": self.llm_int8_enable_fp32_cpu_offload,
            "llm_int8_has_fp16_weight": self.llm_int8_has_fp16_weight,
            "bnb_4bit_compute_dtype": _dtype_name(self.bnb_4bit_compute_dtype),
            "bnb_4bit_quant_type": self.bnb_4bit_quant_type,
            "bnb_4bit_use_double_quant": self.bnb_4bit_use_double_quant,
            "bnb_4bit_quant_storage": "uint8",
        }


class TorchAoConfig(QuantizationConfig):
    """Linear layers in int8 with a scale for each row, or in float8 (e4m3). quant_type: a name ("int8_weight_only",
    "int8wo", "float8_weight_only", "float8wo" and "float8wo_e5m2", "int8_dynamic_activation_int8_weight", "int8dq"),
    or one of torchao's own configs of those. modules_to_not_convert: names of layers or parts that stay wide.

    >>> config = sf.models.TorchAoConfig("int8_weight_only")  # from_pretrained(quantization_config=config)
    """

    quant_method = "torchao"
    compute_dtype = None
    _types = {
        "int8_weight_only": ("int8", {}),
        "int8wo": ("int8", {}),
        "Int8WeightOnlyConfig": ("int8", {}),
        "int8_dynamic_activation_int8_weight": ("int8", {"dynamic": True, "convolutions": False}),
        "int8dq": ("int8", {"dynamic": True, "convolutions": False}),
        "Int8DynamicActivationInt8WeightConfig": ("int8", {"dynamic": True, "convolutions": False}),
        "float8_weight_only": ("float8_e4m3fn", {}),
        "float8wo": ("float8_e4m3fn", {}),
        "float8wo_e4m3": ("float8_e4m3fn", {}),
        "float8wo_e5m2": ("float8_e5m2", {}),
        "Float8WeightOnlyConfig": ("float8_e4m3fn", {}),
    }

    def __init__(self, quant_type, modules_to_not_convert=None, *, rules=None):
        name = quant_type if isinstance(quant_type, str) else type(quant_type).__name__
        if name not in self._types:
            raise NotImplementedError(
                f"TorchAoConfig: quant_type must be one of {', '.join(self._types)}, got {quant_type!r}"
            )
        self.quant_type, self.modules_to_not_convert = quant_type, modules_to_not_convert
        self._name = name
        self._skipped = _names("TorchAoConfig", "modules_to_not_convert", modules_to_not_convert)
        self._take_rules(rules)

    def _format(self):
        return self._types[self._name]

    def to_dict(self):
        return {
            "quant_method": self.quant_method,
            "quant_type": self._name,
            "modules_to_not_convert": self.modules_to_not_convert,
        }


class QuantoConfig(QuantizationConfig):
    """Linear layers in weights_dtype: "int8" (a scale for each row), "int4" (GGUF's Q4_1: blocks of 32 with a scale
    and a minimum, where quanto has groups of 128) or "float8". modules_to_not_convert: names of layers or parts that
    stay wide.

    >>> config = sf.models.QuantoConfig("int8")  # from_pretrained(quantization_config=config)
    """

    quant_method = "quanto"
    compute_dtype = None
    _types = {"int8": "int8", "int4": "Q4_1", "float8": "float8_e4m3fn"}

    def __init__(self, weights_dtype="int8", modules_to_not_convert=None, *, rules=None):
        if weights_dtype not in self._types:
            raise NotImplementedError(
                f"QuantoConfig: weights_dtype must be one of {', '.join(self._types)}, got {weights_dtype!r}"
            )
        self.weights_dtype, self.modules_to_not_convert = weights_dtype, modules_to_not_convert
        self._skipped = _names("QuantoConfig", "modules_to_not_convert", modules_to_not_convert)
        self._take_rules(rules)

    def _format(self):
        return self._types[self.weights_dtype], {"convolutions": False}

    def to_dict(self):
        return {
            "quant_method": self.quant_method,
            "weights_dtype": self.weights_dtype,
            "modules_to_not_convert": self.modules_to_not_convert,
        }


_BACKENDS = {
    "bitsandbytes_4bit": BitsAndBytesConfig,
    "bitsandbytes_8bit": BitsAndBytesConfig,
    "gguf": GGUFQuantizationConfig,
    "torchao": TorchAoConfig,
    "quanto": QuantoConfig,
}


class PipelineQuantizationConfig:
    """For a pipeline's from_pretrained: a config for each component (quant_mapping), or one backend with its arguments
    (quant_backend: "bitsandbytes_4bit", "bitsandbytes_8bit", "gguf", "torchao" or "quanto", and quant_kwargs) for
    components_to_quantize. Without that list it is for all networks but autoencoders, which need their bits.

    >>> config = sf.models.PipelineQuantizationConfig("quanto", {"weights_dtype": "int8"}, ["transformer"])
    """

    def __init__(self, quant_backend=None, quant_kwargs=None, components_to_quantize=None, quant_mapping=None):
        who = "PipelineQuantizationConfig"
        if (quant_backend is None) == (quant_mapping is None):
            raise ValueError(f"{who}: give quant_backend or quant_mapping, and not both")
        if quant_backend is not None and quant_backend not in _BACKENDS:
            raise ValueError(f"{who}: quant_backend must be one of {', '.join(_BACKENDS)}, got {quant_backend!r}")
        if isinstance(components_to_quantize, str):
            components_to_quantize = [components_to_quantize]
        if quant_mapping is not None:
            for name, config in quant_mapping.items():
                if not isinstance(config, QuantizationConfig):
                    raise TypeError(f"{who}: the config of {name!r} must be one of this library's, got {config!r}")
        self.quant_backend, self.quant_kwargs = quant_backend, dict(quant_kwargs or {})
        self.components_to_quantize, self.quant_mapping = components_to_quantize, quant_mapping
        self._one = None if quant_backend is None else _BACKENDS[quant_backend](**self.quant_kwargs)

    def of(self, name):
        """The config of a component, or None."""
        if self.quant_mapping is not None:
            return self.quant_mapping.get(name)
        if self.components_to_quantize is None:
            return None if "vae" in name else self._one
        return self._one if name in self.components_to_quantize else None

    def check(self, who, networks):
        """ValueError where it names what is no network of the pipeline."""
        for name in self.quant_mapping or self.components_to_quantize or ():
            if name not in networks:
                raise ValueError(
                    f"{who}: quantization_config names {name!r}, which is no network of the pipeline; there are "
                    f"{', '.join(networks)}"
                )

    def __repr__(self):
        if self.quant_mapping is not None:
            return f"PipelineQuantizationConfig(quant_mapping={self.quant_mapping!r})"
        return (
            f"PipelineQuantizationConfig(quant_backend={self.quant_backend!r}, quant_kwargs={self.quant_kwargs!r}, "
            f"components_to_quantize={self.components_to_quantize!r})"
        )


def native_config(who, config, dtype):
    """What C++ quantises to while it reads, or None; and the dtype of what is loaded."""
    if config is None:
        return None, dtype
    if not isinstance(config, QuantizationConfig):
        known = "BitsAndBytesConfig, GGUFQuantizationConfig, TorchAoConfig or QuantoConfig"
        raise TypeError(f"{who}: quantization_config must be a {known}, got {type(config).__name__}")
    return config._native(), dtype if dtype is not None else config.compute_dtype


def blocks_kept(who, config, dtype):
    """Of a single file: whether its blocks stay, what C++ quantises to while it reads, and the dtype of what is
    loaded."""
    if isinstance(config, GGUFQuantizationConfig) and config.quant_type is None:
        return True, None, config.compute_dtype if config.compute_dtype is not None else dtype
    native, dtype = native_config(who, config, dtype)
    return False, native, dtype


def for_part(config, name):
    """A config that is given for a whole file, of one of its parts: autoencoders keep what the file has."""
    quantises = config is not None and not (isinstance(config, GGUFQuantizationConfig) and config.quant_type is None)
    return None if quantises and "vae" in name else config
