"""Videos: scaffolding.io.VideoWriter, VideoReader and what is made of them.

Frames carry their number as black and white squares, which survive lossy encoders: a reader that is off by one shows.
"""

import os
import random
import re
import subprocess
import sys
import weakref

import numpy
import pytest

import scaffolding as sf
from scaffolding.io import VideoReader, VideoWriter, can_write_video, read_video, save_video

LIBAV = [s for s in (".mp4", ".mov", ".mkv", ".webm") if can_write_video("a" + s)]
FILES = LIBAV + [s for s in (".gif", ".webp") if can_write_video("a" + s)]
needs_libav = pytest.mark.skipif(not LIBAV, reason="libscaffolding_video.so is not built: no libav")


def numbered(n, height=32, width=64):
    """Frame number n: eight squares of its bits above, a colour ramp below."""
    frame = numpy.zeros((height, width, 3), numpy.uint8)
    for bit in range(8):
        frame[: height // 2, bit * width // 8 : (bit + 1) * width // 8] = 255 * (n >> bit & 1)
    frame[height // 2 :, :, 0] = numpy.linspace(40, 200, width).astype(numpy.uint8)
    frame[height // 2 :, :, 1] = 120
    frame[height // 2 :, :, 2] = 4 * n % 256
    return frame


def number(frame):
    height, width = frame.shape[:2]
    squares = [frame[height // 4, (2 * bit + 1) * width // 16].float().mean().item() for bit in range(8)]
    assert all(s < 60 or s > 195 for s in squares), squares
    return sum((s > 128) << bit for bit, s in enumerate(squares))


def clip(count, **of):
    return [numbered(n, **of) for n in range(count)]


def place_of(folder, kind):
    return folder / ("frames" if kind == "pictures" else "clip" + kind)


@pytest.mark.parametrize("kind", [*FILES, "pictures"])
def test_what_is_written_is_read(tmp_path, kind):
    frames, path = clip(20), place_of(tmp_path, kind)
    text = {} if kind in (".gif", ".webp") else {"title": "a boat, at sea", "comment": "seed 7; 猫"}
    save_video(path, frames, fps=12.5, metadata=text, quality=95)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    video = VideoReader(path)
    assert (len(video), video.width, video.height) == (20, 64, 32)
    assert video.fps == pytest.approx(12.5) and video.times[19] == pytest.approx(19 / 12.5, abs=1e-3)
    assert video.format == kind.lstrip(".") and {k: video.metadata.get(k) for k in text} == text
    for i, frame in enumerate(video):
        assert frame.shape == (32, 64, 3) and frame.dtype == sf.uint8 and number(frame) == i
        error = (frame.float() - sf.tensor(frames[i]).float()).abs().mean().item()
        assert error <= {"pictures": 0, ".gif": 6}.get(kind, 3), error
    assert len(video[2:15:3]) == 5 and "20 frames of 64 x 32 at 12.5" in repr(video)


@pytest.mark.parametrize("kind", [*FILES, "pictures"])
def test_frames_are_found_by_number(tmp_path, kind):
    path = place_of(tmp_path, kind)
    save_video(path, clip(120), fps=30)
    video, order = VideoReader(path), list(range(120))
    random.Random(1).shuffle(order)
    assert all(number(video[i]) == i for i in order[:40])
    assert [number(f) for f in video.get_batch([90, 3, 3, -1, 0, 89])] == [90, 3, 3, 119, 0, 89]
    assert [number(f) for f in video[119:109:-1]] == list(range(119, 109, -1))
    assert number(video[-120]) == 0 and video[5:5].shape == (0, 32, 64, 3)
    for wrong in (120, -121):
        with pytest.raises(IndexError, match="a frame's number must be -120 to 119"):
            video[wrong]


@pytest.mark.parametrize("kind", [*FILES, "pictures"])
def test_frames_that_hardly_differ_are_kept(tmp_path, kind):
    path = place_of(tmp_path, kind)
    save_video(path, [numbered(5)] * 2 + [sf.full((32, 64, 3), 100 + n, dtype=sf.uint8) for n in range(8)], fps=10)
    video = VideoReader(path)
    assert len(video) == 10 and video.times[9] == pytest.approx(0.9)
    assert number(video[1]) == 5
    means = [f.float().mean().item() for f in video[2:]]
    assert means == pytest.approx([100 + n for n in range(8)], abs=2)


@needs_libav
def test_every_key_of_mp4_and_mov_comes_back(tmp_path):
    text = {k: f"a {k}, 猫" for k in ("title", "comment", "artist", "album", "date", "copyright", "genre")}
    for suffix in LIBAV:
        save_video(tmp_path / ("a" + suffix), clip(2), metadata=text)
        assert VideoReader(tmp_path / ("a" + suffix)).metadata.items() >= text.items()


@needs_libav
@pytest.mark.parametrize("encoder", ["libx264", "libopenh264", "mpeg4"])
def test_the_encoder_is_said_and_can_be_chosen(tmp_path, encoder):
    try:
        with VideoWriter(tmp_path / "a.mp4", encoder=encoder) as video:
            assert video.encoder == ""
            for frame in clip(30):
                video.append(frame)
            assert (video.encoder, len(video)) == (encoder, 30)
    except NotImplementedError as error:  # Debian's libav has the others
        assert encoder == "libopenh264" and encoder in str(error)
        assert not (tmp_path / "a.mp4").exists()
        return
    read = VideoReader(tmp_path / "a.mp4")
    assert read.codec == ("mpeg4" if encoder == "mpeg4" else "h264")
    assert [number(f) for f in read[29:0:-7]] == [29, 22, 15, 8, 1]


@needs_libav
def test_quality_and_sameness(tmp_path):
    noise = numpy.random.default_rng(0).integers(0, 256, (6, 64, 64, 3), dtype=numpy.uint8)
    for suffix in LIBAV:
        for q in (20, 60, 100):
            save_video(tmp_path / f"{q}{suffix}", noise, quality=q)
        sizes = [(tmp_path / f"{q}{suffix}").stat().st_size for q in (20, 60, 100)]
        assert sizes[0] < sizes[1] < sizes[2], sizes
        save_video(tmp_path / f"again{suffix}", noise, quality=60)
        assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"60{suffix}").read_bytes()


@needs_libav
def test_colours_come_back(tmp_path):
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (128, 128, 128), (250, 180, 20)]
    frames = [numpy.full((32, 32, 3), c, numpy.uint8) for c in colours]
    for suffix in LIBAV:
        save_video(tmp_path / ("a" + suffix), frames, quality=100)
        for frame, colour in zip(VideoReader(tmp_path / ("a" + suffix)), colours):
            assert abs(frame.float().mean((0, 1)) - sf.tensor(colour).float()).max().item() < 4, (suffix, colour)


def test_frames_of_every_kind(tmp_path):
    from PIL import Image

    frames = numpy.stack(clip(4))
    tensor = sf.tensor(frames)
    kinds = {
        "array": frames,
        "floats": frames.astype(numpy.float64) / 255,
        "tensor": tensor,
        "planes": tensor.permute(0, 3, 1, 2),
        "float planes": (tensor.permute(0, 3, 1, 2).float() / 255).contiguous(),
        "bfloat16": [f.permute(2, 0, 1).to(sf.bfloat16) / 255 for f in tensor],
        "out of range": [(f.float() - 0.2) / 254.6 for f in tensor],
        "pictures": [Image.fromarray(f) for f in frames],
        "with alpha": [Image.fromarray(f).convert("RGBA") for f in frames],
        "a generator": (f for f in frames),
        "turned": [numpy.ascontiguousarray(f[::-1])[::-1] for f in frames],
        "with a gradient": [(f.float() / 255).requires_grad_() for f in tensor],
    }
    for name, kind in kinds.items():
        save_video(tmp_path / name, kind)
        made = VideoReader(tmp_path / name)[:]
        assert made.shape == tensor.shape, name
        assert abs(made.float() - tensor.float()).max().item() <= (1 if "1" in name else 0), name
    assert sorted(p.name for p in (tmp_path / "array").iterdir()) == [f"000{i}.png" for i in range(4)]


@pytest.mark.parametrize("kind", [*FILES, "pictures"])
def test_a_video_of_one_frame(tmp_path, kind):
    path = place_of(tmp_path, kind)
    save_video(path, [numbered(9)], fps=8)
    video = VideoReader(path)
    assert len(video) == 1 and number(video[0]) == 9
    assert video.fps == (None if kind == ".webp" else pytest.approx(8, rel=0.05))  # a still picture


def test_odd_sizes(tmp_path):
    frames = clip(3, height=33, width=65)
    for suffix in FILES:
        if suffix in (".mp4", ".mov", ".mkv"):
            with pytest.raises(
                ValueError, match="takes even sizes only, got 65 x 33; crop or pad the frames, or write"
            ):
                save_video(tmp_path / ("a" + suffix), frames)
        else:
            save_video(tmp_path / ("a" + suffix), frames)
            assert VideoReader(tmp_path / ("a" + suffix))[0].shape == (33, 65, 3)
    assert len(list(tmp_path.iterdir())) == len({".webm", ".gif", ".webp"} & set(FILES))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"frames": []}, ValueError, "needs at least one frame"),
        ({"frames": [sf.zeros(4, 4, 4)]}, ValueError, r"must be \[H, W, 3\] or \[3, H, W\]"),
        ({"frames": sf.zeros(1, 2, 3, 8, 8)}, ValueError, r"must be \[T, H, W, 3\]"),
        ({"frames": sf.zeros(2, 3, 8, 8, dtype=sf.int32)}, TypeError, "uint8, or floating"),
        ({"frames": ["a", "b"]}, TypeError, "a tensor, an array or a PIL image, got str"),
        ({"frames": [sf.zeros(3, 8, 8), sf.zeros(3, 8, 10)]}, ValueError, "one size, got 10 x 8 after 8 x 8"),
        ({"fps": 0}, ValueError, "fps must be 0.01 to 1000, got 0"),
        ({"fps": float("nan")}, ValueError, "fps must be"),
        ({"fps": 101}, ValueError, "fps must be above 0, to 100"),
        ({"quality": 0}, ValueError, "quality must be 1 to 100"),
        ({"loop": -1}, ValueError, "loop must be 0"),
        ({"encoder": "libx264"}, ValueError, "encoder is for mp4"),
        ({"metadata": {"title": "x"}}, ValueError, "gif holds no metadata, got 'title'"),
        ({"path": "a.avi"}, ValueError, "must end in .mp4"),
        ({"path": "nowhere/a.gif"}, RuntimeError, "there is no folder '.*nowhere'"),
        ({"path": "nowhere/a/%04d.png"}, RuntimeError, "there is no folder"),
        ({"path": "%d-%d.png"}, ValueError, "must hold one number"),
    ],
)
def test_wrong_videos_are_refused(tmp_path, arguments, error, text):
    arguments = {"path": "a.gif", "frames": clip(2)} | arguments
    with pytest.raises(error, match=text):
        save_video(tmp_path / arguments.pop("path"), arguments.pop("frames"), **arguments)
    assert list(tmp_path.iterdir()) == []


