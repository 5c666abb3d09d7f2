"""Every pipeline class against diffusers: pictures, folders, single files, dtypes, output types, callbacks, signatures.

The classes are DiffusionPipeline's in scaffolding.diffusion; what they must make stands in tests/golden/pipelines, one
file for a family, written by its make_golden_pipelines_*.py (tests/golden/pipeline_fixture.py says how). A class
without one fails here by name. What one family has is in test_pipeline*.py."""

import inspect
import json
import re

import numpy as np
import pytest
from golden_pipelines import (
    CASES,
    FAMILIES,
    assert_is,
    images_of,
    one_thread,  # noqa: F401 (a fixture)
    output_of,
    pipeline_of,
    run,
)
from hashed_weights import hashed
from pipeline_cases import levels_of, sums_off
from signatures import parameters_of, unexplained

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import DiffusionPipeline
from scaffolding.models import ModelMixin

CLASSES = {
    n: c
    for n, c in vars(diffusion).items()
    if isinstance(c, type) and issubclass(c, DiffusionPipeline) and c is not DiffusionPipeline
}
GOLDEN = {
    name: {**entry, "family": family} for family, file in FAMILIES.items() for name, entry in file["pipelines"].items()
}
FIRST = {}
for _case in CASES.values():
    FIRST.setdefault(_case["pipeline"], _case)
classes = pytest.mark.parametrize("name", [n for n in CLASSES if n in FIRST])


def made(name):
    case = FIRST[name]
    return pipeline_of(case, case["family"]), case


@pytest.mark.parametrize("name", CLASSES)
def test_it_has_golden_files(name):
    assert name in GOLDEN and name in FIRST, (
        f"no file of tests/golden/pipelines/ has {name}: run its tests/golden/make_golden_pipelines_*.py with a Python "
        "that has torch and diffusers "
        "(tools/new_model.py writes such a script, tests/golden/pipeline_fixture.py says what goes into one)"
    )


def test_golden_files_are_of_pipelines_that_there_are():
    assert set(GOLDEN) <= set(CLASSES)


def test_a_wrong_level_anywhere_is_seen_in_the_sums_of_golden_files():
    right = (hashed("right", (2, 15, 20, 3)) + 1) / 2
    want = levels_of(right)
    assert sums_off(right, want) < 0.1
    for at in range(0, right.size, 7):
        wrong = right.copy()
        wrong.flat[at] += 2 / 255
        assert sums_off(wrong, want) == pytest.approx(2, abs=0.1)
    for wrong in (right + np.float32(1 / 255), np.roll(right, 1, 2), right[:, :, ::-1], right[..., ::-1]):
        assert sums_off(wrong, want) > 3


@pytest.mark.filterwarnings("ignore:.*was cut off")
@pytest.mark.parametrize("name", CASES)
def test_the_picture_is_diffusers(name):
    assert_is(name, run(CASES[name]))


# ---- files


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@classes
def test_folders_there_and_back(name, tmp_path):
    pipe, case = made(name)
    want = images_of(pipe, case)
    pipe.save_pretrained(tmp_path / "a")
    index = json.loads((tmp_path / "a" / "model_index.json").read_text())
    assert index["_class_name"] == name
    have = {
        component: row
        for component, row in GOLDEN[name]["index"].items()
        if case["components"].get(component) is not None
    }
    assert {component: index[component] for component in have} == have
    for cls in (DiffusionPipeline, CLASSES[name]):
        again = cls.from_pretrained(tmp_path / "a")
        assert type(again) is CLASSES[name] and again.config == pipe.config
        np.testing.assert_array_equal(images_of(again, case), want)
    again.save_pretrained(tmp_path / "b")
    assert files_of(tmp_path / "b") == files_of(tmp_path / "a")


def networks_of(pipe):
    return {n: c for n, c in pipe.components.items() if isinstance(c, ModelMixin)}


