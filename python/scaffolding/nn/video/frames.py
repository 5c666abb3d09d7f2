"""Videos as files of their frames."""

import os

from ... import _core
from ...data.image import write_image


def save_video_frames(video, output_dir):
    """Writes the frames of video[B, C, T, H, W], or [C, T, H, W], of numbers in [-1, 1] (C = 1 or 3) as PNG files
    frame_0000.png, frame_0001.png, ... into a folder, output_dir, which is made where it is not there; of several
    videos into a folder video_0000, video_0001, ... each. Numbers outside [-1, 1] are the nearest of these.

    Returns the paths in order: a list, of several videos a list of lists. Each file appears whole or not at all.
    TypeError for other than floating numbers, ValueError for another shape and for numbers that are not finite.

    >>> nn.video.save_video_frames(sf.zeros(3, 2, 16, 16), "clip")
    ['clip/frame_0000.png', 'clip/frame_0001.png']
    """
    if not isinstance(video, _core.Tensor) or not video.dtype.is_floating_point:
        what = video.dtype if isinstance(video, _core.Tensor) else type(video).__name__
        raise TypeError(f"save_video_frames: video must be a tensor of floating numbers in [-1, 1], got {what}")
    shape = tuple(video.shape)
    clips = video.detach().unsqueeze(0) if len(shape) == 4 else video.detach()
    if clips.ndim != 5 or clips.shape[1] not in (1, 3) or clips.numel() == 0:
        raise ValueError(f"save_video_frames: video must be [B, 3, T, H, W] or [3, T, H, W], got {shape}")
    clips = clips.to("cpu", _core.float32)
    if not _core.isfinite(clips).all():
        raise ValueError("save_video_frames: video has numbers that are not finite")
    pixels = ((clips.clamp(-1, 1) + 1) * 127.5).round().to(_core.uint8)
    folder = os.fspath(output_dir)
    several = pixels.shape[0] > 1
    paths = [_save(p, os.path.join(folder, f"video_{i:04}") if several else folder) for i, p in enumerate(pixels)]
    return paths if several else paths[0]


def _save(pixels, folder):
    os.makedirs(folder, exist_ok=True)
    paths = []
    for i in range(pixels.shape[1]):
        paths.append(os.path.join(folder, f"frame_{i:04}.png"))
        write_image(paths[-1], pixels[:, i].contiguous())
    return paths
