"""MovingIcons: clips of icons, and that their trajectories are what steers them."""

import io
import json
import tarfile

import pytest

import scaffolding as sf
from scaffolding.data import MovingIcons, encode_image
from scaffolding.diffusion.pipelines.tora import trajectory_flow
from scaffolding.utils.data import DataLoader


@pytest.fixture
def icons(tmp_path):
    picture = sf.zeros((4, 32, 32), dtype=sf.uint8)
    picture[2:, 8:24, 4:28] = 255
    rows = [
        {"file_name": "noto/a.png", "caption": "bar", "style": "noto", "keywords": ["blue"], "split": "train"},
        {"file_name": "flat/a.png", "caption": "bar", "style": "fluent flat", "group": "Signs"},
    ]
    path = tmp_path / "icons.tar"
    with tarfile.open(path, "w") as tar:
        files = {"metadata.jsonl": "\n".join(map(json.dumps, rows)).encode()}
        files.update({row["file_name"]: encode_image(picture, "png") for row in rows})
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_samples(icons):
    clips = MovingIcons(icons, background_probability=0, gradient_probability=0, style_dropout=0, keyword_probability=0)
    assert len(clips) == 2 and clips.name(0) == "noto/a.png" and clips.style(1) == "fluent flat"
    assert clips.caption(0) == "bar" and clips.split(0) == "train" and clips.split(1) == ""
    assert clips.drawing(0).shape == (4, 32, 32)
    frames, caption, trajectories = clips[-1]
    assert frames.shape == (3, 17, 64, 64) and frames.dtype == sf.uint8 and caption == "bar, fluent flat"
    assert trajectories.shape == (1, 17, 2)
    assert {"bar, noto", "blue"} <= set(clips.texts())
    assert len(MovingIcons(icons, styles=["noto"])) == len(MovingIcons(icons, left_out_groups=["Signs"])) == 1
    with pytest.raises(ValueError, match="no pictures of these splits, styles and groups"):
        MovingIcons(icons, splits=["test"])
    with pytest.raises(ValueError, match="icons must be 1 to size = 64 pixels wide, got 10 to 70"):
        MovingIcons(icons, icon_sizes=(10, 70))


def test_a_trajectory_of_as_many_points_moves_the_flow_by_just_these(icons):
    _, _, trajectories = MovingIcons(icons, icon_sizes=(8, 16))[0]
    points = [tuple(p) for p in trajectories[0].tolist()]
    flow = trajectory_flow([points], 17, 64, 64, canvas=(64, 64), sigma=0)
    for before, now, of_frame in zip(points, points[1:], flow[1:]):
        x, y = map(int, before)
        assert of_frame[y, x].tolist() == [now[0] - before[0], now[1] - before[1]]


def test_an_epoch_is_its_generators(icons):
    clips = MovingIcons(icons, num_frames=5)

    def epoch(seed, workers):
        loader = DataLoader(clips, batch_size=2, num_workers=workers, generator=sf.Generator().manual_seed(seed))
        return [t.tolist() for _, _, t in loader]

    assert epoch(1, 0) == epoch(1, 0) == epoch(1, 2)
    assert epoch(1, 0) != epoch(2, 0)