@needs_libav
def test_wrong_mp4_files_are_refused(tmp_path):
    for arguments, text in (
        ({"metadata": {"prompt": "x"}}, "mp4 holds metadata under title, comment, .*, got 'prompt'"),
        ({"metadata": {"title": "a\0b"}}, "no value may hold a NUL"),
        ({"encoder": "libvpx-vp9"}, "encoder of mp4 must be one of libx264, libopenh264, mpeg4"),
    ):
        with pytest.raises(ValueError, match=text):
            VideoWriter(tmp_path / "a.mp4", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [*FILES, "pictures"])
def test_a_video_appears_whole_or_not_at_all(tmp_path, kind):
    path = place_of(tmp_path, kind)
    with pytest.raises(KeyError), VideoWriter(path) as video:
        video.append(numbered(1))
        assert not path.exists()
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    video = VideoWriter(path)
    video.append(numbered(1))
    del video
    assert list(tmp_path.iterdir()) == []
    video = VideoWriter(path)
    video.append(numbered(1))
    with pytest.raises(ValueError, match="one size"):
        video.append(numbered(1, height=48))
    video.append(numbered(2))  # a refused frame changes nothing
    video.close()
    video.close()
    assert [number(f) for f in VideoReader(path)] == [1, 2]
    with pytest.raises(RuntimeError, match="is closed"):
        video.append(numbered(3))


