"""Pictures in Python: scaffolding.data.read_image and its kin."""

import hashlib

import folders
import numpy
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding import data

GOLDEN = folders.GOLDEN / "data"


def noise(*shape, seed=0):
    return sf.tensor(numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8))


def test_what_is_written_is_read(tmp_path):
    x = noise(4, 5, 6)
    data.write_image(tmp_path / "x.png", x, text={"parameters": "a 猫"})
    assert (data.read_image(tmp_path / "x.png") == x).all()
    assert data.read_image(str(tmp_path / "x.png"), "RGB").shape == (3, 5, 6)
    info = data.image_info(tmp_path / "x.png")
    assert info["text"] == {"parameters": "a 猫"}
    assert (info["format"], info["width"], info["height"], info["mode"], info["bits"]) == ("PNG", 6, 5, "RGBA", 8)
    packed = data.encode_image(x, "webp", lossless=True)
    assert isinstance(packed, bytes) and (data.decode_image(packed) == x).all()
    assert data.image_info(packed)["format"] == "WebP"
    assert data.read_image(tmp_path / "x.png").is_contiguous()


def test_errors_name_the_file(tmp_path):
    with pytest.raises(RuntimeError, match="nowhere.png: cannot open"):
        data.read_image("nowhere.png")
    path = tmp_path / "cut.png"
    path.write_bytes(data.encode_image(noise(3, 9, 9), "png")[:50])
    with pytest.raises(ValueError, match="cut.png: is no whole PNG picture"):
        data.read_image(path)
    with pytest.raises(ValueError, match="mode must be"):
        data.read_image(path, "CMYK")
    with pytest.raises(ValueError, match="more than the 80 that are allowed"):
        data.decode_image(data.encode_image(noise(3, 9, 9), "png"), max_pixels=80)
    with pytest.raises(TypeError, match="uint8"):
        data.write_image(path, sf.rand(3, 4, 4))


def test_pngsuite_decodes_to_pillows_pixels():
    if not (folders.SHARED / "pngsuite").exists():
        pytest.skip(f"no PngSuite in {folders.SHARED}")
    golden = read_json(GOLDEN / "pngsuite.json.xz")
    golden.pop("made_by")
    assert len(golden) == 161
    wrong = []
    for name, want in golden.items():
        path = folders.SHARED / "pngsuite" / "png" / name
        if "grey16" in want:
            x = data.read_image(path, bits=16, apply_exif_orientation=False)[:1]
            got = hashlib.sha256(x.permute(1, 2, 0).numpy().astype("<u2").tobytes()).hexdigest() == want["grey16"]
        else:
            x = data.read_image(path, "RGBA", apply_exif_orientation=False)
            got = hashlib.sha256(x.permute(1, 2, 0).contiguous().numpy().tobytes()).hexdigest() == want["rgba"]
        if not got or [x.shape[2], x.shape[1]] != want["size"]:
            wrong.append(name)
    # Pillow does not widen the transparent grey of a 4-bit picture as it widens the pixels,
    # and finds none that is transparent.
    assert wrong == ["tbbn0g04.png"]


def test_transforms_alone_follow_the_default_generator():
    T = data.transforms
    crop, x = T.RandomCrop(3), noise(3, 20, 20)
    sf.manual_seed(4)
    first = [crop(x) for _ in range(3)]
    sf.manual_seed(4)
    assert all((crop(x) == f).all() for f in first)
    assert (crop(x, seed=9) == crop(x, 9)).all()
    y = T.Compose([T.Resize(8), T.CenterCrop((6, 4)), T.ToFloat(), T.Normalize(0.5, 0.5)])(x)
    assert y.shape == (3, 6, 4) and y.dtype == sf.float32 and y.min() >= -1 and y.max() <= 1
    assert T.Compose([T.Resize(8), lambda image: image[:1]])(x).shape == (1, 8, 8)
    assert "Resize(8)" in repr(T.Resize(8))
    with pytest.raises(ValueError, match="with alpha"):
        T.Composite()(x)
    with pytest.raises(ValueError, match="p must be 0 to 1"):
        T.RandomHorizontalFlip(2)
