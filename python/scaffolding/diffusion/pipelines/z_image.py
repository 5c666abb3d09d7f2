"""Z-Image, under diffusers' names and arguments: what the registered classes shape in Python."""

from ..._core import Tensor
from ...models.z_image import joined_captions
from .image_processor import VaeImageProcessor
from .outputs import ZImagePipelineOutput
from .pipeline import DiffusionPipeline
from .registration import registered

_EMBEDS = ("prompt_embeds", "negative_prompt_embeds")


class _ZImage(DiffusionPipeline):
    """prompt_embeds, negative_prompt_embeds: a list with [tokens, features] for each prompt. cfg_normalization: False,
    True for 1.0, or a number."""

    _output_class = ZImagePipelineOutput

    def _register(self, components, options):
        super()._register(components, options)
        self.image_processor = VaeImageProcessor(  # patches are two latents wide
            vae_scale_factor=2 * self.vae_scale_factor, vae_latent_channels=self._vae_config("latent_channels", 4)
        )

    def _shape(self, given):
        super()._shape(given)
        given["cfg_normalization"] = float(given["cfg_normalization"] or 0.0)
        if given["cfg_truncation"] is None:
            given["cfg_truncation"] = 1.0  # the whole way
        if given["num_images_per_prompt"] is None:
            given["num_images_per_prompt"] = 1
        self._join(given)

    def _join(self, given):
        """Embeds of several lengths as one tensor with a mask."""
        for name in _EMBEDS:
            embeds = given.get(name)
            if embeds is None or isinstance(embeds, Tensor):
                continue
            embeds = list(embeds)
            if not embeds or not all(isinstance(e, Tensor) and e.ndim == 2 for e in embeds):
                raise TypeError(f"{type(self).__name__}: {name} must be a list of tensors [tokens, features]")
            given[name], given[name.replace("embeds", "attention_mask")] = joined_captions(embeds)

    def encode_prompt(
        self,
        prompt,
        device=None,
        do_classifier_free_guidance=True,
        negative_prompt=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        max_sequence_length=512,
    ):
        """(prompt_embeds, negative_prompt_embeds), lists with [tokens, features] for each prompt; the second is empty
        without guidance.
        """
        options = {
            "prompt": prompt,
            "negative_prompt": negative_prompt,
            "guidance_scale": 5.0 if do_classifier_free_guidance else 0.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "max_sequence_length": max_sequence_length,
        }
        self._join(options)
        embeds, mask, negative, negative_mask = self._encoded(options)

        def each(batch, seen):
            if batch is None:
                return []
            lengths = [batch.shape[1]] * len(batch) if seen is None else [int(n) for n in seen.sum(1)]
            return [sample[:n] for sample, n in zip(batch, lengths)]

        return each(embeds, mask), each(negative, negative_mask)


ZImagePipeline = registered("ZImagePipeline", _ZImage)
ZImageImg2ImgPipeline = registered("ZImageImg2ImgPipeline", _ZImage)
