"""Stable Diffusion 1 and 2, under diffusers' names and arguments: what the registered classes shape in Python."""

from .inpainting import InpaintingMixin
from .lora import StableDiffusionLoraLoaderMixin
from .outputs import ImageTensor, StableDiffusionPipelineOutput
from .pipeline import DiffusionPipeline
from .registration import ABSENT, registered


class _StableDiffusion(StableDiffusionLoraLoaderMixin, DiffusionPipeline):
    """Made of networks, a tokenizer and a scheduler, or by from_pretrained. A pipeline that was made of unet, scheduler
    and vae without text encoder and tokenizer is called with prompt_embeds, and returns pictures as a tensor [B, 3, H,
    W] in [0, 1] where no output_type asks for others."""

    def _look_at(self, given):
        self._returns_tensor = given["text_encoder"] is ABSENT and given["tokenizer"] is ABSENT

    def _call(self, given, kwargs, output_type, return_dict):
        as_tensor = output_type is None and self._returns_tensor
        result = super()._call(given, kwargs, "pt" if as_tensor else output_type, return_dict)
        return ImageTensor(result.images) if as_tensor and return_dict else result

    def _result(self, images, sound, return_dict):
        return (
            StableDiffusionPipelineOutput(images=images, nsfw_content_detected=None) if return_dict else (images, None)
        )

    def encode_prompt(
        self,
        prompt,
        device=None,
        num_images_per_prompt=1,
        do_classifier_free_guidance=True,
        negative_prompt=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        clip_skip=None,
        prompt_syntax="plain",
    ):
        """(prompt_embeds, negative_prompt_embeds), each [prompts * num_images_per_prompt, tokens, features];
        the second None without guidance.
        """
        options = {
            "prompt": prompt,
            "negative_prompt": negative_prompt,
            "num_images_per_prompt": num_images_per_prompt,
            "guidance_scale": 7.5 if do_classifier_free_guidance else 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "clip_skip": clip_skip,
            "prompt_syntax": prompt_syntax,
        }
        return self._encoded(options)


_DEFAULTS = {"text_encoder": ABSENT, "tokenizer": ABSENT}
StableDiffusionPipeline = registered("StableDiffusionPipeline", _StableDiffusion, _DEFAULTS)
StableDiffusionImg2ImgPipeline = registered("StableDiffusionImg2ImgPipeline", _StableDiffusion, _DEFAULTS)


class _Inpaint(InpaintingMixin, _StableDiffusion):
    pass


StableDiffusionInpaintPipeline = registered("StableDiffusionInpaintPipeline", _Inpaint, _DEFAULTS)
