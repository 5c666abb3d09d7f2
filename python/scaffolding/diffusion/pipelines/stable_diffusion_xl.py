"""SDXL, under diffusers' names and arguments: what the registered classes shape in Python."""

from .inpainting import InpaintingMixin
from .lora import StableDiffusionXLLoraLoaderMixin
from .outputs import StableDiffusionXLPipelineOutput
from .pipeline import DiffusionPipeline
from .registration import registered


def _absent(text):
    """None for an empty text of the second encoder: it is the first one's then."""
    return None if text == "" else text


class _StableDiffusionXL(StableDiffusionXLLoraLoaderMixin, DiffusionPipeline):
    """prompt_2, negative_prompt_2: for the second text encoder, the same as the first's where absent or empty; without
    a first one (the refiner) they are not read. negative_prompt_2 needs a negative_prompt, which may be empty: else
    force_zeros_for_empty_prompt stands for both."""

    _output_class = StableDiffusionXLPipelineOutput

    def _look_at(self, given):
        if given["add_watermarker"]:
            raise ValueError(f"{type(self).__name__}: pictures are not marked; add_watermarker must be None or False")

    def _call(self, given, *rest):
        given.update({name: _absent(given[name]) for name in ("prompt_2", "negative_prompt_2")})
        return super()._call(given, *rest)

    def encode_prompt(
        self,
        prompt,
        prompt_2=None,
        device=None,
        num_images_per_prompt=1,
        do_classifier_free_guidance=True,
        negative_prompt=None,
        negative_prompt_2=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        pooled_prompt_embeds=None,
        negative_pooled_prompt_embeds=None,
        clip_skip=None,
        prompt_syntax="plain",
    ):
        """(prompt_embeds, negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds)
        of prompts * num_images_per_prompt samples.
        """
        options = {
            "prompt": prompt,
            "prompt_2": _absent(prompt_2),
            "negative_prompt": negative_prompt,
            "negative_prompt_2": _absent(negative_prompt_2),
            "num_images_per_prompt": num_images_per_prompt,
            "guidance_scale": 5.0 if do_classifier_free_guidance else 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "pooled_prompt_embeds": pooled_prompt_embeds,
            "negative_pooled_prompt_embeds": negative_pooled_prompt_embeds,
            "clip_skip": clip_skip,
            "prompt_syntax": prompt_syntax,
        }
        return self._encoded(options)


StableDiffusionXLPipeline = registered("StableDiffusionXLPipeline", _StableDiffusionXL, {"add_watermarker": None})
StableDiffusionXLImg2ImgPipeline = registered(
    "StableDiffusionXLImg2ImgPipeline", _StableDiffusionXL, {"add_watermarker": None}
)


class _Inpaint(InpaintingMixin, _StableDiffusionXL):
    pass


StableDiffusionXLInpaintPipeline = registered("StableDiffusionXLInpaintPipeline", _Inpaint, {"add_watermarker": None})
