"""Stable Diffusion 1 and 2, under diffusers' names and arguments."""

from ... import _core
from ..._core import _pipelines
from .image_processor import VaeImageProcessor, picture_of
from .outputs import ImageTensor, StableDiffusionPipelineOutput
from .pipeline import DiffusionPipeline, texts

_ABSENT = object()


class _StableDiffusion(DiffusionPipeline):
    _optional_components = ("safety_checker", "feature_extractor", "image_encoder")
    _options = {"requires_safety_checker": True}
    _callback_tensor_inputs = ("latents", "prompt_embeds", "negative_prompt_embeds")

    def __init__(
        self,
        vae=None,
        text_encoder=_ABSENT,
        tokenizer=_ABSENT,
        unet=None,
        scheduler=None,
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=True,
    ):
        self._returns_tensor = text_encoder is _ABSENT and tokenizer is _ABSENT
        components = {
            "vae": vae,
            "text_encoder": None if text_encoder is _ABSENT else text_encoder,
            "tokenizer": None if tokenizer is _ABSENT else tokenizer,
            "unet": unet,
            "scheduler": scheduler,
            "safety_checker": safety_checker,
            "feature_extractor": feature_extractor,
            "image_encoder": image_encoder,
        }
        self._register(components, {"requires_safety_checker": requires_safety_checker})

    def _call(self, given, kwargs, output_type, return_dict):
        as_tensor = output_type is None and self._returns_tensor
        output_type = "pt" if as_tensor else self._output_type(output_type)
        images = self._generate(self._options_of(given, kwargs), output_type)
        if as_tensor and return_dict:
            return ImageTensor(images)
        return StableDiffusionPipelineOutput(images=images, nsfw_content_detected=None) if return_dict else (images, None)

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
        """(prompt_embeds, negative_prompt_embeds), each [prompts * num_images_per_prompt, tokens, features]; the second None without guidance."""
        options = {
            "prompt": texts("prompt", prompt),
            "negative_prompt": texts("negative_prompt", negative_prompt),
            "num_images_per_prompt": num_images_per_prompt,
            "guidance_scale": 7.5 if do_classifier_free_guidance else 1.0,
            "prompt_embeds": prompt_embeds,
            "negative_prompt_embeds": negative_prompt_embeds,
            "clip_skip": clip_skip,
            "prompt_syntax": prompt_syntax,
        }
        return _pipelines.encode_prompt_StableDiffusionPipeline(self._parts(), {k: v for k, v in options.items() if v is not None})


_COMPONENTS = ("vae", "text_encoder", "tokenizer", "unet", "scheduler", "safety_checker", "feature_extractor", "image_encoder")


class StableDiffusionPipeline(_StableDiffusion):
    """Text to pictures with Stable Diffusion 1 and 2.

    Made of networks, a tokenizer and a scheduler, or by from_pretrained. StableDiffusionPipeline(unet=, scheduler=, vae=) without text encoder and
    tokenizer is called with prompt_embeds, and returns pictures as a tensor [B, 3, H, W] in [0, 1] where no output_type asks for others.
    """

    _components = _COMPONENTS
    _core_name = "StableDiffusionPipeline"

    def __call__(
        self,
        prompt=None,
        height=None,
        width=None,
        num_inference_steps=50,
        timesteps=None,
        sigmas=None,
        guidance_scale=7.5,
        negative_prompt=None,
        num_images_per_prompt=1,
        eta=0.0,
        generator=None,
        latents=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        ip_adapter_image=None,
        ip_adapter_image_embeds=None,
        output_type=None,
        return_dict=True,
        cross_attention_kwargs=None,
        guidance_rescale=0.0,
        clip_skip=None,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=("latents",),
        guidance_mode="batched",
        prompt_syntax="plain",
        **kwargs,
    ):
        """Pictures of prompts, as diffusers makes them: equal seeds of a CPU generator give equal pictures.

        prompt, negative_prompt: a str or a list of them; or embeds [prompts, tokens, features]. height, width: pixels, divisible by 8; absent: what the
        UNet was trained on. num_inference_steps, or timesteps or sigmas of one's own where the scheduler takes them. guidance_scale: on above 1.
        generator: one, or a list with one for each picture; seed=: an int instead. latents: unit noise [B, C, h, w] instead of drawing.
        output_type: "pil" (the default where Pillow is), "np" [B, H, W, 3] in [0, 1], "pt" a tensor [B, 3, H, W] in [0, 1], "sf_tensor" a
        uint8 tensor [B, H, W, 3]; both stay on the device of the VAE; or "latent".
        callback_on_step_end(pipe, step, timestep, tensors) returns tensors that replace those of the run, and may set pipe._interrupt.

        guidance_mode: "batched" calls the UNet once with both halves, "sequential" twice with half the memory. prompt_syntax: "a1111" understands
        (word:1.2), [word] and BREAK and takes prompts of any length; "plain" is diffusers'. capture=False: on CUDA, no graphs in this call (see
        enable_cuda_graphs). cache_prompt=False: the UNet projects the text anew in every step, with the same numbers.

        Returns a StableDiffusionPipelineOutput. ValueError for arguments that contradict each other or that the components cannot take,
        KeyboardInterrupt within a step of Ctrl-C.
        """
        given = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "output_type", "return_dict")}
        return self._call(given, kwargs, output_type, return_dict)


