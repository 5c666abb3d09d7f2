"""LoRA as diffusers with PEFT have it: tests/golden/lora_cases.py says what the golden files hold. Files, strengths,
several at once, fusing, saving; and what ours promises besides: exactness, the old bytes, refusals that change nothing.
"""

import inspect
import json

import golden_pipelines
import lora_cases
import numpy as np
import pytest
from golden_pipelines import one_thread  # noqa: F401 (a fixture)
from hashed_weights import hashed_weight
from lora_cases import FOLDER, PACKED, take, weighted
from model_cases import arguments_of, outputs_of, thinned
from packed import unpacked
from pipeline_cases import PARTS_OF_A_LEVEL, sums_off
from signatures import parameters_of, unexplained

import scaffolding as sf
from scaffolding import diffusion, models

GOLDEN, NETWORKS = lora_cases.document(), lora_cases.networks()
TENSORS = sf.safetensors.load(unpacked(PACKED / "lora.safetensors.xz"))
CASES = {case["name"]: case for case in GOLDEN["cases"]}
OUTPUTS = {row["name"]: row for row in GOLDEN["outputs"]}
ERRORS = {row["name"]: row for row in GOLDEN["errors"]}
REFUSED = (ValueError, TypeError, RuntimeError, OSError)
STYLE, WHOLE = (FOLDER / "sd" / f"{name}.safetensors" for name in ("style", "whole"))


def fresh(name):
    """A part whose tensors no other test has."""
    if name not in NETWORKS:
        return golden_pipelines.part("stable_diffusion", name)
    class_name, config = NETWORKS[name]
    model = getattr(models, class_name).from_config(config)
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def pipeline(family="sd"):
    parts = {component: fresh(name) for component, name in GOLDEN["networks"][family].items()}
    return getattr(diffusion, GOLDEN["pipelines"][family])(**parts)


def taken(pipe, steps):
    for step in steps:
        take(pipe, step, sf.tensor)
    return pipe


def picture(pipe, **more):
    generator = sf.Generator().manual_seed(0)
    return pipe(generator=generator, output_type="np", **GOLDEN["call"], **more).images


def levels_off(a, b):
    """The mean by which pictures differ, in levels of 255."""
    return 255 * np.abs(a - b).mean()


def assert_is(got, name):
    """Within 1 of 255 of diffusers' picture."""
    of = CASES[name].get("same", name)
    assert list(got.shape) == CASES[of]["shape"]
    off = sums_off(got, TENSORS[of].numpy())
    assert off <= 1, f"{off:.2f} of 255"


def status(pipe):
    return {
        "active": pipe.get_active_adapters(),
        "list": pipe.get_list_adapters(),
        "fused": sorted(pipe.fused_loras),
    }


def tensors_of(pipe, component):
    """{name: float32 copy}, which holds every bit of a shorter type."""
    return {name: t.float().numpy().copy() for name, t in getattr(pipe, component).state_dict().items()}


def bytes_of(pipe):
    """Of every weight of the networks that adapters change."""
    networks = [c for c in pipe.components if c == "unet" or c.startswith("text_encoder")]
    return {(c, name): array.tobytes() for c in networks for name, array in tensors_of(pipe, c).items()}


def assert_bytes(pipe, before):
    """The same weights: of two tables of bytes, pytest would print all."""
    now = bytes_of(pipe)
    assert now.keys() == before.keys() and [name for name in now if now[name] != before[name]] == []


# ---- diffusers' cases


@pytest.mark.parametrize("name", CASES)
def test_the_picture_is_diffusers(name):
    case = CASES[name]
    pipe = taken(pipeline(case["family"]), case["steps"])
    assert status(pipe) == {key: case[key] for key in ("active", "list", "fused")}
    assert pipe.num_fused_loras == len(case["fused"])
    assert_is(picture(pipe, **case.get("call", {})), name)
    assert status(pipe) == {key: case[key] for key in ("active", "list", "fused")}


def test_golden_pictures_tell_adapters_apart():
    own = {name: TENSORS[name].numpy() / PARTS_OF_A_LEVEL for name, case in CASES.items() if "same" not in case}
    assert {case["family"] for case in CASES.values()} == set(GOLDEN["networks"]) and len(own) >= 25
    for name, a in own.items():
        assert all(np.abs(a - b).mean() > 8 for other, b in own.items() if other != name and a.shape == b.shape)


def output_of(pipe, row):
    def make(path, array, by_rule):
        return sf.tensor(array)

    with sf.no_grad():
        made = outputs_of(getattr(pipe, row["component"])(**arguments_of(row, make)), sf.Tensor)
    first = next(iter(made.values()))
    assert list(first.shape) == row["shape"]
    return thinned(row["name"], first.numpy())


