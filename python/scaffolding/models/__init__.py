"""Models under diffusers' and transformers' names: networks with a config, from and to folders.

Every module of this package is looked into for its classes; a new one needs no line here.
"""

import os
from importlib import import_module

from .._documents import add_to as _add_document
from .._documents import describe as _describe
from .._missing import help_modules
from .adapters import get_peft_model_state_dict, peft_config_of, set_peft_model_state_dict
from .autoencoder_kl import DiagonalGaussianDistribution
from .embeddings import get_3d_rotary_pos_embed, get_3d_sincos_pos_embed, get_timestep_embedding, timestep_embedding
from .lora_config import LoraConfig
from .modeling import MODEL_CLASSES, ModelMixin
from .quantization_config import (
    BitsAndBytesConfig,
    GGUFQuantizationConfig,
    PipelineQuantizationConfig,
    QuantoConfig,
    TorchAoConfig,
)
from .upscaling import load_upscaler, upscale

for _file in sorted(os.listdir(__path__[0])):
    if _file.endswith(".py") and not _file.startswith("_"):
        import_module(f"{__name__}.{_file.removesuffix('.py')}")
globals().update(MODEL_CLASSES)
for _class in MODEL_CLASSES.values():
    _add_document(_class, "models")
_add_document(DiagonalGaussianDistribution, "classes")

__all__ = [
    *sorted(MODEL_CLASSES),
    "DiagonalGaussianDistribution",
    "BitsAndBytesConfig",
    "GGUFQuantizationConfig",
    "LoraConfig",
    "PipelineQuantizationConfig",
    "QuantoConfig",
    "TorchAoConfig",
    "ModelMixin",
    "get_3d_rotary_pos_embed",
    "get_3d_sincos_pos_embed",
    "get_peft_model_state_dict",
    "get_timestep_embedding",
    "load_upscaler",
    "peft_config_of",
    "set_peft_model_state_dict",
    "timestep_embedding",
    "upscale",
]

_describe(globals())
help_modules()  # this one is imported after the others
