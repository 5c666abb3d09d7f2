"""Models under diffusers' and transformers' names: networks with a config, from and to folders."""

from .autoencoder_kl import AutoencoderKL, DiagonalGaussianDistribution
from .autoencoder_tiny import AutoencoderTiny
from .clip import CLIPTextModel, CLIPTextModelWithProjection
from .dit import DiTModel, DiTTransformer2DModel
from .embeddings import get_timestep_embedding, timestep_embedding
from .modeling import ModelMixin
from .transformer_2d import Transformer2DModel
from .unet_2d_condition import UNet2DConditionModel

__all__ = [
    "AutoencoderKL",
    "AutoencoderTiny",
    "CLIPTextModel",
    "CLIPTextModelWithProjection",
    "DiTModel",
    "DiTTransformer2DModel",
    "DiagonalGaussianDistribution",
    "ModelMixin",
    "Transformer2DModel",
    "UNet2DConditionModel",
    "get_timestep_embedding",
    "timestep_embedding",
]
