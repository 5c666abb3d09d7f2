"""LoRA in runs, in folders of several networks, and in calls that cannot be: what diffusers has no golden files for."""

import json
import shutil

import numpy as np
import pytest
from golden_pipelines import one_thread  # noqa: F401 (a fixture)
from lora_cases import FOLDER, PACKED
from test_lora import (
    GOLDEN,
    REFUSED,
    STYLE,
    WHOLE,
    assert_bytes,
    assert_is,
    bytes_of,
    levels_off,
    picture,
    pipeline,
    state_of,
    status,
)

import scaffolding as sf
from scaffolding.models import get_peft_model_state_dict, peft_config_of

HALF = {"cross_attention_kwargs": {"scale": 0.5}}

# ---- runs in steps


def started(pipe, **more):
    return pipe.start(generator=sf.Generator().manual_seed(0), output_type="np", **GOLDEN["call"], **more)


def finished(run):
    while not run.done:
        run.step()
    return run.finish().images


def test_a_run_in_steps_has_its_own_scale():
    pipe = pipeline()
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    assert_is(finished(started(pipe, **HALF)), "sd/half_by_call")
    assert_is(finished(started(pipe)), "sd/style")


def test_runs_that_take_turns_keep_their_scales():
    pipe = pipeline()
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    nothing = {"cross_attention_kwargs": {"scale": 0.0}}
    runs = {"sd/half_by_call": started(pipe, **HALF), "sd/style": started(pipe), "sd/bare": started(pipe, **nothing)}
    while not all(run.done for run in runs.values()):
        for run in runs.values():
            run.step()
        assert_is(picture(pipe), "sd/style")  # a whole call between the steps
    for name, run in runs.items():
        assert_is(finished(run), name)
    assert_is(picture(pipe), "sd/style")


def test_a_call_within_a_call_has_its_own_scale():
    pipe, seen = pipeline(), []
    pipe.load_lora_weights(str(STYLE), adapter_name="style")

    def look(pipe, step, timestep, tensors):
        if step == 0:
            seen.append(picture(pipe))
        return {}

    assert_is(picture(pipe, callback_on_step_end=look, **HALF), "sd/half_by_call")
    assert_is(seen[0], "sd/style")


def test_what_fails_within_a_call_leaves_the_strength():
    pipe = pipeline()
    pipe.load_lora_weights(str(STYLE), adapter_name="style")

    def fail(pipe, step, timestep, tensors):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        picture(pipe, callback_on_step_end=fail, **HALF)
    assert_is(picture(pipe), "sd/style")
    run = started(pipe, callback_on_step_end=fail, **HALF)
    with pytest.raises(ZeroDivisionError):
        run.step()
    assert_is(picture(pipe), "sd/style")


@pytest.mark.parametrize("scale, error", [("strong", TypeError), (float("nan"), ValueError), ([0.5], TypeError)])
def test_scales_that_are_none(scale, error):
    pipe = pipeline()
    with pytest.raises(error, match="StableDiffusionPipeline: the scale of cross_attention_kwargs must be"):
        picture(pipe, cross_attention_kwargs={"scale": scale})
    with pytest.raises(NotImplementedError, match="takes scale, and has no use for gligen"):
        picture(pipe, cross_attention_kwargs={"scale": 0.5, "gligen": {}})


# ---- a folder with a part for each network


@pytest.fixture
def of_peft(tmp_path):
    """As PEFT's save_pretrained writes unet and text_encoder into folders of one."""
    for component in ("unet", "text_encoder"):
        shutil.copytree(FOLDER / "sd" / f"peft_{component}", tmp_path / "lora" / component)
    return tmp_path / "lora"