def error_of(got, want):
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_adapter_adds_no_error_to_a_network(name):
    """Against y = Wx + s B(Ax) in float64."""
    row, pipe = OUTPUTS[name], pipeline(OUTPUTS[name]["family"])
    bare = error_of(output_of(pipe, row), TENSORS[f"{name}.bare"].numpy())
    got = output_of(taken(pipe, weighted(row["adapters"])), row)
    exact, theirs = (TENSORS[f"{name}.{kind}"].numpy() for kind in ("float64", "float32"))
    assert error_of(got, exact) <= 3 * bare + 1e-6
    assert error_of(got, theirs) <= 1e-5
    pipe.disable_lora()
    assert error_of(output_of(pipe, row), TENSORS[f"{name}.bare"].numpy()) == bare


@pytest.mark.parametrize("name", GOLDEN["adapters"])
def test_fused_weights_differ_by_what_peft_says(name):
    """Layers and norms of their updates; unfused they have their old bytes."""
    row, family = GOLDEN["adapters"][name], name.partition("/")[0]
    for file in row["files"]:
        pipe = pipeline(family)
        before, bytes_before = {c: tensors_of(pipe, c) for c in row["modules"]}, bytes_of(pipe)
        pipe.load_lora_weights(str(FOLDER / file), adapter_name="a")
        pipe.fuse_lora()
        for component, modules in row["modules"].items():
            updates = {k: t - before[component][k].astype(float) for k, t in tensors_of(pipe, component).items()}
            changed = {k: np.linalg.norm(update) for k, update in updates.items() if update.any()}
            assert set(changed) == {m + ".weight" for m in modules}
            for module, (_, _, norm) in modules.items():
                assert abs(changed[module + ".weight"] - norm) <= 1e-4 * norm, module
        assert pipe.get_list_adapters() == {component: ["a"] for component in row["modules"]}
        pipe.unfuse_lora()
        assert_bytes(pipe, bytes_before)


@pytest.mark.parametrize("name", ERRORS)
def test_what_diffusers_refuses(name):
    """With one sentence, and all is as it was; where diffusers says nothing, ours may say it or not."""
    row = ERRORS[name]
    pipe = taken(pipeline(row["family"]), row["steps"])
    before, made, weights = status(pipe), picture(pipe), bytes_of(pipe)
    if row["type"] is None:
        try:
            take(pipe, row["call"], sf.tensor)
        except REFUSED as error:
            assert "\n" not in str(error)
    else:
        with pytest.raises(REFUSED) as raised:
            take(pipe, row["call"], sf.tensor)
        assert str(raised.value) and "\n" not in str(raised.value)
    assert status(pipe) == before
    np.testing.assert_array_equal(picture(pipe), made)
    assert_bytes(pipe, weights)


@pytest.mark.parametrize("class_name", GOLDEN["signatures"])
def test_signatures(class_name):
    for method, theirs in GOLDEN["signatures"][class_name].items():
        ours = parameters_of(inspect.unwrap(getattr(getattr(diffusion, class_name), method)))
        wrong, stale = unexplained(ours, theirs, GOLDEN["differences"].get(method, {}))
        assert not wrong and not stale, (method, wrong, stale)


# ---- files


