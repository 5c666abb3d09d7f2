"""FLUX, under diffusers' names and arguments: what the registered classes shape in Python."""

from ... import zeros
from ..._core import _pipelines
from .image_processor import picture_of
from .pipeline import DiffusionPipeline
from .registration import registered


class _Flux(DiffusionPipeline):
    """prompt_2, negative_prompt_2: for T5, the same as CLIP's where absent. guidance_scale is told to a denoiser with
    guidance_embeds (dev); true_cfg_scale above 1, with a negative prompt, is classifier-free guidance."""

    def encode_prompt(
        self,
        prompt,
        prompt_2=None,
        device=None,
        num_images_per_prompt=1,
        prompt_embeds=None,
        pooled_prompt_embeds=None,
        max_sequence_length=512,
        lora_scale=None,
    ):
        """(prompt_embeds [B, tokens, features], pooled_prompt_embeds [B, features], text_ids [tokens, 3], zeros) of
        prompts * num_images_per_prompt samples. device and lora_scale are not looked at.
        """
        options = {
            "prompt": prompt,
            "prompt_2": prompt_2,
            "num_images_per_prompt": num_images_per_prompt,
            "prompt_embeds": prompt_embeds,
            "pooled_prompt_embeds": pooled_prompt_embeds,
            "max_sequence_length": max_sequence_length,
        }
        embeds, pooled, *_ = self._encoded(options)
        return embeds, pooled, zeros(embeds.shape[1], 3, device=embeds.device, dtype=embeds.dtype)


class _Kontext(_Flux):
    def _shape(self, given):
        """A picture in a size that the network was trained on, or none."""
        image, resize = given["image"], given.pop("_auto_resize")
        if image is None or (
            getattr(image, "ndim", 0) == 4 and image.shape[1] == self._vae_config("latent_channels", 4)
        ):
            return
        first = picture_of(image[0] if isinstance(image, (list, tuple)) else image)
        height, width = (first if first is not None else self.image_processor.preprocess(image)).shape[-2:]
        if resize:
            height, width = _pipelines.picture_size(self._entry_name, self._parts(), height, width)
        multiple = self.image_processor.config["vae_scale_factor"]
        sides = (side // multiple * multiple for side in (height, width))
        given["image"] = self.image_processor.preprocess(image, *sides)


FluxPipeline = registered("FluxPipeline", _Flux)
FluxImg2ImgPipeline = registered("FluxImg2ImgPipeline", _Flux)
FluxFillPipeline = registered("FluxFillPipeline", _Flux)
FluxKontextPipeline = registered("FluxKontextPipeline", _Kontext)
