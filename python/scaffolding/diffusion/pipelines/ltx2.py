"""LTX-2, under diffusers' names and arguments: what the registered classes shape in Python."""

from dataclasses import dataclass
from typing import Any

from ... import _core
from ..._core import Tensor, _pipelines
from ..._documents import add_to
from ...autograd.grad_mode import no_grad
from .image_processor import picture_of
from .outputs import LTX2PipelineOutput, VideoPipelineOutput
from .pipeline import DiffusionPipeline
from .registration import registered
from .video_processor import VideoProcessor

# of later models
_OF_OTHERS = ("min_seconds", "max_seconds")
_AS_THE_CLIP = ("audio_guidance_scale", "audio_stg_scale", "audio_modality_scale", "audio_guidance_rescale")
_ENHANCES = (
    "enable_prompt_enhancement",
    "system_prompt",
    "prompt_max_new_tokens",
    "prompt_enhancement_kwargs",
    "prompt_enhancement_seed",
)


class _LTX2(DiffusionPipeline):
    """min_seconds and max_seconds are for other models than LTX-2.0 and 2.3 and change nothing. Prompts are taken as
    they are: enable_prompt_enhancement is refused."""

    _output_class = LTX2PipelineOutput
    _has_sound = True

    def _register(self, components, options):
        for name in ("processor", "prompt_enhancer", "duration_head"):
            if components.get(name) is not None:
                raise NotImplementedError(f"{type(self).__name__}: {name} is not supported: it is LTX-2.5's")
        super()._register(components, options)

    def _shape(self, given):
        for name in _OF_OTHERS:
            given.pop(name, None)
        if isinstance(given["decode_noise_scale"], (int, float)):
            given["decode_noise_scale"] = [given["decode_noise_scale"]]
        for name in _AS_THE_CLIP:
            if given[name] is None:
                given[name] = 0.0
        if given["spatio_temporal_guidance_blocks"] is None:
            given["spatio_temporal_guidance_blocks"] = []
        enhances = {name: given.pop(name, None) for name in _ENHANCES}
        if enhances["enable_prompt_enhancement"]:
            raise NotImplementedError(
                f"{type(self).__name__}: enable_prompt_enhancement is not supported: prompts are taken as they are"
            )

    def _told_picture(self, picture, crf):
        """uint8 [3, H, W] as the model was told the pictures of its training: compressed."""
        options = {} if crf is None else {"image_crf": crf}
        return _pipelines.told_picture(self._entry_name, self._parts(), options, picture)

    def encode_prompt(
        self,
        prompt,
        negative_prompt=None,
        do_classifier_free_guidance=True,
        num_videos_per_prompt=1,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        prompt_attention_mask=None,
        negative_prompt_attention_mask=None,
        max_sequence_length=1024,
        scale_factor=8,
        device=None,
        dtype=None,
    ):
        """(prompt_embeds, prompt_attention_mask, negative_prompt_embeds, negative_prompt_attention_mask): embeds are
        [prompts * num_videos_per_prompt, tokens, features of all layers], masks [.., tokens] with 0 for padding; the
        last two None without guidance. scale_factor is the connectors', and changes nothing here.
        """
        options = {
            "prompt": prompt,
            "negative_prompt": negative_prompt,
            "num_videos_per_prompt": num_videos_per_prompt,
            "guidance_scale": 3.0 if do_classifier_free_guidance else 1.0,
            "audio_guidance_scale": 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "prompt_attention_mask": prompt_attention_mask,
            "negative_prompt_attention_mask": negative_prompt_attention_mask,
            "max_sequence_length": max_sequence_length,
        }
        embeds, mask, negative, negative_mask = self._encoded(options)

        def placed(t):
            return t if t is None else t.to(device=device or t.device, dtype=dtype or t.dtype)

        return placed(embeds), mask, placed(negative), negative_mask


LTX2Pipeline = registered("LTX2Pipeline", _LTX2)