def kinds_of(pipe):
    """Kinds of checkpoints in one file that are made of a pipeline's networks."""
    classes = {n: type(c).__name__ for n, c in networks_of(pipe).items()}
    for kind, (_, _, parts) in sf._core._single_file_kinds().items():
        if {n: cls for n, (_, cls, _) in parts.items() if n != "scheduler"} == classes:
            yield kind


@pytest.mark.filterwarnings("ignore:.*not known here")
@classes
def test_single_files_there_and_back(name, tmp_path):
    pipe, case = made(name)
    kind = next(kinds_of(pipe), None)
    if kind is None:
        pytest.skip("no kind of checkpoint in one file has these networks")
    want = images_of(pipe, case)
    pipe.save_pretrained(tmp_path / "folder")
    parts = {n: dict(m.state_dict()) for n, m in networks_of(pipe).items()}
    written = sf._core._to_single_file(kind, parts, {n: dict(m.config) for n, m in networks_of(pipe).items()})
    sf.safetensors.save_file({k: t.contiguous().clone() for k, t in written.items()}, tmp_path / "model.safetensors")
    again = CLASSES[name].from_single_file(
        tmp_path / "model.safetensors", config=tmp_path / "folder", **case["options"]
    )
    assert type(again) is CLASSES[name] and {n: type(c) for n, c in again.components.items()} == {
        n: type(c) for n, c in pipe.components.items()
    }
    np.testing.assert_allclose(images_of(again, case), want, atol=1e-5)


