"""Writing what pipelines return, with diffusers' names and arguments."""

import os
import tempfile

from ..data.audio import load_wav, save_wav  # noqa: F401


def _temporary(suffix):
    handle, path = tempfile.mkstemp(suffix)
    os.close(handle)
    return path


def export_to_video(
    video_frames,
    output_video_path=None,
    fps=10,
    quality=5.0,
    bitrate=None,
    macro_block_size=16,
    *,
    metadata=None,
    audio=None,
    audio_sample_rate=None,
):
    """Writes video_frames (PIL images, arrays or tensors, as scaffolding.io.save_video takes them), fps a second, to
    output_video_path, or to a new temporary .mp4; returns the path. metadata: a dict of strings.

    quality: 0 to 10, as diffusers' with libx264. macro_block_size is accepted and changes nothing: frames are never
    resized. audio: the sound of an .mp4, .mov, .mkv or .webm file, [channels, samples], of audio_sample_rate samples a
    second. ValueError for a bitrate.

    >>> frames = [sf.full((16, 16, 3), 0.1 * i) for i in range(4)]
    >>> sf.utils.export_to_video(frames, "clip.webp", fps=8)
    'clip.webp'
    """
    from ..data.video import save_video

    if bitrate is not None:
        raise ValueError(f"export_to_video: bitrate is not an option here; pass a quality of 0 to 10, got {bitrate}")
    if quality is not None and not 0 <= quality <= 10:
        raise ValueError(f"export_to_video: quality must be 0 to 10, got {quality}")
    path = _temporary(".mp4") if output_video_path is None else os.fspath(output_video_path)
    # diffusers' crf is 51 (1 - quality / 10), that of save_video 8 + (100 - quality) / 2.
    own = 80 if quality is None else min(100, max(1, round(116 - 102 * (1 - quality / 10))))
    sound = {"audio": audio, "audio_sample_rate": audio_sample_rate}
    save_video(path, video_frames, fps, quality=own, metadata=metadata, **sound)
    return path


def export_to_gif(image, output_gif_path=None, fps=10):
    """Writes frames (image: PIL images, arrays or tensors), fps a second, to output_gif_path, or to a new temporary
    .gif; returns the path.

    >>> sf.utils.export_to_gif(list(sf.rand(4, 16, 16, 3)), "clip.gif", fps=8)
    'clip.gif'
    """
    from ..data.video import save_video

    path = _temporary(".gif") if output_gif_path is None else os.fspath(output_gif_path)
    save_video(path, image, fps)
    return path


def encode_video(video, fps, output_path, audio=None, audio_sample_rate=None, video_chunks_number=1):
    """Writes a clip with its sound: video as a list of PIL images, an array or a tensor [frames, height, width, 3], or
    an iterator of such parts, uint8 or floating in [0, 1], fps frames a second, to output_path; audio [channels,
    samples], of audio_sample_rate samples a second.

    video_chunks_number is accepted and changes nothing: frames go to the encoder one by one.
    """
    from ..data.video import save_video

    parts = video if hasattr(video, "__next__") else [video]
    frames = (frame for part in parts for frame in part)
    save_video(output_path, frames, fps, audio=audio, audio_sample_rate=audio_sample_rate)


def export_to_wav(audio, output_wav_path=None, sampling_rate=24000, encoding="pcm16"):
    """Writes audio [channels, samples] (a tensor or an array, in [-1, 1]), of sampling_rate samples a second, to
    output_wav_path, or to a new temporary .wav; returns the path. encoding: "pcm16", "pcm24" or "float32".

    >>> sf.utils.export_to_wav(sf.zeros(2, 24000), "silence.wav")
    'silence.wav'
    """
    path = _temporary(".wav") if output_wav_path is None else os.fspath(output_wav_path)
    save_wav(path, audio, sampling_rate, encoding)
    return path