def test_a_folder_of_folders_is_one_lora(of_peft):
    one_by_one, at_once = pipeline(), pipeline()
    for component in ("unet", "text_encoder"):
        one_by_one.load_lora_weights(str(FOLDER / "sd" / f"peft_{component}"), adapter_name=component)
    one_by_one.set_adapters(["unet", "text_encoder"])
    at_once.load_lora_weights(str(of_peft), adapter_name="both")
    assert at_once.get_list_adapters() == {"unet": ["both"], "text_encoder": ["both"]}
    made = picture(at_once)
    np.testing.assert_array_equal(made, picture(one_by_one))
    at_once.set_adapters("both", {"unet": 1.0, "text_encoder": 0.0})
    assert_is(picture(at_once), "sd/peft_unet")
    at_once.set_adapters("both", {"unet": 0.0, "text_encoder": 1.0})
    assert_is(picture(at_once), "sd/peft_text_encoder")
    at_once.set_adapters("both")
    at_once.load_lora_weights(str(STYLE), adapter_name="both", hotswap=True)
    assert_is(picture(at_once), "sd/style")
    at_once.load_lora_weights(str(of_peft), adapter_name="both", hotswap=True)
    np.testing.assert_array_equal(picture(at_once), made)
    state, alphas = type(at_once).lora_state_dict(str(of_peft))
    assert alphas is None and {key.partition(".")[0] for key in state} == {"unet", "text_encoder"}


def test_a_folder_of_folders_is_loaded_whole_or_not_at_all(of_peft):
    config = of_peft / "text_encoder" / "adapter_config.json"
    said, pipe = json.loads(config.read_text()), pipeline()
    bare = picture(pipe)
    for change, what in (
        ({"r": 7, "rank_pattern": {}}, "says rank 7"),
        ({"lora_alpha": 0}, "is 0"),
        ({"use_dora": True}, "DoRA"),
        ({"peft_type": "LOHA"}, "LOHA"),
    ):
        config.write_text(json.dumps(said | change))
        with pytest.raises((ValueError, NotImplementedError), match=what):
            pipe.load_lora_weights(str(of_peft))
        assert status(pipe) == {"active": [], "list": {}, "fused": []}
        np.testing.assert_array_equal(picture(pipe), bare)
    config.write_text(json.dumps(said))
    (of_peft / "text_encoder").rename(of_peft / "text_encoder_2")  # this pipeline has none
    with pytest.raises(ValueError, match="text_encoder_2"):
        pipe.load_lora_weights(str(of_peft))
    assert pipe.get_list_adapters() == {}
    pipe.load_lora_weights(str(of_peft), strict=False)
    assert pipe.get_list_adapters() == {"unet": ["default_0"]}


def test_the_only_file_of_a_folder(tmp_path):
    pipe = pipeline()
    with pytest.raises(ValueError, match="holds no LoRA; it would be"):
        pipe.load_lora_weights(str(tmp_path))
    shutil.copy(STYLE, tmp_path / "mine.safetensors")
    shutil.copy(WHOLE, tmp_path / "optimizer.safetensors")
    pipe.load_lora_weights(str(tmp_path))
    assert_is(picture(pipe), "sd/style")
    shutil.copy(WHOLE, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="2 files.*'mine.safetensors' and 'other.safetensors'; name one of them"):
        pipe.load_lora_weights(str(tmp_path), adapter_name="other")
    pipe.load_lora_weights(str(tmp_path), adapter_name="other", weight_name="other.safetensors")
    assert_is(picture(pipe), "sd/whole")


# ---- saving what is loaded


def save(pipe, adapter, folder):
    networks = {component: getattr(pipe, component) for component in pipe.get_list_adapters()}
    pipe.save_lora_weights(
        folder,
        **{f"{c}_lora_layers": get_peft_model_state_dict(model, adapter) for c, model in networks.items()},
        **{f"{c}_lora_adapter_metadata": peft_config_of(model, adapter) for c, model in networks.items()},
    )


@pytest.mark.parametrize("file", ["style", "whole_kohya", "alphas_kohya", "mid_kohya"])
def test_a_loaded_lora_can_be_saved(file, tmp_path):
    pipe, again = pipeline(), pipeline()
    pipe.load_lora_weights(str(FOLDER / "sd" / f"{file}.safetensors"), adapter_name="a")
    want, parts = picture(pipe), pipe.get_list_adapters()
    save(pipe, "a", tmp_path)
    with sf.safetensors.safe_open(str(tmp_path / "pytorch_lora_weights.safetensors"), "pt") as written:
        said = json.loads(written.metadata()["lora_adapter_metadata"])
        keys = [k for k in written.keys() if k.startswith("text_encoder.")]
    # With the prefix in keys, where diffusers takes it off, and without it in names, whose ends PEFT takes.
    assert all(k.startswith("text_encoder.text_model.") for k in keys)
    assert not any("text_model" in name for name in said.get("text_encoder.target_modules", ()))
    again.load_lora_weights(str(tmp_path))
    assert again.get_list_adapters().keys() == parts.keys() and np.abs(picture(again) - want).max() <= 1 / 255
    assert levels_off(want, picture(pipeline())) > 2


