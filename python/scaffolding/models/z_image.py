"""Z-Image's transformer, under diffusers' name."""

from .._core import Tensor, cat, stack, tensor
from ..nn.utils.rnn import pad_sequence
from .adapters import lora_scaled, only_scale_of
from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


def joined_captions(captions):
    """Captions [M, C] of several lengths as (cap_feats [B, longest, C], cap_mask [B, longest]: 1 where there is a
    token); of one length without a mask."""
    lengths = [c.shape[0] for c in captions]
    if len(set(lengths)) == 1:
        return stack(list(captions)), None
    mask = tensor([[1] * n + [0] * (max(lengths) - n) for n in lengths])
    return pad_sequence(list(captions), batch_first=True), mask.to(captions[0].device)


@model_class
class ZImageTransformer2DModel(ModelMixin):
    """A transformer over patches of latents and the tokens of a caption (Z-Image), with diffusers' config fields and
    keys.

    >>> model = sf.models.ZImageTransformer2DModel(
    ...     dim=128, n_layers=1, n_refiner_layers=1, n_heads=1, n_kv_heads=1, cap_feat_dim=12)
    >>> model([sf.zeros(16, 1, 8, 8)], sf.tensor([0.5]), [sf.zeros(5, 12)]).sample[0].shape
    scaffolding.Size([16, 1, 8, 8])
    """

    _skip_layerwise_casting_patterns = ("t_embedder", "cap_embedder")

    def forward(
        self,
        x,
        t,
        cap_feats,
        return_dict=True,
        controlnet_block_samples=None,
        siglip_feats=None,
        image_noise_mask=None,
        patch_size=2,
        f_patch_size=1,
        joint_attention_kwargs=None,
        cap_mask=None,
    ):
        """x: a list of latents [in_channels, F, H, W], which may differ in size; t [B]: 0 for noise, 1 for a picture;
        cap_feats: a list of captions [M, cap_feat_dim]. `sample` is a list like x.

        A batch of one size may be one tensor instead, x [B, in_channels, F, H, W] or [B, in_channels, H, W] with
        cap_feats [B, M, cap_feat_dim] and cap_mask [B, M], which is 1 for a caption's tokens and 0 behind them; so is
        `sample` then. joint_attention_kwargs: {"scale": 0.5} for LoRAs of half their strength in this call.
        NotImplementedError for controlnet_block_samples, and for what models with siglip_feat_dim take.
        """
        who = self._class_name
        for name, value in (
            ("controlnet_block_samples", controlnet_block_samples),
            ("siglip_feats", siglip_feats),
            ("image_noise_mask", image_noise_mask),
        ):
            if value is not None:
                raise NotImplementedError(f"{who}: {name} is not supported")
        scale = only_scale_of(who, "joint_attention_kwargs", joint_attention_kwargs)
        with lora_scaled([self], scale):
            if isinstance(x, Tensor):
                sample = self.native_forward(x, t, cap_feats, cap_mask, patch_size, f_patch_size)
            else:
                sample = self._each(list(x), t, list(cap_feats), patch_size, f_patch_size)
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)

    def _each(self, x, t, captions, patch_size, f_patch_size):
        """Samples of one size in one call."""
        who = self._class_name
        for name, given in (("x", x), ("cap_feats", captions)):
            if any(isinstance(item, (list, tuple)) for item in given):
                raise NotImplementedError(
                    f"{who}: {name} must be a list of tensors; lists of lists are of models with siglip_feat_dim"
                )
        if not x or len(x) != len(captions):
            raise ValueError(f"{who}: needs as many cap_feats as x, got {len(captions)} and {len(x)}")
        times = [t] * len(x) if t.numel() == 1 else list(t)
        if len(times) != len(x):
            raise ValueError(f"{who}: t must be one number, or one for each of the {len(x)} samples, got {len(times)}")
        sizes, out = {}, [None] * len(x)
        for i, sample in enumerate(x):
            sizes.setdefault(tuple(sample.shape), []).append(i)
        for places in sizes.values():
            feats, mask = joined_captions([captions[i] for i in places])
            chosen = cat([times[i].reshape(1) for i in places])
            made = self.native_forward(stack([x[i] for i in places]), chosen, feats, mask, patch_size, f_patch_size)
            for i, sample in zip(places, made):
                out[i] = sample
        return out
