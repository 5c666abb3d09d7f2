"""VideoFolder: clips with captions, and the DataLoader over them."""

import json
import warnings

import pytest

import scaffolding as sf
from scaffolding.data import BrokenSample, VideoFolder
from scaffolding.data import transforms as T
from scaffolding.io import save_video
from scaffolding.utils.data import DataLoader

SUFFIX = next((s for s in (".mp4", ".webp", ".gif") if sf.io.can_write_video("a" + s)), None)
pytestmark = pytest.mark.skipif(SUFFIX is None, reason="no format of one file can be written")


def video(path, count=12, height=32, width=48):
    """Grey frames; frame n is 20 n bright."""
    save_video(path, [sf.full((height, width, 3), 20 * n, dtype=sf.uint8) for n in range(count)], quality=95)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    for i, name in enumerate(("a", "b", "sub/c")):
        video(tmp_path / (name + SUFFIX))
        (tmp_path / (name + ".txt")).write_text(f"clip {i}\n")
    return tmp_path


def first_number(frames):
    """Of a clip [3, T, H, W]."""
    return round(frames[:, 0].float().mean().item() / 20)


def test_clips_and_captions(folder):
    clips = VideoFolder(folder, num_frames=4, frame_stride=2, random_start=False)
    assert len(clips) == 3 and [clips.name(i) for i in range(3)] == ["a" + SUFFIX, "b" + SUFFIX, "sub/c" + SUFFIX]
    frames, caption = clips[-1]
    assert frames.shape == (3, 4, 32, 48) and frames.dtype == sf.uint8 and frames.is_contiguous()
    assert caption == clips.caption(2) == "clip 2" and clips.path(2) == str(folder / "sub" / ("c" + SUFFIX))
    means = frames.float().mean((0, 2, 3)).tolist()
    assert means == pytest.approx([0, 40, 80, 120], abs=4)
    assert VideoFolder(folder, 4, size=16)[0][0].shape == (3, 4, 16, 24)
    assert VideoFolder(folder, 4, size=(24, 24))[0][0].shape == (3, 4, 24, 24)


def test_starts_follow_the_loaders_generator(folder):
    clips = VideoFolder(folder, num_frames=3)

    def epoch(seed, workers):
        loader = DataLoader(
            clips, batch_size=2, shuffle=True, num_workers=workers, generator=sf.Generator().manual_seed(seed)
        )
        return [(first_number(f), c) for frames, captions in loader for f, c in zip(frames, captions)]

    assert epoch(1, 0) == epoch(1, 0) == epoch(1, 2)
    many = {first for seed in range(12) for first, _ in epoch(seed, 0)}
    assert len(many) > 5 and many <= set(range(10))


def test_a_training_loop(folder):
    clips = VideoFolder(
        folder, num_frames=4, size=(16, 16), transform=T.Compose([T.RandomCrop(8), T.ToFloat(), T.Normalize(0.5, 0.5)])
    )
    for video_batch, prompts in DataLoader(clips, batch_size=3):
        assert video_batch.shape == (3, 3, 4, 8, 8) and video_batch.dtype == sf.float32
        assert video_batch.min() >= -1 and video_batch.max() <= 1
        assert prompts == ["clip 0", "clip 1", "clip 2"]


def test_a_transform_is_the_same_for_all_frames(tmp_path):
    ramp = sf.arange(48).expand(32, 48).unsqueeze(-1).expand(32, 48, 3).to(sf.uint8) * 5
    save_video(tmp_path / "clips", [ramp] * 6)
    (tmp_path / "metadata.jsonl").write_text(json.dumps({"file_name": "clips", "text": "a ramp"}))
    clips = VideoFolder(tmp_path, 6, transform=T.Compose([T.RandomHorizontalFlip(), T.RandomCrop((32, 8))]))
    seen = set()
    for _ in range(10):
        frames, caption = clips[0]
        assert caption == "a ramp" and frames.shape == (3, 6, 32, 8)
        assert all(sf.equal(frames[:, 0], frames[:, k]) for k in range(6))
        seen.add(tuple(frames[0, 0, 0].tolist()))
    assert len(seen) > 4
    assert VideoFolder(tmp_path, 6, transform=lambda clip: clip.float().mean())[0][0].shape == ()


def test_captions_of_json_files_and_tables(folder):
    for name in ("a", "b", "sub/c"):
        (folder / (name + ".txt")).unlink()
        (folder / (name + ".json")).write_text(json.dumps({"prompt": f"json {name}", "long": "more", "seed": 3}))
    clips = VideoFolder(folder, 2)
    assert clips[1][1] == "json b" and clips.metadata(1)["seed"] == 3
    assert VideoFolder(folder, 2, caption_column="long").caption(0) == "more"
    rows = [{"file_name": "sub/c" + SUFFIX, "caption": "of the table", "n": 5}]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    clips = VideoFolder(folder, 2)
    assert len(clips) == 1 and clips[0][1] == "of the table" and clips.metadata(0)["n"] == 5
    (folder / "metadata.jsonl").unlink()
    (folder / "metadata.csv").write_text(f"file_name,text\na{SUFFIX},first\nb{SUFFIX},second\n")
    assert VideoFolder(folder, 2).caption(1) == "second"


def test_without_captions(tmp_path):
    video(tmp_path / ("a" + SUFFIX))
    frames, caption = VideoFolder(tmp_path, 2)[0]
    assert caption == "" and frames.shape == (3, 2, 32, 48)


def test_wrong_folders_are_refused(folder):
    (folder / "empty").mkdir()
    for arguments, text in (
        ((folder / "nowhere",), "there is no folder"),
        ((folder / "empty",), "holds no videos"),
        ((folder, 0), "number of frames must be 1 to"),
        ((folder, 4, 0), "stride of frames must be 1 to"),
        ((folder, 4, 1, (0, 4)), "size must be"),
    ):
        with pytest.raises(ValueError, match=text):
            VideoFolder(*arguments)
    with pytest.raises(ValueError, match="has none of|no column 'x'|no 'x'|'x'"):
        VideoFolder(folder, caption_column="x").caption(0)
    (folder / "b.txt").unlink()
    with pytest.raises(ValueError, match=f"1 of 3 videos in .* have no caption file, the first is 'b{SUFFIX}'"):
        VideoFolder(folder)
    assert VideoFolder(folder, 2, allow_missing_captions=True)[1][1] == ""
    (folder / "metadata.jsonl").write_text('{"file_name": "../a.mp4", "text": "x"}')
    with pytest.raises(ValueError, match="must be a path below the folder"):
        VideoFolder(folder)


def test_what_is_too_short_or_damaged_is_skipped(folder):
    whole = (folder / ("b" + SUFFIX)).read_bytes()
    (folder / ("b" + SUFFIX)).write_bytes(whole[: len(whole) // 2])
    video(folder / ("d" + SUFFIX), count=3)
    (folder / "d.txt").write_text("short")
    clips = VideoFolder(folder, num_frames=5)
    with pytest.raises(BrokenSample, match="has 3 frames, a clip of 5 with stride 1 needs 5"):
        clips[2]
    with pytest.raises(BrokenSample, match="b" + SUFFIX):
        clips[1]
    loader = DataLoader(clips, batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ((frames, captions),) = list(loader)
    assert frames.shape[0] == 2 and captions == ["clip 0", "clip 2"] and len(loader.skipped) == 2