def test_a_full_disk_leaves_the_old_file(tmp_path):
    program = """
import resource, sys, numpy, scaffolding as sf
frames = numpy.random.default_rng(0).integers(0, 256, (6, 96, 96, 3), dtype=numpy.uint8)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
for path in sys.argv[1:]:
    try:
        sf.io.save_video(path, frames, quality=95)
        sys.exit(f"{path} was written")
    except RuntimeError as error:
        assert "File too large" in str(error), error
"""
    paths = [place_of(tmp_path, kind) for kind in [*FILES, "pictures"]]
    for path in paths[:-1]:
        path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"] * len(FILES)


def test_folders_of_pictures(tmp_path):
    save_video(tmp_path / "a", clip(3), fps=5)
    with pytest.raises(ValueError, match="holds pictures of another video already"):
        save_video(tmp_path / "a", clip(2))
    save_video(tmp_path / "a" / "second_%02d.png", clip(12))
    assert [number(f) for f in VideoReader(tmp_path / "a" / "second_%02d.png")] == list(range(12))
    assert len(VideoReader(tmp_path / "a")) == 15
    (tmp_path / "b").mkdir()
    for n in (10, 9, 1):
        sf.io.write_image(tmp_path / "b" / f"frame{n}.png", sf.tensor(numbered(n)).permute(2, 0, 1))
    (tmp_path / "b" / "notes.txt").write_text("no picture")
    video = VideoReader(tmp_path / "b")
    assert [number(f) for f in video] == [1, 9, 10] and video.fps is None and video.times == []
    sf.io.write_image(tmp_path / "b" / "frame11.png", sf.zeros(3, 8, 8, dtype=sf.uint8))
    with pytest.raises(ValueError, match="frame11.png: is 8 x 8, the pictures before it are 64 x 32"):
        VideoReader(tmp_path / "b")[:]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no pictures"):
        VideoReader(tmp_path / "empty")


