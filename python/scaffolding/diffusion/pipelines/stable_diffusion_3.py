"""Stable Diffusion 3 and 3.5, under diffusers' names and arguments: what the registered classes shape in Python."""

from ..._core import _pipelines
from .inpainting import InpaintingMixin
from .pipeline import DiffusionPipeline
from .registration import registered

_SECOND = ("prompt_2", "prompt_3", "negative_prompt_2", "negative_prompt_3")


def _absent(text):
    """None for an empty text of another encoder: it is the first one's then."""
    return None if text == "" else text


class _StableDiffusion3(DiffusionPipeline):
    """prompt_2, prompt_3: for the second text encoder and for T5, the same as the first's where absent or empty; the
    same holds for negative_prompt_2 and negative_prompt_3. Without T5 (text_encoder_3=None) its tokens are zeros."""

    def _call(self, given, *rest):
        given.update({name: _absent(given[name]) for name in _SECOND})
        return super()._call(given, *rest)

    def encode_prompt(
        self,
        prompt,
        prompt_2=None,
        prompt_3=None,
        device=None,
        num_images_per_prompt=1,
        do_classifier_free_guidance=True,
        negative_prompt=None,
        negative_prompt_2=None,
        negative_prompt_3=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        pooled_prompt_embeds=None,
        negative_pooled_prompt_embeds=None,
        clip_skip=None,
        max_sequence_length=256,
    ):
        """(prompt_embeds, negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds)
        of prompts * num_images_per_prompt samples.
        """
        options = {
            "prompt": prompt,
            "prompt_2": _absent(prompt_2),
            "prompt_3": _absent(prompt_3),
            "negative_prompt": negative_prompt,
            "negative_prompt_2": _absent(negative_prompt_2),
            "negative_prompt_3": _absent(negative_prompt_3),
            "num_images_per_prompt": num_images_per_prompt,
            "guidance_scale": 7.0 if do_classifier_free_guidance else 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "pooled_prompt_embeds": pooled_prompt_embeds,
            "negative_pooled_prompt_embeds": negative_pooled_prompt_embeds,
            "clip_skip": clip_skip,
            "max_sequence_length": max_sequence_length,
        }
        return self._encoded(options)


class _Img2Img(_StableDiffusion3):
    def _shape(self, given):
        """A picture of any size as one of height and width; latents have their own."""
        if given.get("image") is None:
            raise ValueError(f"{type(self).__name__}: needs an image")
        default_height, default_width = _pipelines.default_size(self._entry_name, self._parts())
        height, width = given["height"] or default_height, given["width"] or default_width
        image = given["image"] = self.image_processor.preprocess(given["image"], height, width)
        if image.shape[1] != self._vae_config("latent_channels", 16):
            given["height"], given["width"] = height, width


class _Inpaint(InpaintingMixin, _StableDiffusion3):
    pass


StableDiffusion3Pipeline = registered("StableDiffusion3Pipeline", _StableDiffusion3)
StableDiffusion3Img2ImgPipeline = registered("StableDiffusion3Img2ImgPipeline", _Img2Img)
StableDiffusion3InpaintPipeline = registered("StableDiffusion3InpaintPipeline", _Inpaint)
