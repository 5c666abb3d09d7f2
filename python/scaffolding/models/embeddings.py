"""Embeddings of timesteps, as the denoisers compute them."""

from .._core import _models


def timestep_embedding(
    timesteps, embedding_dim, flip_sin_to_cos=False, downscale_freq_shift=1, scale=1, max_period=10000
):
    """Sines and cosines of timesteps[N], whole or fractional: [N, embedding_dim] in float32, a last zero where
    embedding_dim is odd.

    Frequencies go from 1 to max_period ** -(1 - 1 / n) or so: n is half of embedding_dim less downscale_freq_shift.
    flip_sin_to_cos: cosines first. Stable Diffusion's UNets take flip_sin_to_cos=True, downscale_freq_shift=0.
    ValueError for timesteps of another shape, and where n is 0.
    """
    return _models.timestep_embedding(
        timesteps, embedding_dim, flip_sin_to_cos, downscale_freq_shift, scale, max_period
    )


get_timestep_embedding = timestep_embedding  # diffusers' name
