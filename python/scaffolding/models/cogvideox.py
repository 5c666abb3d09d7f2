"""CogVideoX's transformer and autoencoder of videos, under diffusers' names."""

from .._core import Tensor, stack
from .adapters import lora_scaled, only_scale_of
from .autoencoder_kl import DiagonalGaussianDistribution
from .autoencoder_mixin import AutoencoderMixin
from .dit import _as_tensor
from .modeling import ModelMixin, model_class, native_method
from .outputs import AutoencoderKLOutput, DecoderOutput, Transformer2DModelOutput


def predicted(
    model,
    hidden_states,
    encoder_hidden_states,
    timestep,
    timestep_cond,
    ofs,
    image_rotary_emb,
    attention_kwargs,
    return_dict,
    **told,
):
    """The forward of CogVideoXTransformer3DModel and of classes that are told more: what the C++ one takes besides."""
    who = model._class_name
    if timestep_cond is not None:
        raise ValueError(f"{who}: timestep_cond must be None, the network has no projection of it")
    scale = only_scale_of(who, "attention_kwargs", attention_kwargs)
    if image_rotary_emb is not None and not isinstance(image_rotary_emb, Tensor):
        image_rotary_emb = stack(list(image_rotary_emb))
    device = hidden_states.device
    with lora_scaled([model], scale):
        sample = model.native_forward(
            hidden_states,
            encoder_hidden_states,
            _as_tensor(timestep, device),
            ofs=_as_tensor(ofs, device),
            image_rotary_emb=image_rotary_emb,
            **told,
        )
    return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)


@model_class
class CogVideoXTransformer3DModel(ModelMixin):
    """A transformer over patches of a video's latents, told a timestep and a text (CogVideoX 2B, 5B, 5B-I2V and 1.5),
    with diffusers' config fields and keys.

    >>> model = sf.models.CogVideoXTransformer3DModel(
    ...     num_attention_heads=2, attention_head_dim=16, num_layers=1, text_embed_dim=12, max_text_seq_length=3)
    >>> model(sf.zeros(1, 2, 16, 4, 6), sf.zeros(1, 3, 12), timestep=10).sample.shape
    scaffolding.Size([1, 2, 16, 4, 6])
    """

    _skip_layerwise_casting_patterns = ("patch_embed", "norm")

    def forward(
        self,
        hidden_states,
        encoder_hidden_states,
        timestep,
        timestep_cond=None,
        ofs=None,
        image_rotary_emb=None,
        attention_kwargs=None,
        return_dict=True,
    ):
        """hidden_states [B, T, in_channels, H, W] to [B, T, out_channels, H, W]. encoder_hidden_states: [B, M,
        text_embed_dim]; timestep: a number, or [B].

        ofs: a number, or [B], with ofs_embed_dim. image_rotary_emb: with use_rotary_positional_embeddings cosines and
        sines [N, attention_head_dim] of the N patches (get_3d_rotary_pos_embed), a pair or one tensor [2, N,
        attention_head_dim]. attention_kwargs: {"scale": 0.5} for LoRAs of half their strength in this call.
        ValueError where shapes do not fit, and for timestep_cond, of which CogVideoX's networks make nothing.
        """
        return predicted(
            self,
            hidden_states,
            encoder_hidden_states,
            timestep,
            timestep_cond,
            ofs,
            image_rotary_emb,
            attention_kwargs,
            return_dict,
        )


@model_class
class AutoencoderKLCogVideoX(AutoencoderMixin, ModelMixin):
    """CogVideoX's autoencoder: videos [B, 3, T, H, W] in [-1, 1] to distributions of latents [B, 16, 1 + (T - 1) / 4, H
    / 8, W / 8], latents to videos.

    Frames go through in chunks of `num_sample_frames_batch_size`, latents of `num_latent_frames_batch_size`, those that
    are left over with the first chunk: a number of frames is 1, or 8 k, or 8 k + 1. `tile_sample_min_height` and
    `tile_sample_min_width` are the sides of tiles in pixels, `tile_latent_min_height` and `tile_latent_min_width` in
    latents, `tile_overlap_factor_height` and `tile_overlap_factor_width` the parts of them that neighbours share; see
    `enable_tiling`.

    >>> vae = sf.models.AutoencoderKLCogVideoX(block_out_channels=[8] * 4, layers_per_block=1, norm_num_groups=4)
    >>> vae.encode(sf.zeros(1, 3, 9, 16, 24)).latent_dist.mode().shape
    scaffolding.Size([1, 16, 3, 2, 3])
    """

    _moments, _decode = native_method("moments"), native_method("decode")
    _tiled_encode, _tiled_decode = native_method("tiled_encode"), native_method("tiled_decode")

    def enable_tiling(
        self,
        tile_sample_min_height=None,
        tile_sample_min_width=None,
        tile_overlap_factor_height=None,
        tile_overlap_factor_width=None,
    ):
        """Videos whose pictures are larger than a tile in overlapping tiles with blended seams: the memory of one tile,
        and nearly the same result.

        The sides are in pixels, the overlaps parts of them; what is not given stays as it is.
        """
        self.use_tiling = True
        self.tile_sample_min_height = tile_sample_min_height or self.tile_sample_min_height
        self.tile_sample_min_width = tile_sample_min_width or self.tile_sample_min_width
        halvings = len(self.config.block_out_channels) - 1
        self.tile_latent_min_height = self.tile_sample_min_height >> halvings
        self.tile_latent_min_width = self.tile_sample_min_width >> halvings
        self.tile_overlap_factor_height = tile_overlap_factor_height or self.tile_overlap_factor_height
        self.tile_overlap_factor_width = tile_overlap_factor_width or self.tile_overlap_factor_width

    def encode(self, x, return_dict=True):
        """The distribution of the latents of videos x[B, 3, T, H, W]. ValueError for another number of channels."""
        posterior = DiagonalGaussianDistribution(self._moments(x))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)

    def decode(self, z, return_dict=True):
        """Videos of latents z[B, 16, t, h, w], which are not scaled:
        divide those of a pipeline by config.scaling_factor first.
        """
        sample = self._decode(z)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def tiled_encode(self, x):
        """Means, then logarithms of variances of the latents [B, 32, t, h, w], in tiles whatever the size."""
        return self._tiled_encode(x)

    def tiled_decode(self, z, return_dict=True):
        """`decode` in tiles, whatever the size."""
        sample = self._tiled_decode(z)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample, sample_posterior=False, return_dict=True, generator=None):
        """There and back, by a sample of the latents (drawn with the generator) or by their means."""
        sample = self.native_forward(sample, sample_posterior, generator)
        return DecoderOutput(sample=sample) if return_dict else (sample,)
