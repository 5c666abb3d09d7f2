"""Trajectories, their flow and its colours, beside tora_reference.py in float64."""

import pathlib
import time

import numpy as np
import pytest
import tora_reference as reference

import scaffolding as sf
from scaffolding.diffusion.pipelines import tora

# A curve of Tora's kind: more points than 17 frames, fewer than 49.
CURVE = [(98, 186), (100, 188), (104, 187), (116, 176), (132, 140), (137, 104), (140, 94), (138, 98), (137, 92),
         (144, 92), (152, 92), (147, 92), (140, 92), (95, 139), (122, 142), (167, 136), (188, 132), (192, 130),
         (192, 131), (195, 130)]  # fmt: skip
SHORT = [(10, 54), (32, 20), (54, 10)]


NEAR = 1e-3  # levels: what float32 cannot tell, of 54 places on the wheel with up to 64 levels between two


def assert_pictures(got, flow):
    """Equal, but where the reference's level is so near a whole number that it may be cut to either side."""
    levels = reference.levels(flow)
    want, distance = np.floor(levels), np.abs(levels - np.round(levels))
    got = got.numpy().astype(np.float64)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1
    assert distance[got != want].max(initial=0) < NEAR
    assert (want < 250).any() and (distance[want < 250] < NEAR).mean() < 0.6  # so that the lines above say something


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 7, 17, 20, 21, 49, 81])
@pytest.mark.parametrize("points", [SHORT, CURVE, CURVE * 3, [(0, 0), (255, 255)]])
def test_a_point_for_each_frame(points, frames):
    want = reference.pixels(points, frames, 48, 72)
    assert tora.trajectory_points(points, frames, 48, 72) == [want]
    assert len(want) == frames


def test_what_is_left_out_and_put_between():
    hundred = [(i, 2 * i) for i in range(100)]
    assert tora.trajectory_points(hundred, 49, 256, 256)[0][-3:] == [(92, 184), (94, 188), (96, 192)]
    assert tora.trajectory_points(hundred, 60, 256, 256)[0][-1] == (59, 118)  # as Tora: the rest is cut off
    # 3 more between 3 points: 2 in the first gap and 1 in the second, cut to whole numbers
    assert tora.trajectory_points(SHORT, 6, 256, 256) == [[(10, 54), (17, 42), (24, 31), (32, 20), (43, 15), (54, 10)]]
    assert tora.trajectory_points([(0, 0), (256, 256)], 2, 48, 72) == [[(0, 0), (71, 47)]]  # the far edge is a pixel
    assert tora.trajectory_points(SHORT, 3, 64, 64, canvas=(64, 64)) == [SHORT]
    assert tora.trajectory_points([(0.5, 1.5), (2.5, 3)], 3, 512, 512) == [[(1, 3), (2, 4), (5, 6)]]


@pytest.mark.parametrize(
    ("trajectories", "frames", "height", "width"),
    [
        ([CURVE], 17, 40, 56),
        ([SHORT, CURVE, [(250, 250), (3, 250)]], 9, 56, 40),
        ([[(128, 100), (128, 100), (200, 30)]], 5, 7, 150),  # lower than the filter is wide: reflected many times
        ([[(1, 1), (200, 200)]], 3, 1, 3),
    ],
)
def test_flow_and_its_colours(trajectories, frames, height, width):
    want = reference.flow(trajectories, frames, height, width)
    got = tora.trajectory_flow(trajectories, frames, height, width)
    assert got.dtype is sf.float32
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-6, atol=1e-6 * np.abs(want).max())
    assert_pictures(tora.flow_to_image(got.permute(0, 3, 1, 2)), np.moveaxis(want, -1, 1))
    video = tora.video_flow(trajectories, frames, height, width)
    assert video.shape == (1, frames, 3, height, width) and video.dtype is sf.float32
    image = tora.flow_to_image(got.permute(0, 3, 1, 2))
    assert np.array_equal(video[0].numpy(), image.numpy().astype(np.float32) / np.float32(127.5) - 1)


