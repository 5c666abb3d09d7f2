"""LTX-2's transformer of videos with their sound, and what stands between it and its text encoder, under diffusers'
names.
"""

from .adapters import lora_scaled, only_scale_of
from .dit import _as_tensor
from .modeling import ModelMixin, model_class, native_method
from .outputs import AudioVisualModelOutput


class _Rope:
    """Where the patches of one stream are: diffusers' `transformer.rope` and `transformer.audio_rope`."""

    def __init__(self, **methods):
        self.__dict__.update(methods)


@model_class
class LTX2VideoTransformer3DModel(ModelMixin):
    """A transformer over the tokens of a video's latents and of its sound's, told a text for either and timesteps
    (LTX-2.0 and LTX-2.3), with diffusers' config fields and keys.

    >>> model = sf.models.LTX2VideoTransformer3DModel(
    ...     num_layers=1, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32, caption_channels=12,
    ...     audio_num_attention_heads=2, audio_attention_head_dim=8, audio_cross_attention_dim=16)
    >>> video, sound, text = sf.zeros(1, 12, 128), sf.zeros(1, 5, 128), sf.zeros(1, 4, 12)
    >>> made = model(video, sound, text, text, sf.tensor([500.]), num_frames=2, height=3, width=2, audio_num_frames=5)
    >>> made.sample.shape, made.audio_sample.shape
    (scaffolding.Size([1, 12, 128]), scaffolding.Size([1, 5, 128]))
    """

    _skip_layerwise_casting_patterns = ("norm",)
    _video_coords, _audio_coords = native_method("prepare_video_coords"), native_method("prepare_audio_coords")

    @property
    def rope(self):
        """`rope.prepare_video_coords(batch_size, num_frames, height, width, device, fps=24.0)`: bounds of the patches
        of a video of so many latents, [batch_size, 3, N, 2] in seconds, rows and columns of pixels.
        """

        def prepare_video_coords(batch_size, num_frames, height, width, device, fps=24.0):
            return self._video_coords(batch_size, num_frames, height, width, device, fps)

        return _Rope(prepare_video_coords=prepare_video_coords, prepare_coords=prepare_video_coords)

    @property
    def audio_rope(self):
        """`audio_rope.prepare_audio_coords(batch_size, num_frames, device, shift=0)`: when latents sound,
        [batch_size, 1, L, 2] in seconds.
        """

        def prepare_audio_coords(batch_size, num_frames, device, shift=0):
            return self._audio_coords(batch_size, num_frames, device, shift)

        return _Rope(prepare_audio_coords=prepare_audio_coords, prepare_coords=prepare_audio_coords)

    def forward(
        self,
        hidden_states,
        audio_hidden_states,
        encoder_hidden_states,
        audio_encoder_hidden_states,
        timestep,
        audio_timestep=None,
        sigma=None,
        audio_sigma=None,
        encoder_attention_mask=None,
        audio_encoder_attention_mask=None,
        num_frames=None,
        height=None,
        width=None,
        fps=24.0,
        audio_num_frames=None,
        video_coords=None,
        audio_coords=None,
        isolate_modalities=False,
        spatio_temporal_guidance_blocks=None,
        perturbation_mask=None,
        use_cross_timestep=False,
        attention_kwargs=None,
        video_self_attention_mask=None,
        video_keyframes_mask=None,
        return_dict=True,
    ):
        """hidden_states [B, N, in_channels] and audio_hidden_states [B, L, audio_in_channels] to `sample` [B, N,
        out_channels] and `audio_sample` [B, L, audio_out_channels].

        encoder_hidden_states, audio_encoder_hidden_states: texts [B, M, C], with masks [B, M] that are 1 for what is
        seen. timestep, audio_timestep: a number, [B], or one for each token, [B, N] and [B, L], scaled by
        timestep_scale_multiplier; sigma, audio_sigma: the same of whole samples, [B], for networks whose text's
        modulation depends on the noise, and with use_cross_timestep. Places of tokens are video_coords [B, 3, N, 2] and
        audio_coords [B, 1, L, 2] (`rope`, `audio_rope`), or made of num_frames, height, width and audio_num_frames of
        the latents and fps.

        isolate_modalities: the streams do not attend to each other. spatio_temporal_guidance_blocks: numbers of blocks
        in which self-attention is left out, with perturbed_attn; perturbation_mask [B]: 0 for samples of which.
        video_self_attention_mask [B, N, N]: from 0, not seen, to 1. attention_kwargs: {"scale": 0.5} for LoRAs of half
        their strength in this call. NotImplementedError for video_keyframes_mask, which LTX-2.5 takes. ValueError where
        shapes do not fit.
        """
        who = self._class_name
        if video_keyframes_mask is not None:
            raise NotImplementedError(f"{who}: video_keyframes_mask is LTX-2.5's, which is not supported")
        scale = only_scale_of(who, "attention_kwargs", attention_kwargs)
        device = hidden_states.device
        with lora_scaled([self], scale):
            sample, audio_sample = self.native_forward(
                hidden_states,
                audio_hidden_states,
                encoder_hidden_states,
                audio_encoder_hidden_states,
                _as_tensor(timestep, device),
                _as_tensor(audio_timestep, device),
                _as_tensor(sigma, device),
                _as_tensor(audio_sigma, device),
                encoder_attention_mask,
                audio_encoder_attention_mask,
                num_frames or 0,
                height or 0,
                width or 0,
                fps,
                audio_num_frames or 0,
                video_coords,
                audio_coords,
                bool(isolate_modalities),
                [float(i) for i in spatio_temporal_guidance_blocks or []],
                perturbation_mask,
                bool(use_cross_timestep),
                video_self_attention_mask,
            )
        if not return_dict:
            return sample, audio_sample
        return AudioVisualModelOutput(sample=sample, audio_sample=audio_sample)


@model_class
class LTX2TextConnectors(ModelMixin):
    """What makes LTX-2's texts of the states of all layers of its text encoder: a projection, and a transformer for
    each stream that puts registers where the text has no tokens, with diffusers' config fields and keys.

    >>> model = sf.models.LTX2TextConnectors(
    ...     caption_channels=8, text_proj_in_factor=3,
    ...     video_connector_num_attention_heads=2, video_connector_attention_head_dim=4,
    ...     audio_connector_num_attention_heads=2, audio_connector_attention_head_dim=4)
    >>> video, audio, mask = model(sf.zeros(1, 128, 24), sf.ones(1, 128, dtype=sf.int64))
    >>> video.shape, audio.shape
    (scaffolding.Size([1, 128, 8]), scaffolding.Size([1, 128, 8]))
    """

    def forward(self, text_encoder_hidden_states, attention_mask, padding_side="left", scale_factor=8):
        """text_encoder_hidden_states [B, M, caption_channels, text_proj_in_factor], or with the last two flattened;
        attention_mask [B, M]: 1 for tokens, 0 for padding on the padding_side. Returns the text of the video [B, M, C],
        that of the audio [B, M, A], and a mask [B, M] of what is to be seen.

        padding_side and scale_factor are of LTX-2.0's normalisation. ValueError where shapes do not fit, or M is no
        multiple of the number of registers.
        """
        return tuple(self.native_forward(text_encoder_hidden_states, attention_mask, padding_side, scale_factor))