@classes
def test_one_file_brings_all_that_is_needed(name, tmp_path, monkeypatch):
    """Whatever the class: configs and tokenizers travel in the metadata."""
    pipe, case = made(name)
    want = images_of(pipe, case)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pipe.save_single_file(tmp_path / "one.safetensors")
    for cls in (DiffusionPipeline, CLASSES[name]):
        again = cls.from_single_file(tmp_path / "one.safetensors")
        assert type(again) is CLASSES[name] and again.config == pipe.config
        np.testing.assert_array_equal(images_of(again, case), want)
    again.save_single_file(tmp_path / "two.safetensors")
    assert (tmp_path / "two.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()
    pipe.save_single_file(tmp_path / "half.safetensors", torch_dtype=sf.bfloat16)
    half = CLASSES[name].from_single_file(tmp_path / "half.safetensors")
    assert all(m.dtype is sf.bfloat16 for m in networks_of(half).values())


# ---- dtypes, other classes


@classes
@pytest.mark.parametrize("dtype", [sf.bfloat16, sf.float16], ids=str)
def test_casting_reaches_every_network(name, dtype, monkeypatch):
    monkeypatch.setattr("golden_pipelines.made_networks", {})  # those of other tests stay as they are
    pipe, case = made(name)
    want = images_of(pipe, case)
    assert pipe.to(dtype) is pipe and pipe.dtype is dtype
    assert networks_of(pipe) and all(m.dtype is dtype for m in networks_of(pipe).values())
    got = images_of(pipe, case)
    assert np.isfinite(got).all() and np.abs(got - want).mean() < 0.05


@classes
def test_loading_in_a_dtype(name, tmp_path):
    pipe, _ = made(name)
    pipe.save_pretrained(tmp_path)
    half = CLASSES[name].from_pretrained(tmp_path, torch_dtype=sf.bfloat16)
    assert all(m.dtype is sf.bfloat16 for m in networks_of(half).values()) and half.dtype is sf.bfloat16


@classes
@pytest.mark.parametrize("other", CLASSES)
def test_another_class_shares_the_parts_or_says_what_is_missing(name, other):
    pipe, case = made(name)
    try:
        shared = CLASSES[other].from_pipe(pipe)
    except (TypeError, ValueError) as error:
        assert other != name and other in str(error)
        return
    theirs = {n: c for n, c in pipe.components.items() if n in shared.components}
    if other == "DDIMPipeline" and other != name:
        theirs.pop("scheduler")  # made into its own
    assert type(shared) is CLASSES[other] and all(shared.components[n] is c for n, c in theirs.items())
    assert shared._graphs is pipe._graphs
    if other == name:
        np.testing.assert_array_equal(images_of(shared, case), images_of(pipe, case))


@classes
def test_graphs_are_of_one_denoiser(name):
    pipe, case = made(name)
    (denoiser,) = [n for n, kind in sf._core._pipelines.entries()[name]["components"].items() if kind == "denoiser"]
    network = pipe.components[denoiser]
    another = type(network).from_config(network.config)
    assert CLASSES[name].from_pipe(pipe, **{denoiser: another})._graphs is not pipe._graphs
    assert (
        CLASSES[name].from_pipe(pipe, scheduler=type(pipe.scheduler).from_config(pipe.scheduler.config))._graphs
        is pipe._graphs
    )


# ---- calls


@classes
def test_output_types(name):
    pipe, case = made(name)
    array, values, frames = (images_of(pipe, case, output_type=kind) for kind in ("np", "pt", "sf_tensor"))
    clips = sf._core._pipelines.entries()[name]["makes_clips"]
    *batch, height, width, channels = array.shape
    assert len(batch) == 1 + clips
    assert array.dtype == np.float32 and 0 <= array.min() and array.max() <= 1
    assert isinstance(values, sf.Tensor) and values.shape == (*batch, channels, height, width)
    np.testing.assert_array_equal(array, np.moveaxis(values.numpy(), -3, -1))
    if clips:  # a list of frames for each
        frames = sf.stack([sf.stack(clip, 0) for clip in frames], 0)
    assert frames.shape == array.shape and frames.dtype is sf.uint8
    np.testing.assert_array_equal(frames.numpy(), (array * 255).round().astype(np.uint8))
    image = pytest.importorskip("PIL.Image")
    pictures = images_of(pipe, case, output_type="pil")
    assert len(pictures) == batch[0]
    pictures = pictures if clips else [pictures]
    assert all(isinstance(p, image.Image) for clip in pictures for p in clip)
    stacked = np.stack([np.stack([np.array(p) for p in clip]) for clip in pictures])
    np.testing.assert_array_equal(stacked.reshape(array.shape), frames.numpy())
    latents = images_of(pipe, case, output_type="latent")
    assert isinstance(latents, sf.Tensor) and latents.shape[0] == batch[0] and latents.is_floating_point()
    with pytest.raises(ValueError, match="output_type must be"):
        images_of(pipe, case, output_type="jpeg")
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_argument'"):
        images_of(pipe, case, no_such_argument=1)


@classes
def test_callbacks_see_every_step_and_may_end_the_run(name):
    if "callback_on_step_end" not in GOLDEN[name]["signatures"][
        "__call__"
    ] and "callback_on_step_end" not in parameters_of(CLASSES[name].__call__):
        pytest.skip("neither diffusers' nor ours takes callback_on_step_end")
    pipe, case = made(name)
    seen = []

    def look(pipe, step, timestep, tensors):
        seen.append((step, sorted(tensors)))
        return tensors

    np.testing.assert_array_equal(images_of(pipe, case, callback_on_step_end=look), images_of(pipe, case))
    assert seen == [(step, ["latents"]) for step in range(pipe.num_timesteps)] and seen

    def stop(pipe, step, timestep, tensors):
        seen.append(step)
        pipe._interrupt = True
        return {"latents": tensors["latents"] * 0.5}

    seen.clear()
    images_of(pipe, case, callback_on_step_end=stop)
    assert seen == [0]
    with pytest.raises(ValueError, match="callback_on_step_end_tensor_inputs"):
        images_of(pipe, case, callback_on_step_end=look, callback_on_step_end_tensor_inputs=["no such tensor"])
    with pytest.raises(ZeroDivisionError):
        images_of(pipe, case, callback_on_step_end=lambda *arguments: 1 / 0)


@classes
def test_equal_seeds_give_equal_pictures(name):
    pipe, case = made(name)
    np.testing.assert_array_equal(images_of(pipe, case), images_of(pipe, case))
    assert np.abs(images_of(pipe, case) - images_of(pipe, {**case, "seed": 12345})).max() > 0.01
    np.testing.assert_array_equal(output_of(pipe, case, return_dict=False)[0], images_of(pipe, case))


# ---- LoRA


# UNets' and transformers', CLIP's and Qwen3's, T5's, Z-Image's
PROJECTION = re.compile(r".*(attn\d?|[Aa]ttention|attentions\.\d+)\.(to_[qkv]|to_out\.0|[qkv]_proj|out_proj|[qkvo])")


def random_lora(pipe):
    """For each projection of attention in denoiser and text encoders, by its own name, in PEFT's."""
    generator, state = np.random.default_rng(0), {}
    kinds = sf._core._pipelines.entries()[type(pipe).__name__]["components"]
    adapted = [c for c in networks_of(pipe) if kinds[c] in ("denoiser", "text_encoder")]
    for component in adapted:
        for module, layer in pipe.components[component].named_modules():
            if PROJECTION.fullmatch(module):
                rows, columns = layer.weight.shape
                for side, shape in (("A", (2, columns)), ("B", (rows, 2))):
                    values = generator.normal(size=shape).astype(np.float32) / shape[1] ** 0.5
                    state[f"{component}.{module}.lora_{side}.weight"] = sf.tensor(values)
    return adapted, state


def weights_of(pipe):
    networks = networks_of(pipe).items()
    return {(c, key): t.numpy().tobytes() for c, network in networks for key, t in network.state_dict().items()}


@classes
def test_loras_of_every_pipeline(name, monkeypatch):
    """Beside attention in each network, and off again without a trace."""
    monkeypatch.setattr("golden_pipelines.made_networks", {})
    pipe, case = made(name)
    bare, weights = images_of(pipe, case), weights_of(pipe)
    adapted, state = random_lora(pipe)
    assert adapted and {key.partition(".")[0] for key in state} == set(adapted)
    pipe.load_lora_weights(state, adapter_name="random")
    assert pipe.get_list_adapters() == {component: ["random"] for component in adapted}
    with_all = images_of(pipe, case)
    assert np.isfinite(with_all).all() and np.abs(with_all - bare).max() > 0.01
    for component in adapted:  # each network's part takes part
        pipe.set_adapters("random", {c: float(c == component) for c in adapted})
        assert np.abs(images_of(pipe, case) - bare).max() > 1e-3, component
    pipe.set_adapters("random")
    np.testing.assert_array_equal(images_of(pipe, case), with_all)
    for kwargs in ("cross_attention_kwargs", "attention_kwargs", "joint_attention_kwargs"):
        if kwargs in parameters_of(CLASSES[name].__call__):
            np.testing.assert_array_equal(images_of(pipe, case, **{kwargs: {"scale": 0.0}}), bare)
    pipe.disable_lora()
    np.testing.assert_array_equal(images_of(pipe, case), bare)
    pipe.enable_lora()
    np.testing.assert_array_equal(images_of(pipe, case), with_all)
    pipe.fuse_lora()
    assert np.abs(images_of(pipe, case) - with_all).max() < 1e-3
    pipe.unfuse_lora()
    pipe.delete_adapters("random")
    assert pipe.get_list_adapters() == {}
    np.testing.assert_array_equal(images_of(pipe, case), bare)
    now = weights_of(pipe)
    assert now.keys() == weights.keys() and [key for key in now if now[key] != weights[key]] == []


# ---- signatures


@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name in CLASSES if name in GOLDEN for method in GOLDEN[name]["signatures"]]
)
def test_arguments_are_theirs(name, method):
    """Names, order and defaults; what differs is explained by the family's make_golden_pipelines_*.py."""
    ours, entry = parameters_of(getattr(CLASSES[name], method)), GOLDEN[name]
    wrong, stale = unexplained(ours, entry["signatures"][method], entry["differences"].get(method, {}))
    assert not wrong, f"{name}.{method} differs from diffusers': {wrong}"
    assert not stale, f"{name}.{method}: these do not differ: {stale}"
    assert inspect.getdoc(CLASSES[name].__call__)