def tensors_and_metadata(path):
    with sf.safetensors.safe_open(str(path), "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()


@pytest.mark.parametrize("name", [row["name"] for row in GOLDEN["saved"]])
def test_saved_files_are_diffusers(name, tmp_path):
    row = next(r for r in GOLDEN["saved"] if r["name"] == name)
    cls = getattr(diffusion, GOLDEN["pipelines"][row["family"]])
    want, metadata = tensors_and_metadata(FOLDER / row["file"])
    state, alphas = cls.lora_state_dict(str(FOLDER / row["file"]))
    assert alphas is None and set(state) == set(want)
    adapters = json.loads(metadata["lora_adapter_metadata"])
    given = {}
    for component in {key.partition(".")[0] for key in state}:
        inside = len(component) + 1
        given[f"{component}_lora_layers"] = {k[inside:]: t for k, t in state.items() if k.startswith(component + ".")}
        given[f"{component}_lora_adapter_metadata"] = {
            k[inside:]: v for k, v in adapters.items() if k.startswith(component + ".")
        }
    cls.save_lora_weights(str(tmp_path), **given)
    written, said = tensors_and_metadata(tmp_path / "pytorch_lora_weights.safetensors")
    assert set(written) == set(want)
    for key, t in want.items():
        assert written[key].dtype is t.dtype and written[key].shape == t.shape, key
        np.testing.assert_array_equal(written[key].numpy(), t.numpy(), err_msg=key)
    assert said["format"] == "pt" and json.loads(said["lora_adapter_metadata"]) == adapters
    assert_is(picture(taken(pipeline(row["family"]), [["load_lora_weights", [str(tmp_path)], {}]])), name)
    with pytest.raises(REFUSED):
        cls.save_lora_weights(str(tmp_path))


def test_a_folder_and_a_dict_are_files_too():
    by_name = pipeline()
    by_name.load_lora_weights(str(FOLDER / "sd"), weight_name="style_kohya.safetensors")
    assert_is(picture(by_name), "sd/style")
    state, _ = tensors_and_metadata(STYLE.with_name("style_script.safetensors"))
    before, by_dict = {k: t.numpy().copy() for k, t in state.items()}, pipeline()
    by_dict.load_lora_weights(state)
    assert_is(picture(by_dict), "sd/style")
    assert list(state) == list(before) and all(np.array_equal(t.numpy(), before[k]) for k, t in state.items())


def test_another_adapter_takes_the_place_of_one():
    """Of other layers, ranks and alphas."""
    pipe = pipeline()
    pipe.load_lora_weights(str(STYLE), adapter_name="a")
    for file, want in (("whole_kohya", "whole"), ("convs", "convs"), ("style_original", "style")):
        pipe.load_lora_weights(str(FOLDER / "sd" / f"{file}.safetensors"), adapter_name="a", hotswap=True)
        assert_is(picture(pipe), f"sd/{want}")
    assert pipe.get_active_adapters() == ["a"]


def test_one_pipeline_goes_through_it_all():
    """What was made of a prompt before is not kept beyond a change of the text encoder."""
    pipe = pipeline()
    bare = picture(pipe)
    assert_is(bare, "sd/bare")
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    assert_is(picture(pipe), "sd/style")
    pipe.set_adapters("style", 0.5)
    assert_is(picture(pipe), "sd/half_by_weight")
    pipe.load_lora_weights(str(WHOLE), adapter_name="whole")
    pipe.set_adapters(["style", "whole"], [0.7, 0.4])
    assert_is(picture(pipe), "sd/two")
    assert_is(picture(pipe, cross_attention_kwargs={"scale": 0.5}), "sd/two_by_call")
    assert_is(picture(pipe), "sd/two")
    pipe.disable_lora()
    np.testing.assert_array_equal(picture(pipe), bare)
    pipe.enable_lora()
    assert_is(picture(pipe), "sd/two")
    pipe.delete_adapters("whole")
    pipe.set_adapters("style", {"unet": 1.0, "text_encoder": 0.0})
    assert_is(picture(pipe), "sd/unet_alone")
    pipe.unload_lora_weights()
    np.testing.assert_array_equal(picture(pipe), bare)


def test_pipelines_of_the_same_networks_share_adapters():
    pipe = pipeline()
    other = diffusion.StableDiffusionImg2ImgPipeline(**pipe.components)
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    assert other.get_list_adapters() == pipe.get_list_adapters() == {"unet": ["style"], "text_encoder": ["style"]}
    other.set_adapters("style", 0.5)
    assert_is(picture(pipe), "sd/half_by_weight")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_networks_of_fewer_bits(dtype):
    pipe, wide = pipeline(), pipeline()
    for component in ("unet", "text_encoder"):
        getattr(pipe, component).to(getattr(sf, dtype))
    bare = levels_off(picture(pipe), picture(wide))
    weights = bytes_of(pipe)
    for each in (pipe, wide):
        each.load_lora_weights(str(STYLE), adapter_name="style")
    beside, want = picture(pipe), picture(wide)
    assert_is(want, "sd/style")
    assert levels_off(beside, want) <= 2 * bare + 1
    pipe.fuse_lora()
    assert pipe.unet.dtype is getattr(sf, dtype)
    assert levels_off(picture(pipe), want) <= 2 * bare + 1
    pipe.unfuse_lora()
    assert_bytes(pipe, weights)
    np.testing.assert_array_equal(picture(pipe), beside)


# ---- files that do not fit


def state_of(path=STYLE):
    return tensors_and_metadata(path)[0]


def without(state, end):
    return {k: t for k, t in state.items() if k != next(n for n in state if n.endswith(end))}


def changed(state, end, change):
    name = next(n for n in state if n.endswith(end))
    return {k: change(t) if k == name else t for k, t in state.items()}


def not_a_number(t):
    values = t.float().numpy().copy()
    values.reshape(-1)[3] = np.nan
    return sf.tensor(values)


LAYER = "unet.mid_block.attentions.0.transformer_blocks.7.attn1.to_q.lora_"
BAD = {
    "NaN": lambda: changed(state_of(), "to_q.lora_B.weight", not_a_number),
    "A without B": lambda: without(state_of(), "to_q.lora_B.weight"),
    "B without A": lambda: without(state_of(), "to_q.lora_A.weight"),
    "alpha 0": lambda: changed(state_of(STYLE.with_name("style_kohya.safetensors")), ".alpha", lambda t: t * 0),
    "alpha of several numbers": lambda: changed(
        state_of(STYLE.with_name("style_kohya.safetensors")), ".alpha", lambda t: sf.ones(2)
    ),
    "other inputs": lambda: changed(state_of(), "to_q.lora_A.weight", lambda t: t[:, :-1].contiguous()),
    "other outputs": lambda: changed(state_of(), "to_q.lora_B.weight", lambda t: t[:-1].contiguous()),
    "two ranks": lambda: changed(state_of(), "to_q.lora_A.weight", lambda t: t[:1].contiguous()),
    "no rank": lambda: changed(state_of(), "to_q.lora_A.weight", lambda t: t[:0].contiguous()),
    "a vector": lambda: changed(state_of(), "to_q.lora_A.weight", lambda t: t.reshape(-1)),
    "a layer that is not there": lambda: state_of()
    | {LAYER + "A.weight": sf.ones(2, 32), LAYER + "B.weight": sf.ones(32, 2)},
    "a key of nothing": lambda: state_of() | {"lora_of.something": sf.ones(2)},
    "of another base": lambda: state_of(FOLDER / "xl" / "style.safetensors"),
    "a checkpoint": lambda: {
        f"unet.{k}": t for k, t in golden_pipelines.part("stable_diffusion", "unet").state_dict().items()
    },
    "nothing": lambda: {},
}


@pytest.mark.parametrize("kind", BAD)
def test_what_does_not_fit_is_refused_whole(kind):
    pipe = pipeline()
    bare, weights = picture(pipe), bytes_of(pipe)
    with pytest.raises(REFUSED) as raised:
        pipe.load_lora_weights(BAD[kind](), adapter_name="bad")
    assert 20 < len(str(raised.value)) and "\n" not in str(raised.value)
    assert status(pipe) == {"active": [], "list": {}, "fused": []}
    np.testing.assert_array_equal(picture(pipe), bare)
    pipe.load_lora_weights(str(STYLE), adapter_name="bad")  # the name is free
    assert_is(picture(pipe), "sd/style")
    with pytest.raises(REFUSED):
        pipe.load_lora_weights(BAD[kind](), adapter_name="bad", hotswap=True)
    assert_is(picture(pipe), "sd/style")
    pipe.unload_lora_weights()
    assert_bytes(pipe, weights)


@pytest.mark.parametrize("kind", ["a layer that is not there", "a key of nothing"])
def test_what_is_left_over_may_be_left_out(kind):
    state = state_of(STYLE.with_name("style_script.safetensors"))  # a dict has no metadata, and this one needs none
    left_over = {k: t for k, t in BAD[kind]().items() if k not in state_of()}
    pipe = pipeline()
    pipe.load_lora_weights(state | left_over, adapter_name="style", strict=False)
    assert_is(picture(pipe), "sd/style")


HOSTILE = ["", "{", "[]", '{"unet.r": "two"}', '{"unet.r": -1}', '{"unet.rank_pattern": {"(": 2}}', '{"unet.r": 1e400}']


@pytest.mark.parametrize("text", HOSTILE)
def test_metadata_that_says_nothing_of_use(text, tmp_path):
    path = tmp_path / "bad.safetensors"
    sf.safetensors.save_file(state_of(), path, {"format": "pt", "lora_adapter_metadata": text})
    pipe = pipeline()
    try:
        pipe.load_lora_weights(str(path), adapter_name="bad")
    except REFUSED as error:
        assert "\n" not in str(error) and status(pipe) == {"active": [], "list": {}, "fused": []}
        assert_is(picture(pipe), "sd/bare")
    else:
        assert np.isfinite(picture(pipe)).all()


def test_a_layer_that_has_two_names_in_one_file():
    state = state_of()
    other = "unet.up_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_q_lora."
    state |= {other + "down.weight": sf.ones(2, 32), other + "up.weight": sf.ones(32, 2)}
    pipe = pipeline()
    with pytest.raises(REFUSED, match="to_q"):
        pipe.load_lora_weights(state, adapter_name="bad")
    assert pipe.get_list_adapters() == {}
