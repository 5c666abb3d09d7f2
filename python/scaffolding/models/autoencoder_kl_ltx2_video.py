"""LTX-2's autoencoder of videos and the network that enlarges its latents, under diffusers' names."""

from .autoencoder_kl import DiagonalGaussianDistribution
from .autoencoder_mixin import AutoencoderMixin
from .modeling import ModelMixin, model_class, native_method
from .outputs import AutoencoderKLOutput, DecoderOutput


@model_class
class AutoencoderKLLTX2Video(AutoencoderMixin, ModelMixin):
    """LTX-2's autoencoder: videos [B, 3, T, H, W] in [-1, 1] to distributions of latents [B, 128, 1 + (T - 1) / 8, H /
    32, W / 32], latents to videos.

    A number of frames is 8 k + 1. The buffers `latents_mean` and `latents_std` [128] are what pipelines normalise
    latents by. `tile_sample_min_height`, `tile_sample_min_width` and `tile_sample_min_num_frames` are the sizes of
    tiles in pixels and frames, `tile_sample_stride_height`, `tile_sample_stride_width` and
    `tile_sample_stride_num_frames` the steps from one to the next; see `enable_tiling`. With
    `use_framewise_decoding` longer videos are decoded, and encoded, in runs of frames that overlap too.

    `causal` of a call: True, or what the config says, as in diffusers.

    >>> vae = sf.models.AutoencoderKLLTX2Video(
    ...     block_out_channels=[8, 16, 32, 64], decoder_block_out_channels=[8, 16, 32], latent_channels=16)
    >>> vae.encode(sf.zeros(1, 3, 9, 64, 32)).latent_dist.mode().shape
    scaffolding.Size([1, 16, 2, 2, 1])
    """

    _moments, _decode = native_method("moments"), native_method("decode")
    _tiled_encode, _tiled_decode = native_method("tiled_encode"), native_method("tiled_decode")

    def enable_tiling(
        self,
        tile_sample_min_height=None,
        tile_sample_min_width=None,
        tile_sample_min_num_frames=None,
        tile_sample_stride_height=None,
        tile_sample_stride_width=None,
        tile_sample_stride_num_frames=None,
    ):
        """Videos whose pictures are larger than a tile in overlapping tiles with blended seams: the memory of one tile,
        and nearly the same result.

        Sizes are in pixels and frames; what is not given stays as it is. Frames are cut where `use_framewise_decoding`
        is set, too.
        """
        self.use_tiling = True
        self.tile_sample_min_height = tile_sample_min_height or self.tile_sample_min_height
        self.tile_sample_min_width = tile_sample_min_width or self.tile_sample_min_width
        self.tile_sample_min_num_frames = tile_sample_min_num_frames or self.tile_sample_min_num_frames
        self.tile_sample_stride_height = tile_sample_stride_height or self.tile_sample_stride_height
        self.tile_sample_stride_width = tile_sample_stride_width or self.tile_sample_stride_width
        self.tile_sample_stride_num_frames = tile_sample_stride_num_frames or self.tile_sample_stride_num_frames

    def encode(self, x, causal=None, return_dict=True):
        """The distribution of the latents of videos x[B, 3, T, H, W]. ValueError for sizes that the network has no
        latents of.
        """
        posterior = DiagonalGaussianDistribution(self._moments(x, causal))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)

    def decode(self, z, temb=None, causal=None, return_dict=True):
        """Videos of latents z[B, 128, t, h, w], which are not normalised. temb[B]: with timestep_conditioning the noise
        that is left in them, from 0 to 1.
        """
        sample = self._decode(z, temb, causal)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def tiled_encode(self, x, causal=None):
        """Means, then logarithms of variances of the latents [B, 256, t, h, w], in tiles whatever the size."""
        return self._tiled_encode(x, causal)

    def tiled_decode(self, z, temb, causal=None, return_dict=True):
        """`decode` in tiles, whatever the size."""
        sample = self._tiled_decode(z, temb, causal)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(
        self,
        sample,
        temb=None,
        sample_posterior=False,
        encoder_causal=None,
        decoder_causal=None,
        return_dict=True,
        generator=None,
    ):
        """There and back, by a sample of the latents (drawn with the generator) or by their means."""
        sample = self.native_forward(sample, temb, sample_posterior, encoder_causal, decoder_causal, generator)
        return DecoderOutput(sample=sample) if return_dict else (sample,)


@model_class
class LTX2LatentUpsamplerModel(ModelMixin):
    """Latents of LTX-2's videos, which are not normalised, to those of larger pictures (spatial_upsample, by
    rational_spatial_scale where use_rational_resampler is set), or of twice as many frames (temporal_upsample).

    >>> model = sf.models.LTX2LatentUpsamplerModel(in_channels=8, mid_channels=32, num_blocks_per_stage=1)
    >>> model(sf.zeros(1, 8, 2, 4, 6)).shape
    scaffolding.Size([1, 8, 2, 8, 12])
    """

    def forward(self, hidden_states):
        """[B, 128, T, H, W] to [B, 128, T, 2 H, 2 W] of the published networks, 2 T - 1 frames by temporal_upsample."""
        return self.native_forward(hidden_states)
