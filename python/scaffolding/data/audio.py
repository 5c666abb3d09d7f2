"""Sound as tensors: WAV files, and the sound of mp4, mov, mkv and webm files (through libav, where it is installed)."""

import os

from .. import _core

_data = _core._data


def as_audio(who, audio):
    """Sound of any kind as a tensor."""
    if isinstance(audio, _core.Tensor):
        return audio
    if not hasattr(audio, "__array__"):
        raise TypeError(f"{who}: audio must be a tensor or an array, got {type(audio).__name__}")
    import numpy

    return _core.as_tensor(numpy.ascontiguousarray(audio))


def save_wav(path, audio, sampling_rate, encoding="pcm16"):
    """Writes sound, of sampling_rate samples a second, as a WAV file at path: audio [channels, samples] of 1 to 8
    channels, [samples, channels], or [samples], floating in [-1, 1] or int16, a tensor on any device or an array.

    encoding: "pcm16", "pcm24" or "float32". Integers are clamped and rounded, NaN is silence. ValueError for what a
    file cannot hold, RuntimeError where it cannot be written.

    >>> sf.io.save_wav("tone.wav", sf.arange(48000).mul(0.0576).sin()[None], 48000)
    >>> sound, rate = sf.io.load_wav("tone.wav")
    >>> sound.shape, rate
    (scaffolding.Size([1, 48000]), 48000)
    """
    _data.save_wav(os.fspath(path), as_audio("save_wav", audio), sampling_rate, encoding)


def load_wav(path):
    """(sound [channels, samples] in float32, samples a second) of the WAV file at path: PCM of 8 to 32 bits, or
    floating.

    ValueError naming the file where it is damaged or cut short, NotImplementedError for compressed sound.

    >>> sf.io.save_wav("a.wav", sf.tensor([[0.0, 0.5, -0.5]]), 16000, encoding="float32")
    >>> sf.io.load_wav("a.wav")
    (tensor([[ 0.0000,  0.5000, -0.5000]]), 16000)
    """
    return _data.load_audio(os.fspath(path), True)


def load_audio(path):
    """(sound [channels, samples] in float32, samples a second) of the file at path: WAV, or of an mp4, mov, mkv or webm
    file: told by their content.

    ValueError naming the file where it is damaged or has no sound, NotImplementedError where its kind cannot be read
    here.
    """
    return _data.load_audio(os.fspath(path), False)
