"""Embeddings of timesteps and positions, as the denoisers compute them."""

from .._core import _models


def timestep_embedding(
    timesteps, embedding_dim, flip_sin_to_cos=False, downscale_freq_shift=1, scale=1, max_period=10000
):
    """Sines and cosines of timesteps[N], whole or fractional: [N, embedding_dim] in float32, a last zero where
    embedding_dim is odd.

    Frequencies go from 1 to max_period ** -(1 - 1 / n) or so: n is half of embedding_dim less downscale_freq_shift.
    flip_sin_to_cos: cosines first. Stable Diffusion's UNets take flip_sin_to_cos=True, downscale_freq_shift=0.
    ValueError for timesteps of another shape, and where n is 0.

    >>> sf.models.get_timestep_embedding(sf.tensor([0, 500]), 4, flip_sin_to_cos=True, downscale_freq_shift=0)
    tensor([[ 1.0000,  1.0000,  0.0000,  0.0000],
            [-0.8838,  0.2837, -0.4678, -0.9589]])
    """
    return _models.timestep_embedding(
        timesteps, embedding_dim, flip_sin_to_cos, downscale_freq_shift, scale, max_period
    )


get_timestep_embedding = timestep_embedding  # diffusers' name


def get_3d_sincos_pos_embed(
    embed_dim,
    spatial_size,
    temporal_size,
    spatial_interpolation_scale=1.0,
    temporal_interpolation_scale=1.0,
    device=None,
    output_type="pt",
):
    """Sines and cosines of the places of a video's patches, [temporal_size, height * width, embed_dim] in float32.

    spatial_size: (width, height), or one number for both. Places are divided by the scales. ValueError unless 16
    divides embed_dim.

    >>> sf.models.get_3d_sincos_pos_embed(32, spatial_size=(6, 4), temporal_size=3).shape
    scaffolding.Size([3, 24, 32])
    """
    if output_type != "pt":
        raise ValueError(f"get_3d_sincos_pos_embed: output_type must be 'pt', got {output_type!r}")
    width, height = (spatial_size, spatial_size) if isinstance(spatial_size, int) else spatial_size
    table = _models.sincos_positions_3d(
        embed_dim, temporal_size, height, width, spatial_interpolation_scale, temporal_interpolation_scale
    )
    return table if device is None else table.to(device)


def get_3d_rotary_pos_embed(
    embed_dim,
    crops_coords,
    grid_size,
    temporal_size,
    theta=10000,
    use_real=True,
    grid_type="linspace",
    max_size=None,
    device=None,
):
    """Cosines and sines [temporal_size * height * width, embed_dim] in float32 by which a video's queries and keys are
    turned: what CogVideoXTransformer3DModel takes as image_rotary_emb.

    grid_size: (height, width) in patches. grid_type "linspace" (CogVideoX 1.0): crops_coords ((top, left), (bottom,
    right)) are the part of the trained picture that is shown, on its own grid. "slice" (1.5): the patches are one
    apart, within max_size (height, width). ValueError for other types and for a grid that is larger than max_size.

    >>> cos, sin = sf.models.get_3d_rotary_pos_embed(64, ((0, 0), (4, 6)), grid_size=(4, 6), temporal_size=3)
    >>> cos.shape
    scaffolding.Size([72, 64])
    """
    who = "get_3d_rotary_pos_embed"
    if use_real is not True:
        raise ValueError(f"{who}: use_real must be True")
    height, width = grid_size
    crop = None
    if grid_type == "linspace":
        (top, left), (bottom, right) = crops_coords
        crop = [top, left, bottom, right]
    elif grid_type != "slice":
        raise ValueError(f"{who}: grid_type must be 'linspace' or 'slice', got {grid_type!r}")
    elif max_size is None or height > max_size[0] or width > max_size[1]:
        raise ValueError(f"{who}: grid_size must be within max_size, got {tuple(grid_size)} and {max_size}")
    table = _models.rotary_positions_3d(embed_dim, temporal_size, height, width, crop, theta)
    cos, sin = table if device is None else table.to(device)
    return cos, sin
