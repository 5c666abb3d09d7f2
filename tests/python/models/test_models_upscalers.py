"""What networks that enlarge pictures have of their own: files under three programs' names, tiles, pictures of every
kind, refusals. Their numbers, keys and dtypes: test_every_model.py.

What spandrel makes of the files is written by tests/golden/make_golden_models_upscalers.py.
"""

import numpy as np
import pytest
from hashed_weights import hashed_weight
from model_cases import FOLDER, arguments_of, away, families
from packed import unpacked
from upscaler_names import bsrgan_name, old_name

import scaffolding as sf
from scaffolding.models import RRDBNet, SRVGGNetCompact, load_upscaler, upscale

FILE = families()["upscalers"]
EXTRA = FILE["extra"]
GOLDEN = sf.safetensors.load(unpacked(FOLDER / "models" / "upscalers.safetensors.xz"))
CASES = {case["name"]: case for case in FILE["cases"]}
CLASSES = {"RRDBNet": RRDBNet, "SRVGGNetCompact": SRVGGNetCompact}


def filled(cls, **config):
    model = cls(**config).eval()
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model


def of_case(name):
    return filled(CLASSES[CASES[name]["class"]], **CASES[name]["config"])


def renamed(state, layout, model):
    """As another program's file has the tensors."""
    if layout == "old":
        return {old_name(k, model.config["num_block"], model.config["num_upsample"]): t for k, t in state.items()}
    return {bsrgan_name(k): t for k, t in state.items()} if layout == "bsrgan" else state


def picture(height, width, channels=3):
    rows, columns = np.mgrid[:height, :width]
    return np.stack(
        [(40 * k + 5 * rows + 3 * columns + (rows * columns * (k + 2)) % 37) % 256 for k in range(channels)], -1
    ).astype(np.uint8)


# ---- files


def saved(path, tensors):
    if path.suffix == ".safetensors":
        sf.safetensors.save_file({k: t.contiguous() for k, t in tensors.items()}, path)
    else:
        sf.save(tensors, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("layout", ["real", "old", "bsrgan"])
def test_a_file_under_each_programs_names_gives_spandrels_pictures(layout, suffix, tmp_path):
    model = of_case("x4")
    path = saved(tmp_path / f"model{suffix}", renamed(dict(model.state_dict()), layout, model))
    x = arguments_of(CASES["x4"], lambda name, array, by_rule: sf.tensor(array))["x"]
    want = GOLDEN["x4/output"].numpy()
    for model in (load_upscaler(path), RRDBNet.from_single_file(path)):
        assert type(model) is RRDBNet and not model.training
        with sf.no_grad():
            assert away("x4/output", model(x).numpy(), want) <= 1e-5


@pytest.mark.parametrize("name", EXTRA["files"])
def test_what_a_file_is_follows_from_its_tensors(name, tmp_path):
    found = EXTRA["files"][name]
    model = filled(CLASSES[found["class"]], **found["config"])
    state = renamed(dict(model.state_dict()), name.partition(", ")[2], model)
    read = load_upscaler(
        saved(tmp_path / "model.pth", {"params": {k: t * 0 for k, t in state.items()}, "params_ema": state})
    )
    assert type(read) is type(model)
    assert {k: v for k, v in model.config.items() if k != "_use_default_values"}.items() <= dict(read.config).items()
    ours = model.state_dict()
    assert all(sf.equal(t, ours[k]) for k, t in read.state_dict().items())  # averaged ones, where both are
    scale = read.config["scale" if type(read) is RRDBNet else "upscale"]
    sizes = (
        f"{read.config['num_feat']}nf",
        (f"{read.config['num_block']}nb" if type(read) is RRDBNet else f"{read.config['num_conv']}nc"),
    )
    assert scale == found["scale"] and set(sizes) <= set(found["tags"])
    assert [read.config["num_in_ch"], read.config["num_out_ch"]] == found["channels"]


def test_leaky_slopes_are_said_by_a_config(tmp_path):
    model = of_case("leakyrelu")
    path = saved(tmp_path / "model.pth", dict(model.state_dict()))
    assert load_upscaler(path).config["act_type"] == "relu"
    read = SRVGGNetCompact.from_single_file(path, config=dict(model.config))
    assert read.config["act_type"] == "leakyrelu"
    x = sf.rand(1, 3, 6, 5)
    with sf.no_grad():
        assert sf.equal(read(x), model(x)) and not sf.equal(load_upscaler(path)(x), model(x))


def broken(state, change):
    state = dict(state)
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda s: s.pop("conv_hr.bias"), ValueError, "conv_hr.bias"),
        (lambda s: s.update({"conv_third.weight": sf.zeros(2)}), ValueError, "no layer for the tensor 'conv_third"),
        (lambda s: s.update({"conv_first.weight": sf.zeros(16, 3, 3)}), ValueError, r"must be \[O, C, 3, 3\]"),
        (lambda s: s.update({"conv_first.weight": sf.zeros(0, 3, 3, 3)}), ValueError, r"must be \[O, C, 3, 3\]"),
        (lambda s: s.update({"conv_body.weight": sf.zeros(16, 16, 5, 5)}), ValueError, "conv_body.weight"),
        (lambda s: s.update({"body.0.rdb2.conv3.weight": sf.zeros(32, 96, 3, 3)}), ValueError, "body.0.rdb2.conv3"),
        (lambda s: s.pop("conv_last.weight"), ValueError, "conv_last.weight"),
        (lambda s: s.update({"body.0.rdb1.conv1x1.weight": sf.zeros(3)}), NotImplementedError, r"ESRGAN\+"),
        (lambda s: s.clear() or s.update(a=sf.zeros(3)), ValueError, "no file of ESRGAN or Real-ESRGAN"),
    ],
)
def test_files_that_do_not_fit_are_refused(change, error, says, tmp_path):
    path = saved(tmp_path / "model.safetensors", broken(of_case("x4").state_dict(), change))
    with pytest.raises(error, match=says):
        load_upscaler(path)


