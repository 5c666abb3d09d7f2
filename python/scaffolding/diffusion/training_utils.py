"""What training scripts import from diffusers.training_utils, with its names, arguments and numbers."""

import contextlib
import gc
import math
import random

from .. import _core
from .._random import manual_seed
from ..autograd.grad_mode import no_grad
from ..optim.ema import EMAModel
from .training import compute_snr


def set_seed(seed):
    """Seeds Python's, NumPy's and the default generators of every device.

    >>> sf.diffusion.training_utils.set_seed(0)
    >>> sf.randn(2)
    tensor([ 1.5410, -0.2934])
    """
    random.seed(seed)
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(seed)
    manual_seed(seed)


def cast_training_params(model, dtype=_core.float32):
    """The parameters that train, of a model or a list of them, in this dtype; the others stay.

    >>> model = nn.Linear(4, 2).half()
    >>> sf.diffusion.training_utils.cast_training_params(model)
    >>> model.weight.dtype
    scaffolding.float32
    """
    for m in model if isinstance(model, list) else [model]:
        for parameter in m.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.detach().to(dtype)


def free_memory():
    """Drops what Python has no name for any more, and gives freed memory back to the GPU and to the system."""
    from .. import backends, cuda

    gc.collect()
    cuda.empty_cache()
    backends.cpu.empty_cache()


@contextlib.contextmanager
def offload_models(*modules, device, offload=True):
    """Networks, or a pipeline, on `device` for the time of a with block, and back where they were; offload=False: left
    where they are.

    >>> vae = nn.Linear(4, 2)
    >>> with sf.diffusion.training_utils.offload_models(vae, device="cpu"):  # or "cuda"
    ...     vae(sf.zeros(1, 4)).shape
    scaffolding.Size([1, 2])
    """
    before = [m.device if hasattr(m, "device") else next(m.parameters()).device for m in modules] if offload else []
    for m in modules if offload else ():
        m.to(device)
    try:
        yield
    finally:
        for m, place in zip(modules, before):
            m.to(place)


def compute_density_for_timestep_sampling(
    weighting_scheme, batch_size, logit_mean=None, logit_std=None, mode_scale=None, device="cpu", generator=None
):
    """Where in the schedule of flow matching the samples of a batch are trained: [batch_size] in 0 to 1 (Esser et al.
    2024, arXiv 2403.03206). weighting_scheme: "logit_normal" with logit_mean and logit_std, "mode" with mode_scale;
    uniform for others.

    >>> u = sf.diffusion.training_utils.compute_density_for_timestep_sampling("logit_normal", 4, 0.0, 1.0)
    >>> (u * 1000).long()
    tensor([823, 427, 101, 638])
    """
    if weighting_scheme == "logit_normal":
        drawn = _core.randn(batch_size, device=device, generator=generator)
        return (drawn * logit_std + logit_mean).sigmoid()
    u = _core.rand(batch_size, device=device, generator=generator)
    if weighting_scheme == "mode":
        return 1 - u - mode_scale * ((math.pi * u / 2).cos() ** 2 - 1 + u)
    return u


def compute_loss_weighting_for_sd3(weighting_scheme, sigmas=None):
    """The weights of samples' losses at noise levels sigmas, in their shape: "sigma_sqrt", "cosmap"; 1 for others.

    >>> sf.diffusion.training_utils.compute_loss_weighting_for_sd3("sigma_sqrt", sf.tensor([0.5, 1.0]))
    tensor([4., 1.])
    """
    if weighting_scheme == "sigma_sqrt":
        return (sigmas**-2.0).float()
    if weighting_scheme == "cosmap":
        return 2 / (math.pi * (1 - 2 * sigmas + 2 * sigmas**2))
    return _core.ones_like(sigmas)


def compute_dream_and_update_latents(
    unet,
    noise_scheduler,
    timesteps,
    noise,
    noisy_latents,
    target,
    encoder_hidden_states,
    dream_detail_preservation=1.0,
):
    """(noisy_latents, target) of DREAM (Zhou et al. 2023, arXiv 2312.00210): both moved by what the model gets wrong
    now, which is one more call of it. NotImplementedError for v_prediction, ValueError for other predictions than
    noise."""
    kind = noise_scheduler.config.prediction_type
    if kind == "v_prediction":
        raise NotImplementedError("DREAM has not been implemented for v-prediction")
    if kind != "epsilon":
        raise ValueError(f"Unknown prediction type {kind}")
    alphas = noise_scheduler.alphas_cumprod.to(timesteps.device)[timesteps].reshape(-1, 1, 1, 1)
    deviation = (1.0 - alphas) ** 0.5
    with no_grad():
        predicted = unet(noisy_latents, timesteps, encoder_hidden_states).sample
    wrong = (noise - predicted).detach() * deviation**dream_detail_preservation
    return noisy_latents + deviation * wrong, target + wrong


__all__ = [
    "EMAModel",
    "cast_training_params",
    "compute_density_for_timestep_sampling",
    "compute_dream_and_update_latents",
    "compute_loss_weighting_for_sd3",
    "compute_snr",
    "free_memory",
    "offload_models",
    "set_seed",
]