# ---- what cannot be


def test_adapters_go_where_their_network_is():
    pipe = pipeline()
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    pipe.set_lora_device(["style"], "cpu")
    want = picture(pipe)
    assert_is(want, "sd/style")
    with pytest.raises(ValueError, match="no adapter 'nobody'; there are style"):
        pipe.set_lora_device(["nobody"], "cpu")
    pipe.to(sf.bfloat16)
    assert levels_off(picture(pipe), want) < 12


@pytest.mark.parametrize(
    "weights",
    ["strong", float("nan"), {"unet": float("inf")}, {"vae": 1.0}, {"unet": {"up": {"block_0": ["strong", 1.0]}}},
     {"text_encoder": {"down": 1.0}}, [None, None], ["strong"]],
)  # fmt: skip
def test_weights_that_are_none(weights):
    """In the second network too: the first stays as it was."""
    pipe = pipeline()
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    pipe.set_adapters("style", 0.5)
    with pytest.raises((ValueError, TypeError)) as raised:
        pipe.set_adapters("style", weights)
    assert "set_adapters" in str(raised.value) and "\n" not in str(raised.value)
    assert_is(picture(pipe), "sd/half_by_weight")


def test_arguments_that_are_none():
    pipe = pipeline()
    bare, weights = picture(pipe), bytes_of(pipe)
    for given, keywords, error in (
        (str(STYLE), {"adapter_name": 7}, TypeError),
        (str(STYLE), {"adapter_name": ""}, ValueError),
        (str(STYLE), {"no_such_keyword": 1}, TypeError),
        (7, {}, TypeError),
        (None, {}, TypeError),
        ({"unet.a": "a"}, {}, (TypeError, ValueError)),
        (str(STYLE.with_name("nothing.safetensors")), {}, (RuntimeError, OSError)),
        (str(PACKED / "lora.json.xz"), {}, REFUSED),
        (str(PACKED.parent / "seamless.safetensors"), {}, ValueError),
    ):
        with pytest.raises(error) as raised:
            pipe.load_lora_weights(given, **keywords)
        assert str(raised.value) and "\n" not in str(raised.value), given
        assert status(pipe) == {"active": [], "list": {}, "fused": []}
    pipe.load_lora_weights(str(STYLE), adapter_name="style")
    for call in (
        lambda: pipe.fuse_lora(lora_scale=float("nan")),
        lambda: pipe.fuse_lora(components="vae"),
        lambda: pipe.delete_adapters(["style", "nobody"]),
        lambda: pipe.set_adapters(["style", "nobody"]),
    ):
        with pytest.raises(ValueError) as raised:
            call()
        assert "\n" not in str(raised.value)
        assert status(pipe)["active"] == ["style"]
    pipe.unload_lora_weights()
    np.testing.assert_array_equal(picture(pipe), bare)
    assert_bytes(pipe, weights)


def test_metadata_of_tensors_at_hand():
    """A dict of tensors says nothing of alphas by itself."""
    pipe, kept = pipeline(), {}
    with sf.safetensors.safe_open(str(STYLE), "pt") as file:
        kept = json.loads(file.metadata()["lora_adapter_metadata"])
    pipe.load_lora_weights(state_of(), metadata=kept)
    assert_is(picture(pipe), "sd/style")
    with pytest.raises(ValueError, match="says rank 5"):
        pipe.load_lora_weights(state_of(), adapter_name="b", metadata=kept | {"unet.r": 5, "unet.rank_pattern": {}})
    assert_is(picture(pipe), "sd/style")