def test_flow_without_and_with_another_gaussian():
    sparse = tora.trajectory_flow([SHORT, SHORT[::-1]], 3, 64, 64, canvas=(64, 64), sigma=0)
    assert np.array_equal(
        sparse.numpy(), reference.sparse_flow([SHORT, SHORT[::-1]], 3, 64, 64, (64, 64)).astype(np.float32)
    )
    assert sf.count_nonzero(sparse.abs().sum(-1)).item() == 3  # in frame 2 both begin at (32, 20): the later one counts
    assert sparse[2, 20, 32].tolist() == [10 - 32, 54 - 20]
    want = reference.flow([SHORT], 3, 64, 64, (64, 64), size=21, sigma=3.0)
    got = tora.trajectory_flow([SHORT], 3, 64, 64, canvas=(64, 64), kernel_size=21, sigma=3)
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-6, atol=1e-5)


def test_colours_of_any_flow():
    flow = np.random.default_rng(7).normal(size=(4, 2, 33, 27))
    flow[1] *= 1e-3
    flow[2, :, :5] = 0
    assert_pictures(tora.flow_to_image(sf.tensor(flow)), flow.astype(np.float32).astype(np.float64))
    one = sf.tensor(flow[0].astype(np.float32))
    assert sf.equal(tora.flow_to_image(one), tora.flow_to_image(one.unsqueeze(0))[0])
    still = tora.flow_to_image(sf.zeros(2, 2, 3, 3))
    assert still.dtype is sf.uint8 and (still == 255).all()
    # right, down, left, up
    four = tora.flow_to_image(sf.tensor([[[1.0, 0, -1, 0]], [[0.0, 1, 0, -1]]])).numpy().astype(int)
    want = [[255, 0, 0], [255, 229, 0], [0, 209, 255], [88, 0, 255]]
    assert four.shape == (3, 1, 4) and np.abs(four[:, 0].T - want).max() <= 1


def test_every_form_of_trajectories(tmp_path):
    file = tmp_path / "points.txt"
    file.write_text("\n10,54\r\n32, 20\n\n54 ,10\n\n")
    for form in [
        "10,54 32,20 54,10",
        " 10, 54\n32,20\t54.0,10 ",
        file,
        str(file),
        SHORT,
        [list(p) for p in SHORT],
        np.array(SHORT),
        sf.tensor(SHORT),
        [SHORT],
        [file],
    ]:
        assert tora.as_trajectories(form) == [[(float(x), float(y)) for x, y in SHORT]], form
    two = [[(10.0, 54.0), (32.0, 20.0)], [(1.0, 2.0), (3.0, 4.0)]]
    for form in ["10,54 32,20; 1,2 3,4", ["10,54 32,20", "1,2 3,4"], two, np.array(two), ["10,54 32,20", two[1]]]:
        assert tora.as_trajectories(form) == two