def pillows(path):
    from PIL import Image

    with Image.open(path) as image:
        for i in range(image.n_frames):
            image.seek(i)
            rgba = image.convert("RGBA")
            yield sf.tensor(numpy.asarray(Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)))[..., :3]


@pytest.mark.parametrize("disposal", [0, 1, 2, 3])
def test_gif_as_pillow_reads_it(tmp_path, disposal):
    from PIL import Image

    pictures = []
    for i in range(6):
        picture = Image.new("P", (40, 30), 0)
        picture.putpalette([c for k in range(256) for c in (k, 255 - k, k // 2)])
        picture.paste(40 * i + 5, (3 * i, 2 * i, 3 * i + 12, 2 * i + 9))
        picture.paste(7, (0, 0, 3, 3))
        pictures.append(picture)
    pictures[0].save(
        tmp_path / "a.gif",
        save_all=True,
        append_images=pictures[1:],
        duration=[100, 40, 250, 0, 30, 90],
        disposal=disposal,
        transparency=0,
        optimize=False,
    )
    video = VideoReader(tmp_path / "a.gif")
    expected = list(pillows(tmp_path / "a.gif"))
    assert len(video) == len(expected) == 6
    for ours, theirs in zip(video, expected):
        assert sf.equal(ours, theirs)
    assert video.times[:4] == pytest.approx([0, 0.1, 0.14, 0.39])


def test_interlaced_gif(tmp_path):
    from PIL import Image

    for height in (1, 2, 3, 5, 9, 30):
        picture = Image.fromarray(numpy.random.default_rng(height).integers(0, 256, (height, 40), dtype=numpy.uint8))
        picture.save(tmp_path / "a.gif", interlace=1)
        assert sf.equal(VideoReader(tmp_path / "a.gif")[0], next(pillows(tmp_path / "a.gif"))), height


@pytest.mark.skipif(".webp" not in FILES, reason="built without libwebpmux")
def test_webp_as_pillow_reads_it(tmp_path):
    from PIL import Image

    rng = numpy.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (20, 28, 4), dtype=numpy.uint8)) for _ in range(5)]
    pictures[0].save(tmp_path / "a.webp", save_all=True, append_images=pictures[1:], duration=[40, 80, 30, 10, 90])
    video = VideoReader(tmp_path / "a.webp")
    for ours, theirs in zip(video, pillows(tmp_path / "a.webp")):
        assert (ours.float() - theirs.float()).abs().max().item() <= 1
    assert video.times == pytest.approx([0, 0.04, 0.12, 0.15, 0.16])


