"""FLUX's transformer, under diffusers' name."""

from .adapters import lora_scaled, only_scale_of
from .dit import _as_tensor
from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


@model_class
class FluxTransformer2DModel(ModelMixin):
    """A transformer over patches of a picture's latents, told a text, a vector of the whole text and a timestep (FLUX.1
    dev, schnell, Fill, Kontext), with diffusers' config fields and keys.

    >>> model = sf.models.FluxTransformer2DModel(
    ...     num_layers=1, num_single_layers=1, num_attention_heads=1, joint_attention_dim=12)
    >>> model(sf.zeros(1, 24, 64), sf.zeros(1, 5, 12), sf.zeros(1, 768), timestep=sf.tensor([0.5]),
    ...       img_ids=sf.zeros(24, 3), txt_ids=sf.zeros(5, 3)).sample.shape
    scaffolding.Size([1, 24, 64])
    """

    _skip_layerwise_casting_patterns = ("pos_embed", "norm")

    def forward(
        self,
        hidden_states,
        encoder_hidden_states=None,
        pooled_projections=None,
        timestep=None,
        img_ids=None,
        txt_ids=None,
        guidance=None,
        joint_attention_kwargs=None,
        controlnet_block_samples=None,
        controlnet_single_block_samples=None,
        return_dict=True,
        controlnet_blocks_repeat=False,
    ):
        """hidden_states [B, N, in_channels], patches of 2 x 2 latents, to [B, N, patch_size^2 * out_channels].
        encoder_hidden_states: [B, M, joint_attention_dim] of the text; pooled_projections: [B, pooled_projection_dim];
        timestep: a number from 0 to 1, or [B]; guidance: the same kind, where guidance_embeds is set.

        img_ids, txt_ids: places [N, 3] of patches and [M, 3] of the text's tokens. joint_attention_kwargs: {"scale":
        0.5} for LoRAs of half their strength in this call. controlnet_block_samples and
        controlnet_single_block_samples: lists of [B, N, C] that are added to the picture behind blocks;
        controlnet_blocks_repeat: the former go round. ValueError where shapes do not fit.
        """
        who = self._class_name
        scale = only_scale_of(who, "joint_attention_kwargs", joint_attention_kwargs)
        device = hidden_states.device
        with lora_scaled([self], scale):
            sample = self.native_forward(
                hidden_states,
                encoder_hidden_states,
                pooled_projections,
                _as_tensor(timestep, device),
                img_ids,
                txt_ids,
                _as_tensor(guidance, device),
                list(controlnet_block_samples or []),
                list(controlnet_single_block_samples or []),
                controlnet_blocks_repeat,
            )
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