def test_what_is_refused(tmp_path):
    def files(content, match, error=ValueError):
        path = tmp_path / "points.txt"
        path.write_bytes(content)
        with pytest.raises(error, match=match):
            tora.trajectory_points(pathlib.Path(path), 5, 64, 64)

    files(b"", r"points.txt': is empty")
    files(b" \n\n", r"points.txt': trajectory 1 has no points")
    files(b"1,2\n", r"needs at least 2 points, got 1; for something that stays")
    files(b"1,2\n3\n", r"points.txt': point 2 must be two numbers, as in 10,54, got '3'")
    files(b"1,2\n3,4,5\n", r"point 2 must be two numbers")
    files(b"1,2\nnan,4\n", r"point 2 must be two numbers, as in 10,54, got 'nan,4'")
    files(b"1,2\n3,inf", r"point 2 must be two numbers")
    files(b"1,2\n3,1e999", r"point 2 must be two numbers")
    files(b"\x00\xff\xfe,\x80", r"point 1 must be two numbers, as in 10,54, got '\?\?\?,\?'")
    files(b"1,2 3,4; 5,6 7,8", r"a file has one trajectory, this one has 2")
    files(b"1,2\n3,257\n", r"trajectory 1: point 2 \(3, 257\) lies outside the canvas of 256x256")
    files(b"1,2\n" * 70000, r"a trajectory has at most 65536 points")
    files(b"1,2\n" * 300000, r"a file of points has at most 1048576 bytes, this one has 1200000")
    with pytest.raises(RuntimeError, match="nowhere.txt: cannot open"):
        tora.trajectory_points("nowhere.txt", 5, 64, 64)
    for given, match in [
        ([(1, 2)], "trajectory 1: needs at least 2 points, got 1"),
        ([], "trajectory 1: has no points"),
        ("", "trajectory 1 has no points"),
        ("1,2 3,4;", "trajectory 2 has no points"),
        ([(1, 2), (-1, 2)], r"point 2 \(-1, 2\) lies outside the canvas of 256x256"),
        ([(1, 2), (float("nan"), 2)], "point 2 must be finite"),
        ([SHORT, [(1, 2), (3, 300)]], "trajectory 2: point 2"),
        ([SHORT] * 17, "there can be at most 16, got 17"),
        (";".join(["1,2 3,4"] * 17), "there can be at most 16 trajectories"),
        (np.zeros((2, 0, 2)), "has no points"),
    ]:
        with pytest.raises(ValueError, match=match):
            tora.trajectory_points(given, 5, 64, 64)
    for given, match in [
        (7, "must be points, a text such as .* or a file, got int"),
        ([(1, 2), (1, 2, 3)], r"point 2 must be two numbers \(x, y\), got \(1, 2, 3\)"),
        ([(1, 2), "34"], "point 2 must be two numbers"),
        ([("a", 2), (3, 4)], "point 1 must be two numbers"),
        (np.zeros((3, 3)), r"an array must be \[N, 2\] or \[K, N, 2\], got \[3, 3\]"),
    ]:
        with pytest.raises((TypeError, ValueError), match=match):
            tora.trajectory_points(given, 5, 64, 64)
    for changed, match in [
        ({"num_frames": 0}, "num_frames must be between 1 and 65536, got 0"),
        ({"num_frames": 1 << 40}, "num_frames must be between 1"),
        ({"height": 0}, "frames must be 1 to 65536 pixels wide and high, got 64x0"),
        ({"canvas": (0, 64)}, "the canvas must be 1 to"),
        ({"kernel_size": 98}, "kernel_size must be odd and between 1 and 1023, got 98"),
        ({"sigma": -1}, "sigma must be 0 or above, got -1"),
        ({"sigma": float("nan")}, "sigma must be 0 or above"),
    ]:
        with pytest.raises(ValueError, match=match):
            tora.video_flow(**{"trajectories": SHORT, "num_frames": 5, "height": 64, "width": 64, **changed})
    for flow, match in [
        (sf.zeros(3, 4, 4), r"flow must be \[N, 2, H, W\] or \[2, H, W\], got \[3, 4, 4\]"),
        (sf.full((2, 3, 3), float("nan")), "flow must be finite"),
        (sf.full((1, 2, 3, 3), float("inf")), "flow must be finite"),
        (sf.full((2, 3, 3), 1e30), "flow must be finite, and its squares too"),
    ]:
        with pytest.raises(ValueError, match=match):
            tora.flow_to_image(flow)


def test_a_clip_of_49_frames_takes_little_time():
    before = sf.get_num_threads()
    try:
        sf.set_num_threads(1)
        began = time.process_time()
        clip = tora.video_flow([CURVE, SHORT, [(250, 20), (20, 250)]], 49, 480, 720)
        took = time.process_time() - began
    finally:
        sf.set_num_threads(before)
    assert clip.shape == (1, 49, 3, 480, 720)
    assert took < 4, f"{took:.2f} s"  # 0.8 s, most of it the first touch of memory; a filter of whole frames: minutes