class StableDiffusionImg2ImgPipeline(_StableDiffusion):
    """A picture changed by a prompt."""

    _components = _COMPONENTS
    _core_name = "StableDiffusionImg2ImgPipeline"

    def __call__(
        self,
        prompt=None,
        image=None,
        strength=0.8,
        num_inference_steps=50,
        timesteps=None,
        sigmas=None,
        guidance_scale=7.5,
        negative_prompt=None,
        num_images_per_prompt=1,
        eta=0.0,
        generator=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        ip_adapter_image=None,
        ip_adapter_image_embeds=None,
        output_type=None,
        return_dict=True,
        cross_attention_kwargs=None,
        clip_skip=None,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=("latents",),
        guidance_rescale=0.0,
        guidance_mode="batched",
        prompt_syntax="plain",
        **kwargs,
    ):
        """image: a picture or a list of them (PIL, arrays, tensors; see VaeImageProcessor), or latents. strength, in [0, 1]: how far the result may be from
        it; that share of the steps is run. The rest is as in StableDiffusionPipeline."""
        given = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "output_type", "return_dict")}
        if image is None:
            raise ValueError("StableDiffusionImg2ImgPipeline: needs an image")
        given["image"] = self.image_processor.preprocess(image)
        return self._call(given, kwargs, output_type, return_dict)


class StableDiffusionInpaintPipeline(_StableDiffusion):
    """A part of a picture made anew, by UNets with 9 input channels, or with 4."""

    _components = _COMPONENTS
    _core_name = "StableDiffusionInpaintPipeline"
    _callback_tensor_inputs = ("latents", "prompt_embeds", "negative_prompt_embeds", "mask", "masked_image_latents")

    @property
    def mask_processor(self):
        """What makes masks [n, 1, H, W] of 0 and 1."""
        return VaeImageProcessor(vae_scale_factor=self.vae_scale_factor, do_normalize=False, do_binarize=True, do_convert_grayscale=True)

    def __call__(
        self,
        prompt=None,
        image=None,
        mask_image=None,
        masked_image_latents=None,
        height=None,
        width=None,
        padding_mask_crop=None,
        strength=1.0,
        num_inference_steps=50,
        timesteps=None,
        sigmas=None,
        guidance_scale=7.5,
        negative_prompt=None,
        num_images_per_prompt=1,
        eta=0.0,
        generator=None,
        latents=None,
        prompt_embeds=None,
        negative_prompt_embeds=None,
        ip_adapter_image=None,
        ip_adapter_image_embeds=None,
        output_type=None,
        return_dict=True,
        cross_attention_kwargs=None,
        clip_skip=None,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=("latents",),
        guidance_rescale=0.0,
        guidance_mode="batched",
        prompt_syntax="plain",
        **kwargs,
    ):
        """image: the picture; mask_image: white where it is made anew. padding_mask_crop: pixels around the mask that are looked at, the rest of the picture
        stays. strength: 1 forgets what was under the mask. The rest is as in StableDiffusionPipeline."""
        given = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "output_type", "return_dict", "padding_mask_crop")}
        if image is None or mask_image is None:
            raise ValueError("StableDiffusionInpaintPipeline: needs an image and a mask_image")
        default_height, default_width = _pipelines.default_size(self._parts())
        height, width = height or default_height, width or default_width
        if height % 8 or width % 8:
            raise ValueError(f"StableDiffusionInpaintPipeline: height and width must be divisible by 8, got {height} and {width}")
        crop, mode = None, "default"
        if padding_mask_crop is not None:
            if picture_of(image) is None or picture_of(mask_image) is None:
                raise ValueError("StableDiffusionInpaintPipeline: padding_mask_crop needs an image and a mask_image that are pictures")
            if self._output_type(output_type) == "latent":
                raise ValueError("StableDiffusionInpaintPipeline: padding_mask_crop puts pictures together; output_type must not be 'latent'")
            crop, mode = self.mask_processor.get_crop_region(mask_image, width, height, pad=padding_mask_crop), "fill"
        given["image"] = self.image_processor.preprocess(image, height, width, mode, crop).to(_core.float32)
        given["mask_image"] = self.mask_processor.preprocess(mask_image, height, width, mode, crop)
        given["height"], given["width"] = height, width
        if crop is None:
            return self._call(given, kwargs, output_type, return_dict)
        values = self._call(given, kwargs, "pt", False)[0]
        images = self.image_processor.overlaid(mask_image, image, values, crop, self._output_type(output_type))
        return StableDiffusionPipelineOutput(images=images, nsfw_content_detected=None) if return_dict else (images, None)