class _ImageToVideo(_LTX2):
    def _register(self, components, options):
        super()._register(components, options)
        self.video_processor = VideoProcessor(vae_scale_factor=self.vae_scale_factor, resample="bilinear")

    def _shape(self, given):
        """Pictures are resized to the clip's size."""
        super()._shape(given)
        if given["image"] is None:
            if given["latents"] is None:
                raise ValueError(f"{type(self).__name__}: needs an image")
            return
        height, width = _pipelines.default_size(self._entry_name, self._parts())
        size = given["height"] or height, given["width"] or width
        given["image"] = self.video_processor.preprocess(self._told(given["image"], given["image_crf"]), *size)

    def _told(self, image, crf):
        """Pictures as the model was told those of its training: compressed. ValueError for values of other kinds, which
        image_crf=0 leaves as they are."""
        if crf == 0:
            return image
        images = list(image) if isinstance(image, (list, tuple)) else [image]
        pictures = [picture_of(i) for i in images]
        if any(p is None for p in pictures):
            raise ValueError(
                f"{type(self).__name__}: image_crf is for pictures, got {type(images[0]).__name__}; image_crf=0 takes "
                "others as they are"
            )
        return [self._told_picture(p, crf) for p in pictures]


LTX2ImageToVideoPipeline = registered("LTX2ImageToVideoPipeline", _ImageToVideo)


@dataclass
class LTX2VideoCondition:
    """A picture or a clip that an LTX2ConditionPipeline's clip goes through.

    frames: a picture or a list of them, an array [T, H, W, 3] or a tensor [T, 3, H, W] of levels up to 255; of any
    size, it is filled and cut to the clip's. index: the latent that it begins at (each but the first is 8 frames), from
    the end where below 0. strength: how closely it is kept, 0 to 1. crf: as image_crf, of a single picture.

    >>> condition = sf.diffusion.LTX2VideoCondition(sf.zeros(9, 3, 64, 96), index=0, strength=0.8)
    """

    frames: Any
    index: int = 0
    strength: float = 1.0
    crf: int | None = None


def _pixels_of(condition, told):
    """[T, 3, H, W] float32 in [-1, 1]; told: what a single picture of uint8 [3, H, W] becomes for a crf."""
    frames, crf = condition.frames, condition.crf
    frames = [frames] if picture_of(frames) is not None else frames
    if isinstance(frames, Tensor):
        levels = frames if frames.ndim == 4 else frames.unsqueeze(0)
    elif isinstance(frames, (list, tuple)) and frames and all(picture_of(f) is not None for f in frames):
        levels = _core.stack([picture_of(f) for f in frames], 0)
    elif getattr(frames, "ndim", 0) in (3, 4):
        levels = _core.tensor(frames if frames.ndim == 4 else frames[None]).permute(0, 3, 1, 2)
    else:
        raise TypeError(
            f"LTX2VideoCondition: frames must be pictures, an array or a tensor, got {type(frames).__name__}"
        )
    if levels.ndim != 4 or levels.shape[1] != 3:
        raise ValueError(f"LTX2VideoCondition: frames must be of 3 channels, got {tuple(levels.shape)}")
    if len(levels) == 1 and crf != 0:
        if levels.dtype is not _core.uint8:
            raise ValueError(
                f"LTX2VideoCondition: crf is for pictures of uint8, got {levels.dtype}; crf=0 takes others as they are"
            )
        levels = told(levels[0], crf).unsqueeze(0)
    return levels.to(_core.float32) / 127.5 - 1.0


class _Condition(_LTX2):
    def _shape(self, given):
        super()._shape(given)
        conditions = given.pop("conditions", None)
        conditions = [conditions] if isinstance(conditions, LTX2VideoCondition) else list(conditions or [])
        if not all(isinstance(c, LTX2VideoCondition) for c in conditions):
            raise TypeError(f"{type(self).__name__}: conditions must be LTX2VideoCondition or a list of them")
        if conditions:
            given["conditions"] = [_pixels_of(c, self._told_picture) for c in conditions]
            given["condition_indices"] = [float(c.index) for c in conditions]
            given["condition_strengths"] = [float(c.strength) for c in conditions]


