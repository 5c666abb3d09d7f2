"""SDXL, under diffusers' names and arguments."""

from ..._core import _pipelines
from .outputs import StableDiffusionXLPipelineOutput
from .pipeline import DiffusionPipeline, texts


def _absent(text):
    """None for an empty text of the second encoder: it is the first one's then."""
    return None if text == "" else text


class _StableDiffusionXL(DiffusionPipeline):
    _optional_components = ("tokenizer", "tokenizer_2", "text_encoder", "text_encoder_2", "image_encoder", "feature_extractor")
    _options = {"force_zeros_for_empty_prompt": True}
    _callback_tensor_inputs = ("latents", "prompt_embeds", "add_text_embeds", "add_time_ids")

    def _call(self, given, kwargs, output_type, return_dict):
        given |= {name: _absent(given[name]) for name in ("prompt_2", "negative_prompt_2")}
        images = self._generate(self._options_of(given, kwargs), self._output_type(output_type))
        return StableDiffusionXLPipelineOutput(images=images) if return_dict else (images,)

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
        """(prompt_embeds, negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds) of prompts * num_images_per_prompt samples."""
        options = {
            "prompt": texts("prompt", prompt),
            "prompt_2": texts("prompt_2", _absent(prompt_2)),
            "negative_prompt": texts("negative_prompt", negative_prompt),
            "negative_prompt_2": texts("negative_prompt_2", _absent(negative_prompt_2)),
            "num_images_per_prompt": num_images_per_prompt,
            "guidance_scale": 5.0 if do_classifier_free_guidance else 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "pooled_prompt_embeds": pooled_prompt_embeds,
            "negative_pooled_prompt_embeds": negative_pooled_prompt_embeds,
            "clip_skip": clip_skip,
            "prompt_syntax": prompt_syntax,
        }
        return _pipelines.encode_prompt_StableDiffusionXLPipeline(self._parts(), {k: v for k, v in options.items() if v is not None})


_COMPONENTS = (
    "vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "scheduler", "image_encoder", "feature_extractor",
)  # fmt: skip


class StableDiffusionXLPipeline(_StableDiffusionXL):
    """Text to pictures with SDXL. A VAE in float16 whose config has force_upcast decodes in float32."""

    _components = _COMPONENTS
    _core_name = "StableDiffusionXLPipeline"

    def __init__(
        self,
        vae=None,
        text_encoder=None,
        text_encoder_2=None,
        tokenizer=None,
        tokenizer_2=None,
        unet=None,
        scheduler=None,
        image_encoder=None,
        feature_extractor=None,
        force_zeros_for_empty_prompt=True,
        add_watermarker=None,
    ):
        if add_watermarker:
            raise ValueError("StableDiffusionXLPipeline: pictures are not marked; add_watermarker must be None or False")
        self._register({k: v for k, v in locals().items() if k in _COMPONENTS}, {"force_zeros_for_empty_prompt": force_zeros_for_empty_prompt})

    def __call__(
        self,
        prompt=None,
        prompt_2=None,
        height=None,
        width=None,
        num_inference_steps=50,
        timesteps=None,
        sigmas=None,
        denoising_end=None,
        guidance_scale=5.0,
        negative_prompt=None,
        negative_prompt_2=None,
        num_images_per_prompt=1,
        eta=0.0,
        generator=None,
        latents=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        pooled_prompt_embeds=None,
        negative_pooled_prompt_embeds=None,
        ip_adapter_image=None,
        ip_adapter_image_embeds=None,
        output_type=None,
        return_dict=True,
        cross_attention_kwargs=None,
        guidance_rescale=0.0,
        original_size=None,
        crops_coords_top_left=(0, 0),
        target_size=None,
        negative_original_size=None,
        negative_crops_coords_top_left=(0, 0),
        negative_target_size=None,
        clip_skip=None,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=("latents",),
        guidance_mode="batched",
        prompt_syntax="plain",
        **kwargs,
    ):
        """Pictures of prompts, as diffusers makes them.

        prompt_2, negative_prompt_2: for the second text encoder, the same as the first's where absent or empty; without a first one (the refiner) they
        are not read. negative_prompt_2 needs a negative_prompt, which may be empty: else force_zeros_for_empty_prompt stands for both.
        pooled_prompt_embeds [prompts, features] go with prompt_embeds. original_size, target_size (height, width) and crops_coords_top_left (top, left):
        what kind of picture it should be.
        denoising_end: the share of the process after which the run ends, for StableDiffusionXLImg2ImgPipeline to go on with output_type="latent".
        The rest is as in StableDiffusionPipeline. Returns a StableDiffusionXLPipelineOutput.
        """
        given = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "output_type", "return_dict")}
        return self._call(given, kwargs, output_type, return_dict)


class StableDiffusionXLImg2ImgPipeline(_StableDiffusionXL):
    """A picture changed by a prompt with SDXL, and SDXL's refiner."""

    _components = _COMPONENTS
    _core_name = "StableDiffusionXLImg2ImgPipeline"
    _options = {"requires_aesthetics_score": False, "force_zeros_for_empty_prompt": True}

    def __init__(
        self,
        vae=None,
        text_encoder=None,
        text_encoder_2=None,
        tokenizer=None,
        tokenizer_2=None,
        unet=None,
        scheduler=None,
        image_encoder=None,
        feature_extractor=None,
        requires_aesthetics_score=False,
        force_zeros_for_empty_prompt=True,
        add_watermarker=None,
    ):
        if add_watermarker:
            raise ValueError("StableDiffusionXLImg2ImgPipeline: pictures are not marked; add_watermarker must be None or False")
        options = {"requires_aesthetics_score": requires_aesthetics_score, "force_zeros_for_empty_prompt": force_zeros_for_empty_prompt}
        self._register({k: v for k, v in locals().items() if k in _COMPONENTS}, options)

    def __call__(
        self,
        prompt=None,
        prompt_2=None,
        image=None,
        strength=0.3,
        num_inference_steps=50,
        timesteps=None,
        sigmas=None,
        denoising_start=None,
        denoising_end=None,
        guidance_scale=5.0,
        negative_prompt=None,
        negative_prompt_2=None,
        num_images_per_prompt=1,
        eta=0.0,
        generator=None,
        latents=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        pooled_prompt_embeds=None,
        negative_pooled_prompt_embeds=None,
        ip_adapter_image=None,
        ip_adapter_image_embeds=None,
        output_type=None,
        return_dict=True,
        cross_attention_kwargs=None,
        guidance_rescale=0.0,
        original_size=None,
        crops_coords_top_left=(0, 0),
        target_size=None,
        negative_original_size=None,
        negative_crops_coords_top_left=(0, 0),
        negative_target_size=None,
        aesthetic_score=6.0,
        negative_aesthetic_score=2.5,
        clip_skip=None,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=("latents",),
        guidance_mode="batched",
        prompt_syntax="plain",
        **kwargs,
    ):
        """image: a picture, a list of them, or latents: those of StableDiffusionXLPipeline with denoising_end, where denoising_start is the same share.
        aesthetic_score: of models with requires_aesthetics_score. The rest is as in StableDiffusionXLPipeline."""
        given = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "output_type", "return_dict")}
        if image is None:
            raise ValueError("StableDiffusionXLImg2ImgPipeline: needs an image")
        given["image"] = self.image_processor.preprocess(image)
        return self._call(given, kwargs, output_type, return_dict)
