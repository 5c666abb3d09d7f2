"""Videos as tensors: mp4, mov, mkv and webm (through libav, where it is installed), GIF, animated WebP and folders of
pictures."""

import operator
import os

from .. import _core
from .audio import as_audio

_data = _core._data


def _frame(frame):
    """A frame of any kind as a tensor."""
    if isinstance(frame, _core.Tensor):
        return frame
    if hasattr(frame, "convert"):  # PIL's
        import numpy

        frame = numpy.asarray(frame.convert("RGB"))
    if not hasattr(frame, "__array__"):
        raise TypeError(f"save_video: a frame must be a tensor, an array or a PIL image, got {type(frame).__name__}")
    import numpy

    return _core.as_tensor(numpy.ascontiguousarray(frame))


class VideoWriter:
    """Writes frames, one after the other, to a video: .mp4, .mov, .mkv (H.264), .webm (VP9), .gif, .webp, or a folder
    of PNG files ("frames", or "frames/%04d.png"). It appears whole on close(), or not at all; as a context manager it
    closes itself, and leaves nothing where the block fails.

    fps: frames a second, 0.01 to 1000, to 100 with GIF. quality: 1 to 100, of what is not lossless. metadata: a dict of
    strings (title, comment, artist, album, date, copyright, genre; any keys in .mkv, .webm and PNG; none in
    GIF and WebP). loop: how often GIF and WebP play, 0 for ever. encoder: libav's name of it, where another than the
    first that is there of libx264, libopenh264 and mpeg4 is wanted. audio: the sound of .mp4, .mov, .mkv (AAC) and
    .webm (Opus or Vorbis), as save_wav takes it, of audio_sample_rate samples a second.

    NotImplementedError saying what to install where the format cannot be written here.

    >>> with sf.data.VideoWriter("a.webp", fps=8) as writer:
    ...     for shade in (0, 100, 200):
    ...         writer.append(sf.full((8, 8, 3), shade, dtype=sf.uint8))
    >>> len(sf.data.VideoReader("a.webp"))
    3
    """

    def __init__(
        self, path, fps=8, *, metadata=None, quality=80, loop=0, encoder=None, audio=None, audio_sample_rate=None
    ):
        self.path = os.fspath(path)
        if audio is not None and audio_sample_rate is None:
            raise ValueError("save_video: audio needs an audio_sample_rate")
        audio = None if audio is None else as_audio("save_video", audio)
        text = {str(key): str(value) for key, value in (metadata or {}).items()}
        self._native = _data.VideoWriter(
            self.path, float(fps), quality, text, loop, encoder or "", audio, audio_sample_rate or 0
        )

    def append(self, frame):
        """A tensor or array [H, W, 3] or [3, H, W], uint8 or floating in [0, 1], on any device, or a PIL image. All
        have the size of the first; H.264 and MPEG-4 take even sizes only."""
        if self._native is None:
            raise RuntimeError(f"save_video: {self.path} is closed")
        self._native.append(_frame(frame))

    def close(self):
        """The file takes its place. ValueError without frames; again: does nothing."""
        if self._native is not None:
            self._native.close()

    @property
    def encoder(self):
        """What encodes: "libx264", "mpeg4", "libvpx-vp9", "giflib", ...; "" before the first frame."""
        return self._native.encoder if self._native is not None else ""

    def __len__(self):
        return len(self._native) if self._native is not None else 0

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.close()
        else:
            self._native = None


def save_video(
    path, frames, fps=8, *, metadata=None, quality=80, loop=0, encoder=None, audio=None, audio_sample_rate=None
):
    """Writes frames as a video: [T, H, W, 3] or [T, 3, H, W], or an iterable of what VideoWriter.append takes, which
    need not all be in memory. Other arguments as VideoWriter's.

    >>> sf.data.save_video("a.webp", sf.rand(5, 16, 24, 3), fps=8)
    >>> sf.data.VideoReader("a.webp").fps
    8.0
    """
    sound = {"audio": audio, "audio_sample_rate": audio_sample_rate}
    with VideoWriter(path, fps, metadata=metadata, quality=quality, loop=loop, encoder=encoder, **sound) as video:
        shape = getattr(frames, "shape", None)
        if shape is not None and len(shape) != 4:
            raise ValueError(f"save_video: frames must be [T, H, W, 3] or [T, 3, H, W], got {tuple(shape)}")
        for frame in frames:
            video.append(frame)


