"""Stable Diffusion 3's transformer, under diffusers' name."""

from .._core import Tensor, int64, tensor
from .adapters import lora_scaled, only_scale_of
from .dit import _as_tensor
from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


@model_class
class SD3Transformer2DModel(ModelMixin):
    """A transformer over patches of latents beside the tokens of a text (Stable Diffusion 3 and 3.5), with diffusers'
    config fields and keys.

    >>> model = sf.models.SD3Transformer2DModel(
    ...     num_layers=1, num_attention_heads=1, joint_attention_dim=12, caption_projection_dim=64)
    >>> model(sf.zeros(1, 16, 8, 8), sf.zeros(1, 5, 12), sf.zeros(1, 2048), timestep=500).sample.shape
    scaffolding.Size([1, 16, 8, 8])
    """

    _skip_layerwise_casting_patterns = ("pos_embed", "norm")

    def forward(
        self,
        hidden_states,
        encoder_hidden_states=None,
        pooled_projections=None,
        timestep=None,
        block_controlnet_hidden_states=None,
        joint_attention_kwargs=None,
        return_dict=True,
        skip_layers=None,
    ):
        """hidden_states [B, in_channels, H, W] to [B, out_channels, H, W]. encoder_hidden_states: [B, M,
        joint_attention_dim]; pooled_projections: [B, pooled_projection_dim]; timestep: a number, or [B].

        block_controlnet_hidden_states: a list of [B, N, C], added behind the blocks. joint_attention_kwargs: {"scale":
        0.5} for LoRAs of half their strength in this call. skip_layers: numbers of the blocks that are left out.
        """
        who = type(self).__name__
        scale = only_scale_of(who, "joint_attention_kwargs", joint_attention_kwargs)
        if skip_layers is not None and not isinstance(skip_layers, Tensor):
            skip_layers = tensor(list(skip_layers), dtype=int64)
        with lora_scaled([self], scale):
            sample = self.native_forward(
                hidden_states,
                encoder_hidden_states,
                pooled_projections,
                _as_tensor(timestep, hidden_states.device),
                list(block_controlnet_hidden_states or ()),
                skip_layers,
            )
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
