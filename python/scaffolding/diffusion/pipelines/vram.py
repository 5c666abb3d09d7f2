"""GPU memory by hand: reports, and networks on and off the GPU between the phases of a picture."""

import gc
import sys

from ... import _core
from ...autograd import no_grad
from .text_to_image import _gpu_gigabytes, get_profile_config


def vram_report(label=""):
    """Prints "[label] VRAM: 1.23 GB allocated, 2.00 GB reserved" to stderr, GB of 2^30 bytes, and returns
    {"allocated", "reserved", "free", "total"} in bytes: zeros where no GPU was used.

    >>> sorted(sf.diffusion.vram_report("before"))
    ['allocated', 'free', 'reserved', 'total']
    """
    from ... import cuda

    allocated = reserved = free = total = 0
    if cuda.is_available():
        allocated, reserved = cuda.memory_allocated(), cuda.memory_reserved()
        free, total = cuda.mem_get_info()
    print(f"[{label}] VRAM: {allocated / 2**30:.2f} GB allocated, {reserved / 2**30:.2f} GB reserved", file=sys.stderr)
    return {"allocated": allocated, "reserved": reserved, "free": free, "total": total}


def clear_vram(verbose=False):
    """Drops what Python has no name for any more, and gives freed memory back to the GPU and to the system."""
    from ... import backends, cuda

    gc.collect()
    cuda.empty_cache()
    backends.cpu.empty_cache()
    if verbose:
        vram_report("clear_vram")


def offload_to_cpu(module, gc=True):
    """Moves a network, or every one of a pipeline, to the CPU and gives its GPU memory back; returns it.

    >>> sf.diffusion.offload_to_cpu(nn.Linear(4, 2)).weight.device
    device(type='cpu')
    """
    module.to("cpu")
    if gc:
        clear_vram()
    return module


def load_to_gpu(module, device="cuda"):
    """Moves a network, or every one of a pipeline, to the GPU; returns it. Raises the reason where there is none."""
    module.to(device)
    return module


def sdxl_memory_profile(vram_gb=None):
    """What SDXL does with so much GPU memory, in GB; absent: this machine's. As get_profile_config, by the profiles
    "full_gpu" (16 and more), "balanced" (10), "unet_gpu" (6) and "cpu_only".
    """
    if vram_gb is None:
        vram_gb = _gpu_gigabytes() or 0.0
    if isinstance(vram_gb, bool) or not isinstance(vram_gb, (int, float)):
        raise TypeError(f"sdxl_memory_profile: vram_gb must be a number, got {type(vram_gb).__name__}")
    if not vram_gb >= 0:
        raise ValueError(f"sdxl_memory_profile: vram_gb must not be negative, got {vram_gb}")
    table = ((16, "full_gpu"), (10, "balanced"), (6, "unet_gpu"), (0, "cpu_only"))
    return get_profile_config(next(name for least, name in table if vram_gb >= least))


def run_denoise_sdxl(latents, pipeline, **kwargs):
    """The denoised latents of a pipeline's call from these latents, and nothing else: what the loop made besides is
    gone when it returns. Keywords are the call's (prompt, num_inference_steps, ...).
    """
    return pipeline(latents=latents, output_type="latent", **kwargs).images


def _unscaled(latents, config):
    """Latents as the autoencoder makes them, of those that the denoiser has."""
    if config.get("latents_mean") is None or config.get("latents_std") is None:
        return latents / config["scaling_factor"] + (config.get("shift_factor") or 0.0)
    mean, std = (
        _core.tensor(config[name], dtype=latents.dtype, device=latents.device).view(1, -1, 1, 1)
        for name in ("latents_mean", "latents_std")
    )
    return latents * std / config["scaling_factor"] + mean


def run_decode_sdxl(latents, decoder, device=None):
    """Pictures, an array [n, H, W, 3] in [0, 1], of latents as run_denoise_sdxl gives them.

    decoder: the autoencoder, or a pipeline with one. device: where it goes before; absent, it stays where it is. An
    autoencoder in float16 whose config has force_upcast decodes in float32.

    >>> vae = sf.models.AutoencoderKL()
    >>> sf.diffusion.run_decode_sdxl(sf.zeros(1, 4, 8, 8), vae).shape
    (1, 8, 8, 3)
    """
    vae = getattr(decoder, "vae", decoder)
    if device is not None:
        vae.to(device)
    before = vae.dtype
    upcast = before == _core.float16 and bool(vae.config.get("force_upcast"))
    if upcast:
        vae.to(_core.float32)
    try:
        with no_grad():
            values = vae.decode(_unscaled(latents.to(vae.device), vae.config).to(vae.dtype)).sample
            pictures = (values * 0.5 + 0.5).clamp(0, 1).to(_core.float32)
    finally:
        if upcast:
            vae.to(before)
    return pictures.permute(0, 2, 3, 1).cpu().numpy()
