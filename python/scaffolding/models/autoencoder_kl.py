"""AutoencoderKL, under diffusers' name."""

from .._core import _models
from .autoencoder_mixin import AutoencoderMixin
from .modeling import ModelMixin, model_class, native_method
from .outputs import AutoencoderKLOutput, DecoderOutput

DiagonalGaussianDistribution = _models.DiagonalGaussianDistribution


@model_class
class AutoencoderKL(AutoencoderMixin, ModelMixin):
    """The autoencoder of Stable Diffusion: pictures [B, 3, H, W] in [-1, 1] to distributions of latents [B, 4, H / 8, W
    / 8], latents to pictures.

    `tile_sample_min_size` and `tile_latent_min_size` are the sides of tiles in pixels and in latents,
    `tile_overlap_factor` is the part of a side that neighbours share; see `enable_tiling`.

    >>> vae = sf.models.AutoencoderKL(block_out_channels=[32, 32],
    ...     down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2)
    >>> latents = vae.encode(sf.zeros(1, 3, 32, 48)).latent_dist.mode()  # times vae.config.scaling_factor for a UNet
    >>> latents.shape, vae.decode(latents).sample.shape
    (scaffolding.Size([1, 4, 16, 24]), scaffolding.Size([1, 3, 32, 48]))
    """

    _moments, _decode = native_method("moments"), native_method("decode")
    _decode_bytes = native_method("decode_bytes")
    _tiled_encode, _tiled_decode = native_method("tiled_encode"), native_method("tiled_decode")

    def encode(self, x, return_dict=True):
        """The distribution of the latents of pictures x[B, 3, H, W]. ValueError for another number of channels."""
        posterior = DiagonalGaussianDistribution(self._moments(x))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)

    def decode(self, z, return_dict=True, generator=None):
        """Pictures of latents z[B, 4, h, w], which are not scaled:
        divide those of a pipeline by config.scaling_factor first.
        """
        sample = self._decode(z)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def decode_bytes(self, latents, dtype, sliced=False, tiled=False):
        """About the memory that `decode` takes on CUDA for latents of this shape and dtype:
        pipelines slice and tile where it is more than is free.
        """
        return self._decode_bytes(list(latents), dtype, sliced, tiled)

    def tiled_encode(self, x, return_dict=True):
        """`encode` in tiles, whatever the size."""
        posterior = DiagonalGaussianDistribution(self._tiled_encode(x))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)

    def tiled_decode(self, z, return_dict=True):
        """`decode` in tiles, whatever the size."""
        sample = self._tiled_decode(z)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample, sample_posterior=False, return_dict=True, generator=None):
        """There and back, by a sample of the latents (drawn with the generator) or by their means."""
        sample = self.native_forward(sample, sample_posterior, generator)
        return DecoderOutput(sample=sample) if return_dict else (sample,)