def test_a_file_of_many_blocks_and_no_tensors_for_them_is_refused_at_once(tmp_path):
    state = {f"body.{i}.rdb1.conv1.weight": sf.zeros(1, 1, 3, 3) for i in range(2000)}
    state |= {"conv_first.weight": sf.zeros(1, 3, 3, 3), "conv_last.weight": sf.zeros(3, 1, 3, 3)}
    with pytest.raises(ValueError, match="num_block must be between 1 and 1000"):
        load_upscaler(saved(tmp_path / "model.safetensors", state))


@pytest.mark.parametrize(
    ("cls", "config", "says"),
    [
        (RRDBNet, {"scale": 3}, "scale must be a power of two"),
        (RRDBNet, {"scale": 8}, "scale must be a power of two"),
        (RRDBNet, {"num_upsample": 5}, "num_upsample must be 0 to 4"),
        (RRDBNet, {"num_block": 0}, "num_block must be between"),
        (RRDBNet, {"num_feat": 1 << 40}, "num_feat must be between"),
        (SRVGGNetCompact, {"upscale": 0}, "upscale must be 1 to 16"),
        (SRVGGNetCompact, {"num_conv": -1}, "num_conv must be between"),
        (SRVGGNetCompact, {"act_type": "tanh"}, "act_type must be prelu, relu or leakyrelu"),
        (SRVGGNetCompact, {"num_in_ch": 4}, "num_out_ch must be num_in_ch"),
    ],
)
def test_impossible_configs_are_refused(cls, config, says):
    with sf.device("meta"), pytest.raises(ValueError, match=says):
        cls(**config)


# ---- the same with and without gradients: in place, and as a composition


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (RRDBNet, {"num_feat": 32, "num_block": 2, "num_grow_ch": 16}),
        (RRDBNet, {"num_feat": 16, "num_block": 2, "scale": 2}),
        (RRDBNet, {"num_feat": 16, "num_block": 1, "num_grow_ch": 8}),  # channels that no kernel takes
        (RRDBNet, {"num_feat": 16, "num_block": 1, "num_upsample": 0, "scale": 1}),
        (SRVGGNetCompact, {"num_feat": 32, "num_conv": 3}),
        (SRVGGNetCompact, {"num_feat": 32, "num_conv": 2, "act_type": "leakyrelu", "upscale": 2}),
    ],
)
def test_ways_through_the_network_agree(cls, config):
    model = filled(cls, **config)
    for size in ((1, 3, 20, 26), (2, 3, 34, 9)):
        x = sf.rand(*size)
        kept = x.clone()
        with sf.no_grad():
            fast = model(x)
        slow = model(x).detach()
        assert fast.shape == slow.shape and sf.equal(x, kept)
        assert (fast - slow).abs().max().item() <= 2e-5 * slow.abs().max().item()


def test_hooks_see_every_call():
    model, seen = filled(RRDBNet, num_feat=16, num_block=2), []
    for name, module in model.named_modules():
        if name.endswith("conv5") or name.endswith("rdb2"):
            module.register_forward_hook(lambda m, args, y, name=name: seen.append(name))
    with sf.no_grad():
        model(sf.rand(1, 3, 16, 16))
    assert len(seen) == 8 and len(set(seen)) == 8


# ---- pictures


@pytest.fixture(scope="module")
def model():
    return filled(RRDBNet, num_feat=16, num_block=1)


