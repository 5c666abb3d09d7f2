"""Canny's edges against the definition, written again with NumPy."""

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.data import canny


def expected(picture, low, high):
    """cv2.Canny of uint8 [H, W, C], step by step."""
    h, w, channels = picture.shape
    around = np.pad(picture.astype(np.int64), ((1, 1), (1, 1), (0, 0)), mode="edge")

    def shifted(dy, dx):
        return around[1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]

    dx = sum(k * (shifted(o, 1) - shifted(o, -1)) for o, k in ((-1, 1), (0, 2), (1, 1)))
    dy = sum(k * (shifted(1, o) - shifted(-1, o)) for o, k in ((-1, 1), (0, 2), (1, 1)))
    steepest = (abs(dx) + abs(dy)).argmax(-1)[..., None]
    dx, dy = (np.take_along_axis(d, steepest, -1)[..., 0] for d in (dx, dy))
    slope = np.pad(abs(dx) + abs(dy), 1)

    def beside(dy, dx):
        return slope[1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]

    here, flat = beside(0, 0), abs(dx) * 13573
    steep = abs(dy) << 15
    level, upright = steep < flat, steep > flat + (abs(dx) << 16)
    falling = (dx < 0) != (dy < 0)
    ridge = np.where(level, (here > beside(0, -1)) & (here >= beside(0, 1)),
             np.where(upright, (here > beside(-1, 0)) & (here >= beside(1, 0)),
              np.where(falling, (here > beside(-1, 1)) & (here > beside(1, -1)),
                       (here > beside(-1, -1)) & (here > beside(1, 1)))))  # fmt: skip
    weak, edge = ridge & (here > low), ridge & (here > high)
    while True:
        wide = np.pad(edge, 1)
        grown = weak & np.any([wide[1 + a : 1 + a + h, 1 + b : 1 + b + w] for a in (-1, 0, 1) for b in (-1, 0, 1)], 0)
        if (grown | edge).sum() == edge.sum():
            return edge
        edge |= grown


def smooth_noise(h, w, channels, seed):
    noise = np.random.default_rng(seed).normal(size=(h + 6, w + 6, channels))
    blurred = sum(noise[a : a + h, b : b + w] for a in range(7) for b in range(7))
    return (128 + 12 * blurred).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(("h", "w", "channels"), [(40, 56, 3), (33, 21, 1), (1, 9, 3), (7, 1, 1)])
@pytest.mark.parametrize(("low", "high"), [(100, 200), (60.7, 110.2), (200, 100)])
def test_it_is_opencvs(h, w, channels, low, high):
    for seed in range(3):
        picture = smooth_noise(h, w, channels, seed)
        got = canny(picture, low, high)
        assert got.shape == (h, w, 3) and got.dtype == np.uint8 and (got == got[..., :1]).all()
        want = expected(picture, *np.floor(sorted((low, high))))
        np.testing.assert_array_equal(got[..., 0] > 0, want)
        assert set(np.unique(got)) <= {0, 255}
    if h * w > 500:
        assert 0.01 < want.mean() < 0.5


def test_kinds_of_pictures():
    picture = smooth_noise(24, 24, 3, 0)
    want = canny(picture)
    tensor = canny(sf.tensor(picture).permute(2, 0, 1))
    np.testing.assert_array_equal(tensor.permute(1, 2, 0).contiguous().numpy(), want)
    Image = pytest.importorskip("PIL.Image")
    np.testing.assert_array_equal(np.asarray(canny(Image.fromarray(picture))), want)


def test_what_is_no_picture():
    with pytest.raises(ValueError, match=r"canny: picture must be uint8 \[C, H, W\], got float32"):
        canny(sf.zeros(3, 4, 4))
    with pytest.raises(ValueError, match="canny: thresholds must be finite"):
        canny(np.zeros((4, 4, 3), np.uint8), float("nan"))