LTX2ConditionPipeline = registered("LTX2ConditionPipeline", _Condition)


class LTX2LatentUpsamplePipeline:
    """Latents of clips, twice as large: between two stages of LTX-2. Made of an AutoencoderKLLTX2Video and an
    LTX2LatentUpsamplerModel; no pipeline of steps, but called and moved as those are.

    >>> latents, sound = pipe(prompt, output_type="latent", return_dict=False)  # doctest: +SKIP
    >>> larger = LTX2LatentUpsamplePipeline(pipe.vae, upsampler)  # doctest: +SKIP
    >>> latents = larger(latents=latents, output_type="latent").frames  # doctest: +SKIP
    """

    def __init__(self, vae, latent_upsampler):
        self.vae, self.latent_upsampler = vae, latent_upsampler
        self.video_processor = VideoProcessor(vae_scale_factor=vae.spatial_compression_ratio)

    @property
    def components(self):
        """{"vae": ..., "latent_upsampler": ...}"""
        return {"vae": self.vae, "latent_upsampler": self.latent_upsampler}

    def to(self, *args, **kwargs):
        """Moves and converts both networks; returns itself."""
        for network in self.components.values():
            network.to(*args, **kwargs)
        return self

    def __call__(
        self,
        video=None,
        height=512,
        width=768,
        latents=None,
        latents_normalized=False,
        adain_factor=0.0,
        tone_map_compression_ratio=0.0,
        generator=None,
        output_type="pil",
        return_dict=True,
    ):
        """Of a clip (pictures, an array [T, H, W, 3] or a tensor [T, 3, H, W]), which is resized to height and width,
        or of latents [B, C, T, h, w] as calls for latents return them; latents_normalized: as denoisers have them.

        adain_factor: above 0, how far each channel gets its old mean and deviation. tone_map_compression_ratio: 0 to 1,
        how much smaller large values become. output_type: "latent", or as pipelines of clips have it. Returns .frames.
        ValueError for none or both of video and latents, and for what does not fit.
        """
        who = type(self).__name__
        if (video is None) == (latents is None):
            raise ValueError(f"{who}: needs video or latents, one of them")
        if not 0.0 <= tone_map_compression_ratio <= 1.0:
            raise ValueError(f"{who}: tone_map_compression_ratio must be in [0, 1], got {tone_map_compression_ratio}")
        with no_grad():
            if latents is None:
                latents = self._encoded(video, height, width, generator)
            elif latents.ndim != 5:
                raise ValueError(f"{who}: latents must be [B, C, T, h, w], got {tuple(latents.shape)}")
            elif latents_normalized:
                mean, std = (t.reshape(1, -1, 1, 1, 1) for t in (self.vae.latents_mean, self.vae.latents_std))
                latents = latents * std / self.vae.config.scaling_factor + mean
            latents = latents.to(self.latent_upsampler.device, self.latent_upsampler.dtype)
            larger = self.latent_upsampler(latents)
            if adain_factor > 0:
                larger = _pipelines.adain_filter_latent(larger, latents, adain_factor)
            if tone_map_compression_ratio > 0:
                larger = _pipelines.tone_map_latents(larger, tone_map_compression_ratio)
            if output_type != "latent":
                values = self.vae.decode(larger.to(self.vae.device, self.vae.dtype)).sample
                larger = self.video_processor.postprocess_video(values.to(_core.float32), output_type)
        return VideoPipelineOutput(frames=larger) if return_dict else (larger,)

    def _encoded(self, video, height, width, generator):
        pixels = self.video_processor.preprocess_video(video, height=height, width=width)
        ratio = self.vae.temporal_compression_ratio
        pixels = pixels[:, :, : (pixels.shape[2] - 1) // ratio * ratio + 1]
        return self.vae.encode(pixels.to(self.vae.device, self.vae.dtype)).latent_dist.sample(generator)


add_to(LTX2LatentUpsamplePipeline, "pipelines")