def test_tiles_that_see_as_far_as_the_network_give_the_whole_picture(model):
    x = sf.tensor(picture(45, 53).transpose(2, 0, 1)[None].astype(np.float32) / 255)
    whole = upscale(model, x, tile=0)
    assert whole.shape == (1, 3, 180, 212)
    told = []
    far = upscale(model, x, tile=16, overlap=24, progress=lambda done, tiles: told.append((done, tiles)))
    assert told == [(i + 1, 12) for i in range(12)]
    assert (far - whole).abs().max().item() < 1e-5
    near, bare = (
        (upscale(model, x, tile=16, overlap=overlap) - whole).abs().max().item() for overlap in (8, 0)
    )  # the network sees 20 pixels far, and the last of them change little
    assert near < 0.02 < bare


@pytest.mark.parametrize("scale", [1, 2])
def test_tiles_begin_where_blocks_of_pixels_do(scale):
    model = filled(RRDBNet, num_feat=16, num_block=1, scale=scale)
    x = sf.rand(1, 3, 70, 55)
    whole = upscale(model, x, tile=0)
    assert whole.shape == (1, 3, 70 * scale, 55 * scale)
    assert (upscale(model, x, tile=17, overlap=101) - whole).abs().max().item() < 1e-5


def test_the_result_is_of_the_pictures_kind(model):
    Image = pytest.importorskip("PIL.Image")

    bytes_ = picture(12, 17)
    large = upscale(model, bytes_)
    assert large.dtype == np.uint8 and large.shape == (48, 68, 3)
    image = upscale(model, Image.fromarray(bytes_))
    assert image.mode == "RGB" and image.size == (68, 48)
    np.testing.assert_array_equal(np.asarray(image), large)
    tensor = upscale(model, sf.tensor(bytes_.transpose(2, 0, 1).copy()))
    np.testing.assert_array_equal(tensor.numpy().transpose(1, 2, 0), large)
    floats = upscale(model, bytes_ / 255)
    assert floats.dtype == np.float64
    np.testing.assert_array_equal(np.round(floats.astype(np.float32) * 255), large)
    unit = upscale(model, sf.tensor((bytes_ / 255).astype(np.float32).transpose(2, 0, 1).copy()))
    np.testing.assert_array_equal(unit.numpy().transpose(1, 2, 0), floats.astype(np.float32))
    grey = upscale(model, bytes_[:, :, 0])
    assert grey.shape == (48, 68)
    np.testing.assert_array_equal(np.asarray(upscale(model, Image.fromarray(bytes_[:, :, 0]))), grey)
    palette = upscale(model, Image.fromarray(bytes_).convert("P"))
    assert palette.mode == "RGB" and palette.size == (68, 48)


def test_alpha_is_enlarged_beside_the_colours(model):
    Image = pytest.importorskip("PIL.Image")

    both = picture(12, 17, 4)
    large = np.asarray(upscale(model, Image.fromarray(both, "RGBA")))
    assert large.shape == (48, 68, 4)
    np.testing.assert_array_equal(large[:, :, :3], upscale(model, both[:, :, :3]))
    np.testing.assert_array_equal(large[:, :, 3], upscale(model, both[:, :, 3]))
    assert np.asarray(upscale(model, Image.fromarray(both[:, :, :2], "LA"))).shape == (48, 68, 2)


def test_what_is_no_picture_is_refused(model):
    with pytest.raises(TypeError, match="picture must be a PIL image, an array or a tensor, got list"):
        upscale(model, [[1, 2]])
    with pytest.raises(TypeError, match="uint8 or floating, got int64"):
        upscale(model, np.zeros((4, 4, 3), int))
    with pytest.raises(ValueError, match="with 1 to 4 channels"):
        upscale(model, np.zeros((4, 4, 5), np.uint8))
    with pytest.raises(ValueError, match="must be"):
        upscale(model, np.zeros((0, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="at least 16"):
        upscale(model, picture(8, 8), tile=3)
    with pytest.raises(ValueError, match="overlap must be at least 0"):
        upscale(model, picture(8, 8), overlap=-1)
    with pytest.raises(ValueError, match="enlarges pictures"):
        upscale(sf.models.AutoencoderTiny(), picture(8, 8))


def test_a_callback_may_end_it(model):
    def stop(done, tiles):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upscale(model, picture(40, 40), tile=16, progress=stop)


def test_other_dtypes_are_near(model):
    bytes_, want = picture(20, 24), upscale(model, picture(20, 24)).astype(int)
    half = filled(RRDBNet, num_feat=16, num_block=1).to(sf.bfloat16)
    assert np.abs(upscale(half, bytes_).astype(int) - want).mean() < 2
