"""CogVideoX, under diffusers' names and arguments: what the registered classes shape in Python."""

from ... import _core
from ..._core import Tensor, _pipelines
from ...autograd.grad_mode import no_grad
from ..video_training import cogvideox_loss
from .outputs import VideoPipelineOutput
from .pipeline import DiffusionPipeline
from .registration import ABSENT, registered

CogVideoXPipelineOutput = VideoPipelineOutput


class VideoTensor(Tensor):
    """Latents of clips [B, C, T, h, w]: what a pipeline without an autoencoder returns, a tensor that is its own
    `.frames`."""

    def __new__(cls, data):
        return _core._make_subclass(cls, data, False, False)

    @property
    def frames(self):
        """The tensor itself, as pipelines' outputs have it."""
        return self


class CogVideoXCalls(DiffusionPipeline):
    """Made of networks, a tokenizer and a scheduler, or by from_pretrained. A pipeline that was made of transformer and
    scheduler alone, with a DiTModel for example, is called with prompt_embeds and returns latents, a tensor [B,
    channels, T, h, w]. num_frames: of its clips; latent_channels: those of the transformer."""

    def _look_at(self, given):
        self._num_frames = given["num_frames"]
        self._returns_tensor = given["vae"] is ABSENT
        channels, transformer = given["latent_channels"], given["transformer"]
        has = getattr(getattr(transformer, "config", None), "in_channels", None)
        if channels is not None and has is not None and channels != has:
            raise ValueError(
                f"{type(self).__name__}: latent_channels must be the transformer's in_channels {has}, got {channels}"
            )

    def _shape(self, given):
        if given["num_frames"] is None:
            given["num_frames"] = self._num_frames

    def _call(self, given, kwargs, output_type, return_dict):
        as_tensor = output_type is None and self._returns_tensor
        result = super()._call(given, kwargs, "latent" if as_tensor else output_type, return_dict)
        return VideoTensor(result.frames) if as_tensor and return_dict else result

    def encode_prompt(
        self,
        prompt,
        negative_prompt=None,
        do_classifier_free_guidance=True,
        num_videos_per_prompt=1,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        max_sequence_length=226,
        device=None,
        dtype=None,
    ):
        """(prompt_embeds, negative_prompt_embeds), each [prompts * num_videos_per_prompt, tokens, features]; the second
        None without guidance. In the text encoder's dtype and on the transformer's device, or as dtype and device say.
        """
        options = {
            "prompt": prompt,
            "negative_prompt": negative_prompt,
            "num_videos_per_prompt": num_videos_per_prompt,
            "guidance_scale": 6.0 if do_classifier_free_guidance else 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "max_sequence_length": max_sequence_length,
        }
        embeds = self._encoded(options)
        return tuple(e if e is None else e.to(device=device or e.device, dtype=dtype or e.dtype) for e in embeds)

    def training_step(
        self,
        video,
        prompt=None,
        *,
        prompt_embeds=None,
        condition_dropout=0.1,
        max_sequence_length=226,
        generator=None,
        **options,
    ):
        """The loss of one batch: a number with a gradient for what is trained of the transformer; the autoencoder and
        the text encoder stay as they are.

        video: [B, 3, num_frames, height, width] in [-1, 1]. prompt: B texts, or prompt_embeds [B, tokens, features].
        condition_dropout: the share of clips that are learnt without their prompt, by which guidance works. Other
        options are cogvideox_loss's: noise, timesteps, snr_gamma, ...

        ValueError for a clip of another shape and another number of prompts.
        """
        who = type(self).__name__
        told = self._told(video, options, generator)
        latents = self._latents_of(video, generator)
        if (prompt is None) == (prompt_embeds is None):
            raise ValueError(f"{who}: needs prompt or prompt_embeds, one of them")
        prompts = [prompt] if isinstance(prompt, str) else prompt
        count = len(prompts if prompt_embeds is None else prompt_embeds)
        if count != latents.shape[0]:
            raise ValueError(f"{who}: needs a prompt for each of the {latents.shape[0]} clips, got {count}")
        text, empty = self.encode_prompt(prompts, prompt_embeds=prompt_embeds, max_sequence_length=max_sequence_length)
        return cogvideox_loss(
            self.transformer,
            self.scheduler,
            latents,
            text.to(self.transformer.dtype),
            empty[:1].to(self.transformer.dtype),
            condition_dropout=condition_dropout,
            generator=generator,
            **told,
            **options,
        )

    def _told(self, video, options, generator):
        """What the transformer is told besides, as arguments of cogvideox_loss; taken out of the options."""
        return {}

    def _latents_of(self, video, generator):
        """[B, 3, F, H, W] to [B, T, C, h, w], scaled, in the transformer's dtype and on its device."""
        if getattr(video, "ndim", 0) != 5 or video.shape[1] != 3 or not video.dtype.is_floating_point:
            raise ValueError(
                f"{type(self).__name__}: video must be floating numbers [B, 3, num_frames, height, width] in [-1, 1], "
                f"got {tuple(getattr(video, 'shape', ()))}"
            )
        with no_grad():
            latents = self.vae.encode(video.to(self.vae.device, self.vae.dtype)).latent_dist.sample(generator)
        latents = latents.permute(0, 2, 1, 3, 4) * self.vae.config.scaling_factor
        return latents.to(self.transformer.device, self.transformer.dtype)


DEFAULTS = {"vae": ABSENT, "num_frames": None, "latent_channels": None}
CogVideoXPipeline = registered("CogVideoXPipeline", CogVideoXCalls, DEFAULTS)


class ImageToVideoCalls(CogVideoXCalls):
    def _told(self, video, options, generator):
        """image=: pictures [B, 3, height, width] in [-1, 1] instead of the clips' first frames."""
        image = options.pop("image", None)
        told = super()._told(video, options, generator)
        first = video[:, :, :1] if image is None else image.unsqueeze(2)
        latents = self._latents_of(first, generator)
        if getattr(self.vae.config, "invert_scale_latents", False):
            latents = latents / self.vae.config.scaling_factor**2
        return {**told, "image_latents": latents}

    def _shape(self, given):
        """Pictures are resized to the clip's size."""
        super()._shape(given)
        if given["image"] is None:
            raise ValueError(f"{type(self).__name__}: needs an image")
        height, width = _pipelines.default_size(self._entry_name, self._parts())
        size = given["height"] or height, given["width"] or width
        given["image"] = self.video_processor.preprocess(given["image"], *size)


CogVideoXImageToVideoPipeline = registered("CogVideoXImageToVideoPipeline", ImageToVideoCalls, DEFAULTS)
