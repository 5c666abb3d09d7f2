"""Changes of colour, pictures of Pillow's in and out, and grids: equal to torchvision's
(tests/golden/make_golden_transforms.py)."""

import io

import folders
import numpy
import pytest
from packed import unpacked

import scaffolding as sf
from scaffolding import data, utils
from scaffolding.data import transforms as T

GOLDEN = sf.safetensors.load(unpacked(folders.GOLDEN / "data" / "transforms.safetensors.xz"))
CHANGES = [name.split(".", 3) for name in GOLDEN if name.count(".") >= 3 and name.startswith("colour")]
GRIDS = [
    {},
    {"nrow": 2, "padding": 1, "pad_value": 0.5},
    {"nrow": 3, "normalize": True},
    {"nrow": 3, "normalize": True, "scale_each": True, "padding": 0},
    {"nrow": 9, "normalize": True, "value_range": (-1, 1)},
]


def close(got, want):
    """uint8: cut off where the last bits of float32 differ, so by one at most and seldom."""
    assert got.dtype is want.dtype and got.shape == want.shape
    difference = (got.float() - want.float()).abs()
    if want.dtype is sf.uint8:
        assert difference.max() <= 1 and (difference > 0).float().mean() < 0.02
    else:
        assert difference.max() < 3e-6


@pytest.mark.parametrize("dtype, change, factor", [c[1:] for c in CHANGES])
def test_colours_are_torchvisions(dtype, change, factor):
    factor = float(factor)
    jitter = T.ColorJitter(**{change: (factor, factor)})
    close(jitter(GOLDEN[f"colour.{dtype}"]), GOLDEN[f"colour.{dtype}.{change}.{factor}"])


def test_colours_were_compared():
    assert len(CHANGES) == 18


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_grey_is_torchvisions(dtype):
    image, want = GOLDEN[f"colour.{dtype}"], GOLDEN[f"colour.{dtype}.grey"]
    close(T.Grayscale()(image), want)
    close(T.Grayscale(3)(image), sf.cat([want] * 3))
    close(T.RandomGrayscale(1.0)(image), sf.cat([want] * 3))
    assert (T.RandomGrayscale(0.0)(image) == image).all()


def test_jitter_is_random_by_seed_and_leaves_alpha():
    image = sf.randint(0, 256, (4, 8, 8), dtype=sf.uint8)
    jitter = T.ColorJitter(0.5, 0.5, 0.5, 0.5)
    first, again, other = jitter(image, 1), jitter(image, 1), jitter(image, 2)
    assert (first == again).all() and (first != other).any()
    assert (first[3] == image[3]).all() and (first[:3] != image[:3]).any()
    assert (
        repr(T.ColorJitter(0.5)) == "ColorJitter(brightness=(0.5, 1.5), contrast=(1, 1), saturation=(1, 1), hue=(0, 0))"
    )


def test_grey_images_keep_what_they_have_no_colour_for():
    image = sf.randint(0, 256, (1, 8, 8), dtype=sf.uint8)
    assert (T.ColorJitter(saturation=(3, 3), hue=(0.3, 0.3))(image) == image).all()


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: T.ColorJitter(brightness=-1), "brightness"),
        (lambda: T.ColorJitter(hue=0.7), "hue"),
        (lambda: T.ColorJitter(contrast=(2, 1)), "contrast"),
        (lambda: T.Grayscale(2), "num_output_channels"),
        (lambda: T.RandomGrayscale(1.5), "p must be"),
        (lambda: T.ColorJitter(0.5)(sf.zeros(5, 4, 4, dtype=sf.uint8)), "4 channels"),
        (lambda: T.Grayscale()(numpy.zeros((2, 2, 2, 2))), "H, W, C"),
    ],
)
def test_wrong_arguments_are_told(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_pictures_of_pillow_and_arrays_go_in():
    Image = pytest.importorskip("PIL.Image")
    pixels = numpy.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=numpy.uint8)
    picture = Image.fromarray(pixels)
    want = sf.from_numpy(pixels).permute(2, 0, 1)
    assert (T.PILToTensor()(picture) == want).all()
    assert sf.allclose(T.ToTensor()(picture), want.float() / 255)
    assert (T.ToTensor()(pixels) == T.ToTensor()(picture)).all()
    both = T.Compose([T.Resize((3, 4)), T.ToTensor()])
    assert (both(picture) == both(want)).all()
    assert T.ToTensor()(picture.convert("L")).shape == (1, 6, 9)
    assert T.ToTensor()(picture.convert("P")).shape == (3, 6, 9)
    assert T.ToTensor()(picture.convert("1")).shape == (1, 6, 9)
    with pytest.raises(TypeError, match="a picture of Pillow's"):
        T.ToTensor()("picture.png")


def test_pictures_of_pillow_come_out():
    Image = pytest.importorskip("PIL.Image")
    for channels, mode in ((1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")):
        image = sf.randint(0, 256, (channels, 5, 7), dtype=sf.uint8)
        picture = T.ToPILImage()(image)
        assert isinstance(picture, Image.Image) and picture.mode == mode and picture.size == (7, 5)
        assert (T.PILToTensor()(picture) == image).all()
        assert (T.PILToTensor()(T.ToPILImage()(image.float() / 255 + 1e-4)) == image).all()
    assert T.ToPILImage()(sf.zeros(5, 7)).mode == "L"
    assert T.ToPILImage("L")(sf.zeros(3, 5, 7)).mode == "L"
    assert T.ToPILImage()(numpy.zeros((5, 7, 3), dtype=numpy.uint8)).size == (7, 5)
    with pytest.raises(ValueError, match="1 to 4 channels"):
        T.ToPILImage()(sf.zeros(5, 4, 4))
    with pytest.raises(TypeError, match="uint8 or floating"):
        T.ToPILImage()(sf.zeros(3, 4, 4, dtype=sf.int64))


def test_lambda_is_any_function():
    composed = T.Compose([T.Lambda(lambda x: x.flip(1)), T.ToTensor()])
    image = sf.randint(0, 256, (3, 4, 5), dtype=sf.uint8)
    assert sf.allclose(composed(image), image.flip(1).float() / 255)
    with pytest.raises(TypeError, match="a function"):
        T.Lambda(3)


@pytest.mark.parametrize("number", range(len(GRIDS)))
def test_grids_are_torchvisions(number):
    images = GOLDEN["grid"]
    for got in (utils.make_grid(images, **GRIDS[number]), utils.make_grid(list(images), **GRIDS[number])):
        close(got, GOLDEN[f"grid.{number}"])
    close(utils.make_grid(images[:, :1], **GRIDS[number]), GOLDEN[f"grid.{number}.grey"])


def test_an_image_is_saved(tmp_path):
    images = sf.rand(4, 3, 6, 5)
    utils.save_image(images, tmp_path / "sheet.png", nrow=2)
    want = (utils.make_grid(images, nrow=2) * 255 + 0.5).clamp(0, 255).byte()
    assert (data.read_image(tmp_path / "sheet.png") == want).all()
    utils.save_image(images, tmp_path / "sheet", format="PNG", nrow=2)
    assert (tmp_path / "sheet").read_bytes() == (tmp_path / "sheet.png").read_bytes()
    there = io.BytesIO()
    utils.save_image(images, there, format="png", nrow=2)
    assert there.getvalue() == (tmp_path / "sheet.png").read_bytes()
    with pytest.raises(ValueError, match="format"):
        utils.save_image(images, there)
    with pytest.raises(ValueError, match="must be"):
        utils.make_grid(sf.zeros(1, 2, 3, 4, 5))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sheet", "sheet.png"]
