"""The training objective of CogVideoX's transformers, and of Tora's."""

from .._core import _diffusion, cat, full, zeros
from .training import diffusion_loss

_OFS = 2.0  # as image-to-video 1.5 was trained


def rotary_positions_of(transformer, latents):
    """image_rotary_emb [2, N, attention_head_dim] for latents [B, T, C, h, w], on their device; None where the
    transformer adds its positions.
    """
    config = transformer.config
    if not config.use_rotary_positional_embeddings:
        return None
    _, frames, _, height, width = latents.shape
    patches = {k: config[k] for k in ("patch_size", "sample_height", "sample_width", "attention_head_dim")}
    patches["patch_size_t"] = config.patch_size_t or 0
    return _diffusion.cogvideox_positions(frames, height, width, **patches).to(latents.device)


def _beside_picture(noisy, image):
    """The transformer's input: noisy latents, and in further channels those of the first frame."""
    wanted = (noisy.shape[0], 1, *noisy.shape[2:])
    if tuple(image.shape) != wanted:
        raise ValueError(f"cogvideox_loss: image_latents must be {wanted}, got {tuple(image.shape)}")
    behind = zeros((noisy.shape[0], noisy.shape[1] - 1, *noisy.shape[2:]), dtype=noisy.dtype, device=noisy.device)
    return cat([noisy, cat([image.to(noisy.dtype), behind], 1)], 2)


def cogvideox_loss(
    transformer,
    scheduler,
    latents,
    encoder_hidden_states,
    null_condition=None,
    *,
    image_latents=None,
    video_flow=None,
    **options,
):
    """The loss of a CogVideoXTransformer3DModel or ToraTransformer3DModel at one batch, a float32 number with a
    gradient, with the weights of diffusers' examples: the error of the clean latents by 1 / (1 - alphas_cumprod).

    latents: [B, T, C, h, w], times the autoencoder's scaling_factor. encoder_hidden_states: the embedded prompts [B, M,
    features]. image_latents: of image-to-video, [B, 1, C, h, w] of the first frame, scaled too. video_flow: of Tora,
    the scaled latents [B or 1, T, C, h, w] of flow's colours (pipelines.tora.video_flow). options and null_condition
    are diffusion_loss's: noise, timesteps, generator, condition_dropout, snr_gamma, ... The scheduler's prediction_type
    is v_prediction, as the published ones'.

    ValueError where shapes do not fit, TypeError for a scheduler that models are not trained with.
    """
    told = {} if video_flow is None else {"video_flow": video_flow}

    def model(noisy, timesteps, text):
        if transformer.config.ofs_embed_dim:
            told["ofs"] = full((1,), _OFS, dtype=noisy.dtype, device=noisy.device)
        seen = noisy if image_latents is None else _beside_picture(noisy, image_latents)
        return transformer(seen, text, timesteps, image_rotary_emb=rotary_positions_of(transformer, noisy), **told)

    return diffusion_loss(model, scheduler, latents, encoder_hidden_states, null_condition, **options)
