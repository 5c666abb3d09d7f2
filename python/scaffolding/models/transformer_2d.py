"""Transformer2DModel, under diffusers' name."""

from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


@model_class
class Transformer2DModel(ModelMixin):
    """Transformer blocks over the pixels of a picture, beside a residual. Of diffusers' three kinds of input,
    the continuous one.

    >>> model = sf.models.Transformer2DModel(
    ...     num_attention_heads=2, attention_head_dim=16, in_channels=32, num_layers=1, cross_attention_dim=12)
    >>> model(sf.zeros(1, 32, 8, 8), sf.zeros(1, 5, 12)).sample.shape
    scaffolding.Size([1, 32, 8, 8])
    """

    def forward(
        self,
        hidden_states,
        encoder_hidden_states=None,
        timestep=None,
        added_cond_kwargs=None,
        class_labels=None,
        cross_attention_kwargs=None,
        attention_mask=None,
        encoder_attention_mask=None,
        return_dict=True,
    ):
        """hidden_states [B, in_channels, H, W] to the same shape. encoder_hidden_states: [B, M, cross_attention_dim];
        without, the pixels themselves.

        timestep: whole numbers, for norm_type "ada_norm". Masks: [B, tokens], 1 where a token is seen.
        added_cond_kwargs and class_labels belong to inputs that this class does not take and are not used,
        as in diffusers.
        """
        sample = self.native_forward(
            hidden_states, encoder_hidden_states, timestep, attention_mask, encoder_attention_mask
        )
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
