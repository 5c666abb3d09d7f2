"""Diffusion transformers: diffusers' DiTTransformer2DModel, and DiTModel for pictures and videos with text."""

from .._core import Tensor, tensor
from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


def _as_tensor(timestep, device):
    return timestep if timestep is None or isinstance(timestep, Tensor) else tensor(timestep, device=device)


@model_class
class DiTTransformer2DModel(ModelMixin):
    """A transformer over patches of latents, told a timestep and a class label (Peebles and Xie 2022),
    with diffusers' config fields and keys.

    >>> model = sf.models.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, num_layers=1)
    >>> model(sf.zeros(1, 4, 8, 8), timestep=sf.tensor([10]), class_labels=sf.tensor([207])).sample.shape
    scaffolding.Size([1, 4, 8, 8])
    """

    def forward(self, hidden_states, timestep=None, class_labels=None, cross_attention_kwargs=None, return_dict=True):
        """hidden_states [B, in_channels, H, W] to [B, out_channels, H, W]. timestep: a number, or [B]; class_labels:
        [B].

        The label num_embeds_ada_norm stands for no class; in training mode a tenth of the labels become it.
        cross_attention_kwargs is not used, as there is no cross-attention.
        """
        sample = self.native_forward(hidden_states, _as_tensor(timestep, hidden_states.device), class_labels)
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)


@model_class
class DiTModel(ModelMixin):
    """A transformer over patches of pictures or videos, told a timestep and a text: DiT's blocks with attention to the
    text between.

    patch_size, in_channels: of the latents. hidden_size, depth, num_heads, mlp_ratio: of the transformer. context_dim:
    channels of the text's embedding, T5-XXL's 4096 unless given. out_channels: in_channels unless given.

    >>> model = sf.models.DiTModel(in_channels=4, hidden_size=16, depth=1, num_heads=2, context_dim=12)
    >>> model(sf.zeros(1, 4, 8, 8), 10, sf.zeros(1, 5, 12)).sample.shape
    scaffolding.Size([1, 4, 8, 8])
    """

    def forward(
        self, hidden_states, timestep, encoder_hidden_states=None, encoder_attention_mask=None, return_dict=True
    ):
        """hidden_states [B, in_channels, H, W], or [B, in_channels, F, H, W] of videos, to the same shape.

        timestep: a number, or [B]. encoder_hidden_states: [B, M, context_dim], or None for no text;
        encoder_attention_mask [B, M]: 0 where it is padding. ValueError where patch_size does not divide H and W.
        """
        sample = self.native_forward(
            hidden_states, _as_tensor(timestep, hidden_states.device), encoder_hidden_states, encoder_attention_mask
        )
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
