"""Sound: scaffolding.io.save_wav, load_wav and load_audio, and the sound of videos."""

import wave

import numpy
import pytest
from libav import needs_libav

import scaffolding as sf
from scaffolding.io import VideoReader, load_audio, load_wav, save_video, save_wav
from scaffolding.utils import encode_video, export_to_video, export_to_wav

KINDS = (".mp4", ".mov", ".mkv", ".webm")


def sines(rate, seconds, frequencies=(440, 1000)):
    """A sine in each channel."""
    times = numpy.arange(int(rate * seconds)) / rate
    return numpy.stack([0.5 * numpy.sin(2 * numpy.pi * f * times) for f in frequencies]).astype(numpy.float32)


def frequency(channel, rate):
    """Of the strongest sine."""
    spectrum = numpy.abs(numpy.fft.rfft(channel * numpy.hanning(len(channel))))
    return spectrum.argmax() * rate / len(channel)


def frames(count=8, size=32):
    return [numpy.full((size, size, 3), 20 * n, numpy.uint8) for n in range(count)]


def test_wav_files_are_those_of_other_programs(tmp_path):
    sound = sines(16000, 0.1)
    path = export_to_wav(sound, tmp_path / "a.wav", 16000)
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (2, 16000, 2)
        stored = numpy.frombuffer(file.readframes(1 << 20), "<i2").reshape(-1, 2).T
    numpy.testing.assert_array_equal(stored, numpy.rint(sound * 32768))
    with wave.open(str(tmp_path / "b.wav"), "wb") as file:
        file.setnchannels(2), file.setframerate(16000), file.setsampwidth(2)
        file.writeframes(stored.T.astype("<i2").tobytes())
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    loaded, rate = load_wav(tmp_path / "b.wav")
    assert rate == 16000 and loaded.dtype is sf.float32
    numpy.testing.assert_array_equal(loaded.numpy(), stored / numpy.float32(32768))


@pytest.mark.parametrize(("encoding", "error"), [("pcm16", 2**-15), ("pcm24", 2**-23), ("float32", 0)])
def test_sound_comes_back(tmp_path, encoding, error):
    sound = sf.tensor(sines(24000, 0.05, (300, 500, 700)))
    save_wav(tmp_path / "a.wav", sound, 24000, encoding)
    for load in (load_wav, load_audio):
        loaded, rate = load(tmp_path / "a.wav")
        assert rate == 24000 and (loaded - sound).abs().max().item() <= error


def test_sound_of_any_kind(tmp_path):
    sound = sines(8000, 0.05)
    export_to_wav(sound, tmp_path / "a.wav", 8000)
    wanted = (tmp_path / "a.wav").read_bytes()
    for same in (
        sf.tensor(sound),
        sf.tensor(sound).T,
        sf.tensor(sound).double(),
        numpy.rint(sound * 32768).astype("i2"),
    ):
        save_wav(tmp_path / "b.wav", same, 8000)
        assert (tmp_path / "b.wav").read_bytes() == wanted
    with open(export_to_wav(sound, sampling_rate=8000), "rb") as file:
        assert file.read() == wanted


def test_impossible_sound_is_refused(tmp_path):
    for sound, rate, text in [
        (sf.zeros(9, 20), 8000, r"must be \[channels, samples\] of 1 to 8 channels"),
        (sf.zeros(2, 0), 8000, "got"),
        (sf.zeros(2, 20), 0, "sampling_rate must be 1 to 768000, got 0"),
    ]:
        with pytest.raises(ValueError, match=text):
            save_wav(tmp_path / "a.wav", sound, rate)
    with pytest.raises(TypeError, match="audio must be a tensor or an array, got str"):
        save_wav(tmp_path / "a.wav", "beep", 8000)
    with pytest.raises(ValueError, match="encoding must be pcm16, pcm24 or float32"):
        save_wav(tmp_path / "a.wav", sf.zeros(20), 8000, "pcm12")
    assert not list(tmp_path.iterdir())
    (tmp_path / "a.wav").write_bytes(b"RIFF....")
    for load in (load_wav, load_audio):
        with pytest.raises(ValueError, match=r"a\.wav: is no WAV"):
            load(tmp_path / "a.wav")


