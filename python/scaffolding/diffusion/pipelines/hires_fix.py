"""Hires: two passes, a picture at the size that its model draws best and the same one larger."""

from ... import _core, nn
from .auto_pipeline import AutoPipelineForImage2Image
from .image_processor import VaeImageProcessor

_OF_THE_FIRST = ("height", "width", "latents", "denoising_end")


def hires(pipe, prompt=None, *, scale=2.0, strength=0.7, steps=None, upscaler="latent", **call):
    """A text-to-image pipeline's call in two passes: at height and width, then, made `scale` times larger (sizes are
    cut to multiples of 8), as image to image by the same prompt. Larger pictures come without doubled things.

    strength: of the second pass, as in image to image; the web UI's default. steps: its num_inference_steps, of which
    that share is run; None: the first's. upscaler: "latent" (bilinear), "bicubic" or "lanczos", of the decoded picture,
    or a function of a picture uint8 [3, H, W] that returns a larger one of any size. Other keywords are the pipeline's
    call; both passes draw from its generator, one after the other. The result is the second call's. ValueError for
    numbers out of range and for a family without image to image.
    """
    if not 1 < scale <= 8:
        raise ValueError(f"hires: scale must be above 1 and at most 8, got {scale}")
    if not 0 < strength <= 1:
        raise ValueError(f"hires: strength must be above 0 and at most 1, got {strength}")
    if not callable(upscaler) and upscaler not in ("latent", "bicubic", "lanczos"):
        raise ValueError(f"hires: upscaler must be latent, bicubic, lanczos or a function, got {upscaler!r}")
    change = AutoPipelineForImage2Image.from_pipe(pipe)
    change._progress_bar_config = pipe._progress_bar_config
    seed = call.pop("seed", None)
    if seed is not None:
        if call.get("generator") is not None:
            raise ValueError("hires: takes seed or generator, not both")
        call["generator"] = _core.Generator().manual_seed(seed)
    shown = {k: call.pop(k) for k in ("output_type", "return_dict") if k in call}
    second = {k: v for k, v in call.items() if k not in _OF_THE_FIRST}
    if steps is not None:
        second["num_inference_steps"] = steps
    factor = pipe.vae_scale_factor
    step = max(8, factor)

    def larger(pixels):
        return int(pixels * scale) // step * step

    if upscaler == "latent":
        latents = pipe(prompt, output_type="latent", **call).images
        size = tuple(larger(n * factor) // factor for n in latents.shape[2:])
        image = nn.functional.interpolate(latents, size, mode="bilinear")
    else:
        frames = pipe(prompt, output_type="sf_tensor", **call).images
        processor = VaeImageProcessor(
            vae_scale_factor=factor, resample="bicubic" if upscaler == "bicubic" else "lanczos"
        )
        height, width = (larger(n) for n in frames.shape[1:3])
        image = []
        for frame in frames.cpu().unbind(0):
            picture = frame.permute(2, 0, 1)
            picture = upscaler(picture) if callable(upscaler) else picture
            image.append(processor._core.resize(picture, height, width, "default"))
    return change(prompt, image=image, strength=strength, **second, **shown)
