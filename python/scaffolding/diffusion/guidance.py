"""Classifier-free guidance, and the noise and noise schedules that samplers start from."""

from .._core import Generator, _diffusion


def randn_tensor(shape, seed=None, generator=None, device=None, dtype=None):
    """Noise of a normal distribution in the given shape, with torch's numbers for a seed or a CPU generator.

    seed: an int; or, as diffusers' second argument, a generator or a list of them. generator: one for the batch, or a
    list with one for each sample, whose sample then does not depend on the batch.
    ValueError for a list of another length.

    >>> sf.diffusion.randn_tensor((1, 4, 8, 8), generator=sf.Generator().manual_seed(0))[0, 0, 0, :3]
    tensor([-1.1258, -1.1524, -0.2506])
    """
    if seed is not None:
        if generator is not None:
            raise ValueError("randn_tensor: takes seed or generator, not both")
        generator = Generator().manual_seed(seed) if isinstance(seed, int) else seed
    return _diffusion.randn_tensor(shape, generator=generator, device=device, dtype=dtype)


def slerp(v0, v1, t, dim=None):
    """The point at t from 0 (v0) to 1 (v1) of the walk on a sphere, between two noises or embeddings of one shape, in
    their dtype.

    dim: along which each pair of vectors has an angle of its own; None: the tensors are one vector each. Lengths go
    straight from one to the other. ValueError for two shapes, TypeError for two dtypes or one that is not floating.

    >>> sf.diffusion.slerp(sf.tensor([1., 0.]), sf.tensor([0., 1.]), 0.5)
    tensor([0.7071, 0.7071])
    """
    return _diffusion.slerp(v0, v1, t, dim)


def get_beta_schedule(schedule, num_timesteps, beta_start=0.0001, beta_end=0.02):
    """betas[num_timesteps], float32. schedule: linear, scaled_linear, squaredcos_cap_v2 or cosine, sigmoid, exp,
    laplace.

    ValueError for another name, no timesteps, or betas outside [0, 1).

    >>> sf.diffusion.get_beta_schedule("linear", 4, beta_start=0.001, beta_end=0.004)
    tensor([0.0010, 0.0020, 0.0030, 0.0040])
    """
    return _diffusion.get_beta_schedule(schedule, num_timesteps, beta_start, beta_end)


def rescale_noise_cfg(noise_pred, noise_pred_text, guidance_rescale=0.7):
    """noise_pred[B, ...] with each sample's standard deviation that of noise_pred_text, by the share guidance_rescale.

    Section 3.4 of Lin et al. 2023, arXiv 2305.08891: guidance overexposes pictures otherwise.

    >>> guided, text = sf.tensor([[-4., 4.]]), sf.tensor([[-1., 1.]])
    >>> sf.diffusion.rescale_noise_cfg(guided, text, guidance_rescale=1.0)
    tensor([[-1.,  1.]])
    """
    return _diffusion.rescale_noise_cfg(noise_pred, noise_pred_text, guidance_rescale)


def classifier_free_guidance(model, latents, timesteps, prompt_embeds, negative_prompt_embeds, guidance_scale=7.5):
    """negative + guidance_scale * (prompt - negative), from one call model(latents, timesteps, embeds) of twice the
    batch.

    latents: [B, ...]. timesteps: a number, a 0-d tensor or [B]. prompt_embeds, negative_prompt_embeds: [B, ...],
    one shape.
    The model returns a tensor, a tuple that begins with one, or an object with `.sample`.

    >>> def model(latents, timesteps, embeds): return latents * embeds.mean()
    >>> latents, prompt, negative = sf.ones(1, 4, 8, 8), sf.ones(1, 77, 768), sf.zeros(1, 77, 768)
    >>> sf.diffusion.classifier_free_guidance(model, latents, 10, prompt, negative).shape
    scaffolding.Size([1, 4, 8, 8])
    """
    if isinstance(timesteps, (int, float)):
        from .._core import tensor

        timesteps = tensor(timesteps)
    return _diffusion.classifier_free_guidance(
        model, latents, timesteps, prompt_embeds, negative_prompt_embeds, guidance_scale
    )