# ---- in clips


@needs_libav
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [24000, 48000, 44100, 16000])
def test_a_clip_has_its_sound(tmp_path, kind, rate):
    sound, path = sines(rate, 1.5), tmp_path / ("clip" + kind)
    export_to_video(frames(12), path, fps=8, audio=sf.tensor(sound), audio_sample_rate=rate)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    video = VideoReader(path)
    assert len(video) == 12 and video.fps == pytest.approx(8)
    heard, heard_rate = load_audio(path)
    heard = heard.numpy()
    # to whole frames of the encoder; in .mkv the first one, of which nothing is heard, has a time too
    assert heard.shape[0] == 2 and 0 <= heard.shape[1] / heard_rate - 1.5 < (2048 if kind == ".mkv" else 1024) / 8000
    for channel, wanted in zip(heard, (440, 1000)):
        assert frequency(channel, heard_rate) == pytest.approx(wanted, abs=2)
        assert numpy.abs(channel[4096:-8192]).max() == pytest.approx(0.5, abs=0.15)
    if heard_rate == rate and kind != ".mkv":  # and at its time: without the delay of its encoder
        away = numpy.abs(heard[:, : sound.shape[1]] - sound)[:, 4096:-8192]
        assert away.mean() < 0.02, away.mean()


@needs_libav
@pytest.mark.parametrize("seconds", [0.01, 0.3, 4])
@pytest.mark.parametrize("kind", [".mp4", ".webm"])
def test_sound_may_be_shorter_or_longer_than_its_clip(tmp_path, kind, seconds):
    path = tmp_path / ("clip" + kind)
    save_video(path, frames(8), fps=8, audio=sines(24000, seconds, (500,))[0], audio_sample_rate=24000)
    heard, rate = load_audio(path)
    assert len(VideoReader(path)) == 8 and heard.shape[0] == 1
    assert 0 <= heard.shape[1] / rate - seconds < 0.05


@needs_libav
def test_diffusers_encode_video(tmp_path):
    sound, path = sf.tensor(sines(24000, 1)), tmp_path / "clip.mp4"
    video = sf.tensor(numpy.stack(frames(10)))
    for given in (video, video.numpy() / 255.0, iter([video[:6], video[6:]])):
        encode_video(given, 10, str(path), sound, 24000, video_chunks_number=2)
        assert len(VideoReader(path)) == 10
        assert frequency(load_audio(path)[0].numpy()[1], 24000) == pytest.approx(1000, abs=2)
    encode_video(video, fps=10, output_path=str(path))
    with pytest.raises(ValueError, match=r"clip\.mp4: has no sound"):
        load_audio(path)


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "frames"])
def test_what_holds_no_sound_says_so(tmp_path, name):
    with pytest.raises(ValueError, match=r"holds no sound.*write \.mp4.*a \.wav beside it"):
        export_to_video(frames(), tmp_path / name, audio=sines(8000, 1), audio_sample_rate=8000)
    assert not list(tmp_path.iterdir())


@needs_libav
def test_wrong_sound_is_refused_before_a_frame(tmp_path):
    for options, text in [
        ({"audio": sines(8000, 1)}, "audio needs an audio_sample_rate"),
        ({"audio": sf.zeros(3, 3, 3), "audio_sample_rate": 8000}, r"audio must be \[channels, samples\]"),
        ({"audio": sines(8000, 1), "audio_sample_rate": 12345}, "aac takes audio_sample_rate 7350, .*, got 12345"),
    ]:
        with pytest.raises(ValueError, match=text):
            export_to_video(frames(), tmp_path / "a.mp4", **options)
    assert not list(tmp_path.iterdir())