def can_write_video(path):
    """Whether a video of the path's kind can be written here.

    >>> sf.data.can_write_video("frames/%04d.png")
    True
    """
    return _data.why_no_video(os.fspath(path)) is None


class VideoReader:
    """The frames of a video by their numbers, exactly: reader[i] is uint8 [H, W, 3], reader[2:10:2] uint8 [n, H, W, 3].

    path: .mp4, .mov, .mkv or .webm, GIF, animated WebP (told by their content), or a folder of pictures, in the order
    of the numbers in their names. max_pixels: larger frames are refused before memory is taken (SF_VIDEO_MAX_PIXELS).
    num_threads: that decode. Transparent pixels are shown over white.

    Raises RuntimeError where the file cannot be opened, ValueError naming it where it is damaged, cut short or no
    video, NotImplementedError where its kind cannot be read here. One thread at a time.

    >>> sf.data.save_video("a.webp", sf.zeros(5, 8, 8, 3, dtype=sf.uint8))
    >>> reader = sf.data.VideoReader("a.webp")
    >>> len(reader), reader[1:3].shape
    (5, scaffolding.Size([2, 8, 8, 3]))
    """

    def __init__(self, path, *, max_pixels=None, max_frames=1 << 20, num_threads=1):
        self.path = os.fspath(path)
        self._native = _data.VideoReader(self.path, max_pixels, max_frames, num_threads)
        self.width, self.height = self._native.width, self._native.height
        self.format, self.codec = self._native.format, self._native.codec
        self.metadata = self._native.metadata

    @property
    def fps(self):
        """Frames a second; None where nothing says it."""
        return self._native.fps or None

    @property
    def times(self):
        """When each frame is shown, in seconds from the first; empty where fps is None."""
        return self._native.times

    def __len__(self):
        return len(self._native)

    def _index(self, index):
        n, i = len(self), operator.index(index)
        if not -n <= i < n:
            raise IndexError(f"{self.path}: a frame's number must be {-n} to {n - 1}, got {i}")
        return i + n if i < 0 else i

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._native.frames(list(range(*index.indices(len(self)))))
        if isinstance(index, (list, tuple, range)):
            return self.get_batch(index)
        return self._native.frame(self._index(index))

    def get_batch(self, indices):
        """Frames of any numbers in any order: uint8 [n, H, W, 3]."""
        return self._native.frames([self._index(i) for i in indices])

    def __iter__(self):
        for i in range(len(self)):
            yield self._native.frame(i)

    def __repr__(self):
        rate = f" at {self.fps:g} a second" if self.fps else ""
        return f"VideoReader({self.path!r}: {len(self)} frames of {self.width} x {self.height}{rate}, {self.codec})"


def read_video(path, start=0, frames=None, stride=1, size=None, *, interpolation="bilinear", max_pixels=None):
    """Frames start, start + stride, ... of a video: uint8 [n, H, W, 3].

    frames: how many; all that there are without it. size: n makes the shorter side n; (height, width): resized to cover
    it, and the middle cut out, frame by frame. IndexError where the video has too few frames.

    >>> sf.data.save_video("a.webp", sf.zeros(9, 16, 24, 3, dtype=sf.uint8))
    >>> sf.data.read_video("a.webp", stride=2, size=(8, 8)).shape
    scaffolding.Size([5, 8, 8, 3])
    """
    video = VideoReader(path, max_pixels=max_pixels)
    if frames is None:
        frames = max((len(video) - start + stride - 1) // stride, 1) if stride > 0 else 1
    size = () if size is None else (size,) if isinstance(size, int) else tuple(size)
    return video._native.clip(start, frames, stride, size, interpolation)
