"""The training objective of diffusion models, with the numbers and the order of draws of diffusers' training
scripts.
"""

from .._core import Tensor, _diffusion
from .._documents import add_to as _add_document
from .schedulers.scheduler import core_of

TrainingBatch = _diffusion.TrainingBatch
_add_document(TrainingBatch, "classes")


def training_batch(scheduler, latents, noise=None, timesteps=None, generator=None, **options):
    """What the model sees at one step, and what it should answer: `noisy_latents`, `timesteps`, `target`,
    `loss(prediction)`.

    latents: [B, C, ...], as the model takes them (times the autoencoder's scaling_factor). noise, timesteps[B]:
    instead of drawing them;
    the rest is drawn from `generator`, or the default one. Options, each off unless given:

    - prediction_type: epsilon, v_prediction, sample or flow_prediction (FlowMatchEulerDiscreteScheduler's); as the
      scheduler's config says.
    - snr_gamma: min-SNR weights (Hang et al. 2023, which takes 5). Not with flow matching.
    - noise_offset: noise that all pixels of a channel share, 0.05 to 0.1. input_perturbation: noise that the model sees
      and is not asked for, 0.1.
    - condition_dropout: the share of samples to be trained without their condition;
      which ones `drop(condition)` applies.
    - timestep_bias_strategy: "earlier", "later" (timestep_bias_portion of the schedule, 0.25) or "range"
      (timestep_bias_begin to timestep_bias_end): these timesteps are drawn timestep_bias_multiplier times as often as
      the others. Not with flow matching.
    - weighting_scheme, of flow matching: "none", "logit_normal" (logit_mean, logit_std), "mode" (mode_scale),
      "sigma_sqrt", "cosmap".

    ValueError for options that do not go with the scheduler, TypeError for a scheduler that models are not trained
    with.

    >>> batch = sf.diffusion.training_batch(sf.diffusion.DDPMScheduler(), sf.randn(2, 4, 8, 8), snr_gamma=5.0)
    >>> batch.noisy_latents.shape, batch.timesteps.shape, batch.loss(batch.target)
    (scaffolding.Size([2, 4, 8, 8]), scaffolding.Size([2]), tensor(0.))
    """
    given = {k: v for k, v in options.items() if v is not None}
    return _diffusion.training_batch(core_of("training_batch", scheduler), latents, given, noise, timesteps, generator)


def diffusion_loss(
    model,
    scheduler,
    latents,
    encoder_hidden_states=None,
    null_condition=None,
    noise=None,
    timesteps=None,
    generator=None,
    prediction_type=None,
    snr_gamma=None,
    noise_offset=0.0,
    input_perturbation=0.0,
    condition_dropout=0.0,
    weighting_scheme="none",
    logit_mean=0.0,
    logit_std=1.0,
    mode_scale=1.29,
    timestep_bias_strategy="none",
    timestep_bias_multiplier=1.0,
    timestep_bias_portion=0.25,
    timestep_bias_begin=0,
    timestep_bias_end=1000,
    **model_kwargs,
):
    """The loss of `model(noisy_latents, timesteps, encoder_hidden_states, **model_kwargs)` at one batch: a float32
    number with a gradient.

    The model returns a tensor, a tuple that begins with one, or an object with `.sample`; without encoder_hidden_states
    it gets none. With condition_dropout some samples get null_condition (of one sample, [1, N, C] or [N, C]: the
    embedded empty prompt; zeros without one) instead of encoder_hidden_states[B, N, C], and zeros for text_embeds of
    added_cond_kwargs. The other arguments are training_batch's.

    >>> conv = nn.Conv2d(4, 4, 3, padding=1)
    >>> loss = sf.diffusion.diffusion_loss(lambda x, t: conv(x), sf.diffusion.DDPMScheduler(), sf.randn(2, 4, 8, 8))
    >>> loss.backward()
    >>> conv.weight.grad.shape
    scaffolding.Size([4, 4, 3, 3])
    """
    batch = training_batch(
        scheduler,
        latents,
        noise,
        timesteps,
        generator,
        prediction_type=prediction_type,
        snr_gamma=snr_gamma,
        noise_offset=noise_offset,
        input_perturbation=input_perturbation,
        condition_dropout=condition_dropout,
        weighting_scheme=weighting_scheme,
        logit_mean=logit_mean,
        logit_std=logit_std,
        mode_scale=mode_scale,
        timestep_bias_strategy=timestep_bias_strategy,
        timestep_bias_multiplier=timestep_bias_multiplier,
        timestep_bias_portion=timestep_bias_portion,
        timestep_bias_begin=timestep_bias_begin,
        timestep_bias_end=timestep_bias_end,
    )
    condition = () if encoder_hidden_states is None else (batch.drop(encoder_hidden_states, null_condition),)
    added = model_kwargs.get("added_cond_kwargs")
    if added and "text_embeds" in added:
        model_kwargs["added_cond_kwargs"] = added | {"text_embeds": batch.drop(added["text_embeds"])}
    output = model(batch.noisy_latents, batch.timesteps, *condition, **model_kwargs)
    if not isinstance(output, Tensor):
        output = output.sample if hasattr(output, "sample") else output[0]
    return batch.loss(output)


def compute_snr(noise_scheduler, timesteps):
    """The signal-to-noise ratio at timesteps[...] of a scheduler with alphas_cumprod:
    alphas_cumprod / (1 - alphas_cumprod), float32.

    >>> sf.diffusion.compute_snr(sf.diffusion.DDPMScheduler(), sf.tensor([0, 500, 999]))
    tensor([9.9973e+03, 8.4360e-02, 4.0360e-05])
    """
    return _diffusion.compute_snr(core_of("compute_snr", noise_scheduler), timesteps)
