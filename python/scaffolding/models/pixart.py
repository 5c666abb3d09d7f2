"""PixArt's transformer, under diffusers' name."""

from .dit import _as_tensor
from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


@model_class
class PixArtTransformer2DModel(ModelMixin):
    """A transformer over patches of latents, told a timestep and a text (PixArt-alpha and PixArt-Sigma),
    with diffusers' config fields and keys.

    >>> model = sf.models.PixArtTransformer2DModel(
    ...     2, 8, num_layers=1, sample_size=8, cross_attention_dim=16, caption_channels=12)
    >>> model(sf.zeros(1, 4, 8, 8), sf.zeros(1, 5, 12), timestep=10).sample.shape
    scaffolding.Size([1, 8, 8, 8])
    """

    _skip_layerwise_casting_patterns = ("adaln_single",)

    def forward(
        self,
        hidden_states,
        encoder_hidden_states=None,
        timestep=None,
        added_cond_kwargs=None,
        cross_attention_kwargs=None,
        attention_mask=None,
        encoder_attention_mask=None,
        return_dict=True,
    ):
        """hidden_states [B, in_channels, H, W] to [B, out_channels, H, W]. encoder_hidden_states: [B, M,
        caption_channels]; timestep: a number, or [B].

        added_cond_kwargs: with use_additional_conditions "resolution" [B, 2] and "aspect_ratio" [B, 1] of the picture.
        Masks: [B, tokens], 1 where a token is seen, or [B, 1, tokens], added to scores.
        cross_attention_kwargs is not used.
        """
        sizes = added_cond_kwargs or {}
        sample = self.native_forward(
            hidden_states,
            encoder_hidden_states,
            _as_tensor(timestep, hidden_states.device),
            sizes.get("resolution"),
            sizes.get("aspect_ratio"),
            attention_mask,
            encoder_attention_mask,
        )
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