@pytest.mark.parametrize("suffix", FILES)
def test_files_that_were_cut_short_are_refused(tmp_path, suffix):
    save_video(tmp_path / ("a" + suffix), clip(12), quality=50)
    whole = (tmp_path / ("a" + suffix)).read_bytes()
    cut = tmp_path / ("cut" + suffix)
    for size in sorted({*range(0, 48, 3), *range(48, len(whole), max(1, len(whole) // 50)), len(whole) - 1}):
        cut.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="cut"):
            for _ in VideoReader(cut):
                pass


@pytest.mark.parametrize("suffix", FILES)
def test_damaged_files_are_errors_or_frames(tmp_path, suffix, capfd):
    save_video(tmp_path / ("a" + suffix), clip(10), quality=50)
    whole = (tmp_path / ("a" + suffix)).read_bytes()
    rng, refused, path = random.Random(0), 0, tmp_path / ("b" + suffix)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4, 20))):
            at = rng.randrange(len(data))
            data[at] = rng.choice((data[at] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)))
        path.write_bytes(data)
        try:
            video = VideoReader(path, max_pixels=1 << 18, max_frames=1000)
            for i in (len(video) - 1, 0, len(video) // 2):
                assert video[i].shape == (video.height, video.width, 3)
        except (ValueError, NotImplementedError) as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 4
    assert capfd.readouterr() == ("", "")  # the library never prints


@pytest.mark.parametrize("kind", [*FILES, "pictures"])
def test_limits(tmp_path, kind):
    path = place_of(tmp_path, kind)
    save_video(path, clip(9))
    with pytest.raises(ValueError, match="64 x 32 pixels, more than the 2047 that are allowed"):
        VideoReader(path, max_pixels=2047)
    with pytest.raises(ValueError, match="more than the 8 frames that are allowed"):
        VideoReader(path, max_frames=8)
    assert len(VideoReader(path, max_pixels=2048, max_frames=9)) == 9


def test_what_is_no_video(tmp_path):
    with pytest.raises(RuntimeError, match="cannot open"):
        VideoReader(tmp_path / "nowhere.mp4")
    (tmp_path / "a.mp4").write_bytes(b"no video at all, but long enough")
    with pytest.raises(ValueError, match="a.mp4: is no video that can be read: mp4"):
        VideoReader(tmp_path / "a.mp4")


def test_without_libav_the_error_says_what_to_install(tmp_path):
    program = """
import sys, scaffolding as sf
frames = sf.zeros(2, 3, 8, 8)
for f in (lambda: sf.io.save_video("a.mp4", frames), lambda: sf.io.VideoReader(sys.argv[1])):
    try:
        f()
        sys.exit("it worked")
    except NotImplementedError as error:
        text = str(error)
        assert "libscaffolding_video.so is not at /nowhere; build Scaffolding where libav's headers" in text, text
        assert "apt install libavcodec-dev libavformat-dev libavutil-dev libswscale-dev" in text
assert not sf.io.can_write_video("a.webm")
sf.io.save_video("frames", frames)
assert len(sf.io.VideoReader("frames")) == 2
"""
    path = tmp_path / "a.mp4"
    path.write_bytes(b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x08moov")
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"SF_VIDEO_LIBRARY": "/nowhere"},
    )
    assert done.returncode == 0, done.stderr


