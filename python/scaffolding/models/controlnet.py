"""ControlNetModel and MultiControlNetModel, under diffusers' names."""

import os

from .. import _core
from .._core import _models
from ..nn import Module, ModuleList
from .adapters import lora_scaled, only_scale_of
from .modeling import MODEL_CLASSES, ModelMixin, model_class
from .outputs import ControlNetOutput


@model_class
class ControlNetModel(ModelMixin):
    """What a UNet of Stable Diffusion 1.x, 2.x or XL is told of a picture: edges, depths, a pose. A copy of the UNet's
    way down that sees the picture besides, and says what is added to the UNet's skips and middle.

    >>> net = sf.models.ControlNetModel(
    ...     down_block_types=["CrossAttnDownBlock2D"], block_out_channels=[32], cross_attention_dim=8)
    >>> told = net(sf.zeros(1, 4, 8, 8), 10, sf.zeros(1, 77, 8), controlnet_cond=sf.zeros(1, 3, 64, 64))
    >>> len(told.down_block_res_samples), told.mid_block_res_sample.shape
    (3, scaffolding.Size([1, 32, 8, 8]))
    """

    def forward(
        self,
        sample,
        timestep,
        encoder_hidden_states,
        controlnet_cond,
        conditioning_scale=1.0,
        class_labels=None,
        timestep_cond=None,
        attention_mask=None,
        added_cond_kwargs=None,
        cross_attention_kwargs=None,
        guess_mode=False,
        return_dict=True,
    ):
        """What the UNet adds: (tensors for its skips, one for its middle), for sample [B, in_channels, H, W] and the
        picture controlnet_cond [B, conditioning_channels, 8 H, 8 W] in [0, 1].

        conditioning_scale: a number, or a tensor that can be multiplied with [B, C, h, w]. guess_mode: the upper skips
        get less. The rest is as UNet2DConditionModel has it."""
        added = dict(added_cond_kwargs or {})
        text_embeds, time_ids = added.pop("text_embeds", None), added.pop("time_ids", None)
        if added:
            raise NotImplementedError(f"ControlNetModel: added_cond_kwargs has no use for {', '.join(sorted(added))}")
        scale = only_scale_of("ControlNetModel", "cross_attention_kwargs", cross_attention_kwargs)
        if not isinstance(timestep, _core.Tensor):
            timestep = _core.tensor(timestep, device=sample.device)
        if not isinstance(conditioning_scale, _core.Tensor):
            conditioning_scale = None if conditioning_scale == 1 else _core.tensor(float(conditioning_scale))
        with lora_scaled([self], scale):
            *down, mid = self.native_forward(
                sample,
                timestep,
                encoder_hidden_states,
                controlnet_cond,
                conditioning_scale,
                class_labels,
                timestep_cond,
                attention_mask,
                text_embeds,
                time_ids,
                bool(guess_mode),
            )
        if return_dict:
            return ControlNetOutput(down_block_res_samples=tuple(down), mid_block_res_sample=mid)
        return tuple(down), mid

    @classmethod
    def from_unet(
        cls,
        unet,
        controlnet_conditioning_channel_order="rgb",
        conditioning_embedding_out_channels=(16, 32, 96, 256),
        load_weights_from_unet=True,
        conditioning_channels=3,
    ):
        """A ControlNet to be trained beside a UNet: with copies of its weights, and adding nothing to it yet."""
        made = cls(
            **{
                **_models.controlnet_config(unet),
                "controlnet_conditioning_channel_order": controlnet_conditioning_channel_order,
                "conditioning_embedding_out_channels": list(conditioning_embedding_out_channels),
                "conditioning_channels": conditioning_channels,
            }
        )
        if load_weights_from_unet:
            own, theirs = made.state_dict(), unet.state_dict()
            state = {k: theirs[k] for k in own if k in theirs}
            missing = [k for k in own if k not in theirs and not k.startswith("controlnet_")]
            if missing:
                raise ValueError(f"ControlNetModel.from_unet: the UNet has no tensor '{missing[0]}'")
            made.load_state_dict(state, strict=False)
        return made


class MultiControlNetModel(Module):
    """Several ControlNets beside one UNet, each with its picture: what they tell it is added up."""

    def __init__(self, controlnets):
        super().__init__()
        controlnets = list(controlnets)
        for net in controlnets:
            if not isinstance(net, Module):
                raise TypeError(f"MultiControlNetModel: takes a list of ControlNetModels, got a {type(net).__name__}")
        if not controlnets:
            raise ValueError("MultiControlNetModel: needs at least one ControlNetModel")
        self.nets = ModuleList(controlnets)

    @property
    def dtype(self):
        """Of the first network."""
        return self.nets[0].dtype

    @property
    def device(self):
        """Of the first network."""
        return self.nets[0].device

    def forward(self, sample, timestep, encoder_hidden_states, controlnet_cond, conditioning_scale, *args, **kwargs):
        """ControlNetModel's arguments, but a list of pictures and one of scales. Returns (tensors for the skips, one
        for the middle)."""
        total = None
        for net, picture, scale in zip(self.nets, controlnet_cond, conditioning_scale):
            kwargs["return_dict"] = False
            down, mid = net(sample, timestep, encoder_hidden_states, picture, scale, *args, **kwargs)
            parts = [*down, mid]
            total = parts if total is None else [a + b for a, b in zip(total, parts)]
        *down, mid = total
        return down, mid

    def save_pretrained(self, save_directory, **kwargs):
        """Writes the networks into folders beside each other: `controlnet`, `controlnet_1`, ..."""
        for i, net in enumerate(self.nets):
            net.save_pretrained(os.fspath(save_directory) + (f"_{i}" if i else ""), **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_path, **kwargs):
        """The networks that save_pretrained wrote. ValueError where there is none."""
        nets, path = [], os.fspath(pretrained_model_path)
        while os.path.isdir(folder := path + (f"_{len(nets)}" if nets else "")):
            nets.append(ControlNetModel.from_pretrained(folder, **kwargs))
        if not nets:
            raise ValueError(f"MultiControlNetModel: there is no folder {path}")
        return cls(nets)


MODEL_CLASSES["MultiControlNetModel"] = MultiControlNetModel
