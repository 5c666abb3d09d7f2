"""UNet2DConditionModel, under diffusers' name."""

from .. import _core
from .adapters import lora_scaled, only_scale_of
from .modeling import ModelMixin, model_class
from .outputs import UNet2DConditionOutput


@model_class
class UNet2DConditionModel(ModelMixin):
    """The denoiser of Stable Diffusion 1.x, 2.x and XL, with every field of diffusers' config that their models use.

    A field's value that only other models use is a NotImplementedError that names it.

    >>> unet = sf.models.UNet2DConditionModel(
    ...     block_out_channels=[32, 32], cross_attention_dim=12,
    ...     down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
    ...     up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"])
    >>> unet(sf.zeros(1, 4, 16, 16), timestep=10, encoder_hidden_states=sf.zeros(1, 77, 12)).sample.shape
    scaffolding.Size([1, 4, 16, 16])
    """

    def forward(
        self,
        sample,
        timestep,
        encoder_hidden_states,
        class_labels=None,
        timestep_cond=None,
        attention_mask=None,
        cross_attention_kwargs=None,
        added_cond_kwargs=None,
        down_block_additional_residuals=None,
        mid_block_additional_residual=None,
        down_intrablock_additional_residuals=None,
        encoder_attention_mask=None,
        return_dict=True,
    ):
        """The prediction [B, out_channels, H, W] for sample [B, in_channels, H, W], of any size, at a timestep (a
        number, [] or [B]).

        encoder_hidden_states: [B, M, cross_attention_dim]. class_labels: [B], or [B, dim] where the config has a
        projection. timestep_cond:
        [B, time_cond_proj_dim], a distilled model's embedded guidance scale. Masks: [B, tokens], 1 where a token is
        seen. added_cond_kwargs: SDXL's text_embeds [B, dim] and time_ids [B, 6]. Residuals: a ControlNet's
        (down_block_..., mid_block_...), a T2I-Adapter's (down_intrablock_...). cross_attention_kwargs: {"scale": 0.5}
        for LoRAs of half their strength in this call."""
        added = dict(added_cond_kwargs or {})
        text_embeds, time_ids = added.pop("text_embeds", None), added.pop("time_ids", None)
        if added:
            raise NotImplementedError(
                f"UNet2DConditionModel: added_cond_kwargs has no use for {', '.join(sorted(added))}"
            )
        scale = only_scale_of("UNet2DConditionModel", "cross_attention_kwargs", cross_attention_kwargs)
        if not isinstance(timestep, _core.Tensor):
            timestep = _core.tensor(timestep, device=sample.device)
        with lora_scaled([self], scale):
            sample = self.native_forward(
                sample,
                timestep,
                encoder_hidden_states,
                class_labels,
                timestep_cond,
                attention_mask,
                encoder_attention_mask,
                text_embeds,
                time_ids,
                list(down_block_additional_residuals or ()),
                mid_block_additional_residual,
                list(down_intrablock_additional_residuals or ()),
            )
        return UNet2DConditionOutput(sample=sample) if return_dict else (sample,)

    def enable_freeu(self, s1, s2, b1, b2):
        """FreeU (arXiv:2309.11497): clearer pictures of a trained UNet, from the next call on. In the lowest up level
        half of the channels are multiplied by b1 and the lowest frequencies of the skips by s1, in the next one by b2
        and s2; 0 for any of them switches it off. Its authors propose (0.9, 0.2, 1.5, 1.6) for Stable Diffusion 1,
        (0.9, 0.2, 1.4, 1.6) for 2 and (0.9, 0.2, 1.3, 1.4) for XL. ValueError for factors that are not finite.
        """
        _core._models.set_free_u(self, s1, s2, b1, b2)

    def disable_freeu(self):
        """Without FreeU again."""
        _core._models.unset_free_u(self)