@needs_libav
@pytest.mark.parametrize(
    ("library", "text"),
    [
        ("text", "install the libav that it was built with"),
        ("libscaffolding.so", "is of another version than this library, .*; build both together"),
    ],
)
def test_a_library_that_does_not_fit_is_said(build_dir, tmp_path, library, text):
    (tmp_path / "text").write_text("no library")
    path = build_dir / library if library.endswith(".so") else tmp_path / library
    program = "import scaffolding as sf; sf.io.save_video('a.mp4', sf.zeros(2, 3, 8, 8))"
    environment = os.environ | {"SF_VIDEO_LIBRARY": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert re.search("NotImplementedError: save_video: a.mp4: .*" + text, done.stderr), done.stderr


@needs_libav
@pytest.mark.parametrize(("turns", "matrix"), [(1, (0, 1, -1, 0)), (2, (-1, 0, 0, -1)), (3, (0, -1, 1, 0))])
def test_a_turned_video_is_shown_upright(tmp_path, turns, matrix):
    path = tmp_path / "a.mp4"
    save_video(path, clip(5), quality=95)
    data, flat = bytearray(path.read_bytes()), VideoReader(path)[3]
    at = data.index(b"tkhd") + 4 + 40  # version and flags, times, layer, volume
    for place, value in zip((0, 4, 12, 16), matrix):
        data[at + place : at + place + 4] = (value << 16).to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    video = VideoReader(path)
    assert (video.width, video.height) == ((32, 64) if turns % 2 else (64, 32))
    turned = numpy.rot90(flat.numpy(), -turns)
    assert numpy.array_equal(video[3].numpy(), turned)


def test_read_video(tmp_path):
    save_video(tmp_path / "frames", clip(10))
    x = read_video(tmp_path / "frames", 2, 3, stride=3)
    assert x.shape == (3, 32, 64, 3) and [number(f) for f in x] == [2, 5, 8]
    assert [number(f) for f in read_video(tmp_path / "frames", 1, stride=4)] == [1, 5, 9]
    assert read_video(tmp_path / "frames", size=16).shape == (10, 16, 32, 3)
    middle = read_video(tmp_path / "frames", 4, 1, size=(32, 32))
    assert sf.equal(middle[0], sf.tensor(numbered(4))[:, 16:48])
    assert read_video(tmp_path / "frames", 4, 1, size=(48, 20), interpolation="bicubic").shape == (1, 48, 20, 3)
    for arguments, error, text in (
        ({"start": 8, "frames": 3}, IndexError, "has 10 frames, too few for 3 from frame 8 on"),
        ({"start": 10}, IndexError, "too few"),
        ({"start": -1}, IndexError, "too few"),
        ({"stride": 0}, ValueError, "stride of frames"),
        ({"frames": 0}, ValueError, "number of frames"),
        ({"size": 0}, ValueError, "size must be"),
        ({"size": (1, 2, 3)}, ValueError, "size must be"),
    ):
        with pytest.raises(error, match=text):
            read_video(tmp_path / "frames", **arguments)


def test_diffusers_names(tmp_path):
    from PIL import Image

    from scaffolding.utils import export_to_gif, export_to_video

    pictures = [Image.fromarray(f) for f in clip(4)]
    if ".gif" in FILES:
        assert export_to_gif(pictures, str(tmp_path / "a.gif")) == str(tmp_path / "a.gif")
        assert VideoReader(tmp_path / "a.gif").fps == pytest.approx(10)
    if ".mp4" not in FILES:
        return
    path = export_to_video([f / 255 for f in clip(4)], str(tmp_path / "b.mp4"), fps=8)
    assert [number(f) for f in VideoReader(path)] == [0, 1, 2, 3] and VideoReader(path).fps == 8
    own = export_to_video(pictures)
    assert own.endswith(".mp4") and len(VideoReader(own)) == 4
    os.unlink(own)
    with pytest.raises(ValueError, match="bitrate is not an option"):
        export_to_video(pictures, path, bitrate=100)
    with pytest.raises(ValueError, match="quality must be 0 to 10"):
        export_to_video(pictures, path, quality=11)


def test_frames_are_taken_one_by_one(tmp_path):
    alive = []

    def frames():
        for n in range(8):
            frame = sf.tensor(numbered(n))
            alive.append(weakref.ref(frame))
            assert sum(r() is not None for r in alive) <= 2
            yield frame

    save_video(tmp_path / "frames", frames())
    assert len(alive) == len(VideoReader(tmp_path / "frames")) == 8
