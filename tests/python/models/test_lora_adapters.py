"""LoRAs of one model, by the calls of diffusers' PeftAdapterMixin; files of all its networks are test_lora.py's."""

import lora_cases
import numpy as np
import pytest
from hashed_weights import hashed

import scaffolding as sf
from scaffolding import models
from scaffolding.models import get_peft_model_state_dict, peft_config_of

LORA = lora_cases.FOLDER
NETWORKS = lora_cases.networks()
STYLE, WHOLE = (str(LORA / "sd" / f"{name}.safetensors") for name in ("style", "whole"))


def network(name):
    sf.manual_seed(0)
    class_name, config = NETWORKS[name]
    return getattr(models, class_name).from_config(config).eval().requires_grad_(False)


@pytest.fixture
def unet():
    return network("unet")


SAMPLE, TEXT = hashed("sample", (1, 4, 8, 8)), hashed("text", (1, 7, 32))


def output(model, **more):
    if isinstance(model, models.UNet2DConditionModel):
        return model(sf.tensor(SAMPLE), 437, sf.tensor(TEXT), **more).sample.numpy()
    return model(sf.tensor([[3, 5, 7, 9]])).last_hidden_state.numpy()


def moved(a, b):
    return np.abs(a - b).max() > 1e-2 * np.abs(a).max()


@pytest.mark.parametrize("file", ["style", "style_kohya", "style_original", "whole"])
@pytest.mark.parametrize("name, prefix", [("unet", "unet"), ("text", "text_encoder")])
def test_a_model_takes_its_part_of_a_file(name, prefix, file):
    model = network(name)
    bare = output(model)
    model.load_lora_adapter(str(LORA / "sd" / f"{file}.safetensors"), prefix=prefix, adapter_name="a")
    assert model.active_adapters() == ["a"] and moved(output(model), bare)
    with_it = output(model)
    model.disable_lora()
    np.testing.assert_array_equal(output(model), bare)
    model.enable_adapters()
    np.testing.assert_array_equal(output(model), with_it)
    model.delete_adapters("a")
    assert model.active_adapters() == []
    np.testing.assert_array_equal(output(model), bare)


def test_strengths_are_those_of_the_weights(unet):
    bare = output(unet)
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    unet.load_lora_adapter(WHOLE, prefix="unet", adapter_name="whole")
    assert unet.active_adapters() == ["whole"]  # the last one alone
    whole = output(unet)
    unet.set_adapters(["style", "whole"], [0.0, 1.0])
    np.testing.assert_array_equal(output(unet), whole)
    unet.set_adapters(["style", "whole"], [0.7, 0.4])
    two = output(unet)
    unet.set_adapters(["style", "whole"], [1.4, 0.8])
    np.testing.assert_allclose(output(unet, cross_attention_kwargs={"scale": 0.5}), two, atol=1e-5)
    unet.set_adapter("style")
    assert unet.active_adapters() == ["style"]
    style = output(unet)
    unet.set_adapters("style", {"down": 1.0, "mid": [1.0], "up": {"block_0": [1.0, 1.0]}})
    np.testing.assert_allclose(output(unet), style, atol=1e-6)
    unet.set_adapters("style", {"down": 0.0, "mid": 0.0, "up": 0.0})
    np.testing.assert_array_equal(output(unet), bare)
    unet.set_adapters([])
    np.testing.assert_array_equal(output(unet), bare)
    unet.unload_lora()
    np.testing.assert_array_equal(output(unet), bare)
    with pytest.raises(ValueError, match="there is no adapter 'style'; there are none"):
        unet.set_adapters("style")


def test_the_scale_of_a_call_ends_with_it(unet):
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    full, nothing = output(unet), output(unet, cross_attention_kwargs={"scale": 0})
    unet.set_adapters("style", 0.5)
    half = output(unet)
    unet.set_adapters("style")
    np.testing.assert_allclose(output(unet, cross_attention_kwargs={"scale": 0.5}), half, atol=1e-6)
    np.testing.assert_array_equal(output(unet), full)
    np.testing.assert_array_equal(output(unet, cross_attention_kwargs={"scale": None}), full)
    with pytest.raises(ValueError):  # within the call: encoder_hidden_states of another width
        unet(sf.tensor(SAMPLE), 437, sf.ones(1, 7, 33), cross_attention_kwargs={"scale": 0.5})
    np.testing.assert_array_equal(output(unet), full)
    seen = []

    def inner(module, arguments):
        if not seen:  # a call within a call
            seen.append(None)
            seen[0] = output(unet)

    handle = unet.mid_block.register_forward_pre_hook(inner)
    np.testing.assert_allclose(output(unet, cross_attention_kwargs={"scale": 0.5}), half, atol=1e-6)
    handle.remove()
    np.testing.assert_array_equal(output(unet), full)
    for bad, error in (("strong", TypeError), (float("nan"), ValueError), ([1.0], TypeError)):
        with pytest.raises(error, match="scale of cross_attention_kwargs"):
            output(unet, cross_attention_kwargs={"scale": bad})
    with pytest.raises(NotImplementedError, match="no use for gligen"):
        output(unet, cross_attention_kwargs={"scale": 0.5, "gligen": {}})
    unet.unload_lora()
    np.testing.assert_array_equal(output(unet, cross_attention_kwargs={"scale": 0.5}), nothing)


def test_fused_weights_and_the_old_ones(unet):
    before = {k: t.numpy().tobytes() for k, t in unet.state_dict().items()}
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    beside = output(unet)
    unet.fuse_lora()
    np.testing.assert_allclose(output(unet), beside, atol=1e-4)
    unet.unfuse_lora()
    assert {k: t.numpy().tobytes() for k, t in unet.state_dict().items()} == before
    np.testing.assert_array_equal(output(unet), beside)
    unet.fuse_lora(lora_scale=0.5, safe_fusing=True, adapter_names=["style"])
    half = output(unet)
    unet.unfuse_lora()
    np.testing.assert_allclose(output(unet, cross_attention_kwargs={"scale": 0.5}), half, atol=1e-4)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="lora_scale must be finite"):
            unet.fuse_lora(bad)
    with pytest.raises(ValueError, match="no adapter 'nobody'; there are style"):
        unet.fuse_lora(adapter_names=["nobody"])
    np.testing.assert_array_equal(output(unet), beside)


@pytest.mark.parametrize("file", ["sd/style", "sd/whole_kohya", "sd/alphas_kohya", "sd/mid_kohya", "sd/peft_unet"])
def test_saved_adapters_are_the_same(unet, file, tmp_path):
    path = LORA / file
    unet.load_lora_adapter(str(path if path.is_dir() else path.with_suffix(".safetensors")), "unet", adapter_name="a")
    want = output(unet)
    unet.save_lora_adapter(tmp_path, "a")
    again = network("unet")
    again.load_lora_adapter(str(tmp_path), prefix=None)
    assert again.active_adapters() == ["default_0"]
    np.testing.assert_allclose(output(again), want, atol=1e-5 * np.abs(want).max())
    again.unload_lora()
    state, config = get_peft_model_state_dict(unet, "a"), peft_config_of(unet, "a")
    assert all(key.endswith((".lora_A.weight", ".lora_B.weight")) for key in state)
    again.load_lora_adapter(state, prefix=None, adapter_name="b", metadata=config)
    np.testing.assert_allclose(output(again), want, atol=1e-5 * np.abs(want).max())
    unet.save_lora_adapter(tmp_path / "full", "a", upcast_before_saving=True, weight_name="a.safetensors")
    tensors = sf.io.load_checkpoint(tmp_path / "full" / "a.safetensors")
    assert {t.dtype for t in tensors.values()} == {sf.float32} and tensors.keys() == state.keys()
    with pytest.raises(ValueError, match="there is no adapter 'default'; there are a"):
        unet.save_lora_adapter(tmp_path)


def test_saved_tensors_are_those_of_the_file(unet):
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    there = {k.removeprefix("unet."): t for k, t in sf.io.load_checkpoint(STYLE).items() if k.startswith("unet.")}
    state = get_peft_model_state_dict(unet, "style")
    assert state.keys() == there.keys()
    for key, t in there.items():
        assert state[key].dtype is t.dtype
        np.testing.assert_array_equal(state[key].numpy(), t.numpy())


def test_another_adapter_takes_the_place_of_one(unet):
    unet.load_lora_adapter(WHOLE, prefix="unet", adapter_name="whole")
    whole = output(unet)
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="a")
    unet.load_lora_adapter(WHOLE, prefix="unet", adapter_name="a", hotswap=True)
    assert unet.active_adapters() == ["a"]
    np.testing.assert_allclose(output(unet), whole, atol=1e-6)
    with pytest.raises(ValueError, match="there is no adapter 'nobody'; there are a, whole"):
        unet.load_lora_adapter(WHOLE, prefix="unet", adapter_name="nobody", hotswap=True)


@pytest.mark.parametrize("dtype", ["nf4", "float8_e4m3fn"])
def test_quantising_keeps_what_is_beside(unet, dtype):
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    sf.nn.quantize_(unet, dtype)
    with_it = output(unet)
    unet.disable_lora()
    bare = output(unet)
    assert moved(with_it, bare)
    unet.enable_lora()
    np.testing.assert_array_equal(output(unet), with_it)
    with pytest.raises(NotImplementedError, match="quantised"):
        unet.fuse_lora()
    np.testing.assert_array_equal(output(unet), with_it)
    unet.set_adapters("style", 0.5)
    half = output(unet)
    assert moved(half, with_it) and moved(half, bare)
    part = network("unet")
    part.load_lora_adapter(STYLE, prefix="unet")
    with pytest.raises(ValueError, match="has LoRAs beside it; quantise the whole model"):
        sf.nn.quantize_(part.mid_block, dtype)


def test_what_was_quantised_fused_stays_so(unet):
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    unet.fuse_lora()
    fused = output(unet)
    sf.nn.quantize_(unet, "float8_e4m3fn")
    quantised = output(unet)
    assert np.abs(quantised - fused).max() < 0.2 * np.abs(fused).max()
    with pytest.raises(ValueError, match="quantised after fuse_lora"):
        unet.unfuse_lora()
    np.testing.assert_array_equal(output(unet), quantised)


@pytest.mark.parametrize("cast", ["bfloat16", "half", "double"])
def test_casting_takes_adapters_along(unet, cast):
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    want = output(unet)
    getattr(unet, cast)()
    arguments = (sf.tensor(SAMPLE).to(unet.dtype), 437, sf.tensor(TEXT).to(unet.dtype))
    got = unet(*arguments).sample.float().numpy()
    assert np.abs(got - want).max() <= {"bfloat16": 0.1, "half": 0.02, "double": 1e-4}[cast] * np.abs(want).max()


# ---- what does not fit


def test_what_is_of_no_network_here(unet):
    bare = output(unet)
    state = sf.io.load_checkpoint(STYLE)
    for given, prefix, what in (
        (STYLE, "transformer", "no key begins with 'transformer.', and there are keys of text_encoder, unet; pass"),
        (state | {"unet.nothing.lora_A.weight": sf.ones(2, 4), "unet.nothing.lora_B.weight": sf.ones(4, 2)}, "unet",
         "'unet.nothing.lora_A.weight' is of a layer that is not there"),
        ({k: t for k, t in state.items() if not k.endswith("to_k.lora_B.weight")}, "unet", "lacks its other half"),
        ({k: t * float("nan") for k, t in state.items()}, "unet", "NaN"),
        (str(LORA / "xl" / "style.safetensors"), "unet", "another|whose"),
        ({f"unet.{k}": t for k, t in unet.state_dict().items()}, "unet", "no LoRA"),
        ({}, "unet", "no LoRA"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=what) as raised:
            unet.load_lora_adapter(given, prefix=prefix, adapter_name="bad")
        assert "\n" not in str(raised.value) and unet.active_adapters() == []
        np.testing.assert_array_equal(output(unet), bare)
    with pytest.raises(TypeError, match="metadata must be a dict of PEFT's fields, got int"):
        unet.load_lora_adapter(STYLE, prefix="unet", metadata=5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'network'"):
        unet.load_lora_adapter(STYLE, prefix="unet", network=1)
    unet.load_lora_adapter(state | {"unet.nothing.alpha": sf.ones(1)}, prefix="unet", strict=False)
    with pytest.raises(ValueError, match="an adapter 'default_0' already"):
        unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="default_0")


@pytest.mark.parametrize("weights, what", [
    ([1.0, 2.0], "needs a weight for each of 1"),
    ("strong", "must be a number, got str"),
    (float("inf"), "must be finite"),
    ({"sides": 1}, "of down, mid and up"),
    ({"up": {"block_9": 1}}, "no attention in"),
    ({"mid": "strong"}, "must be a number, got str"),
    ({"mid": float("nan")}, "must be finite"),
])  # fmt: skip
def test_weights_that_are_none(unet, weights, what):
    unet.load_lora_adapter(STYLE, prefix="unet", adapter_name="style")
    want = output(unet)
    with pytest.raises((ValueError, TypeError), match=what):
        unet.set_adapters("style", weights)
    np.testing.assert_array_equal(output(unet), want)


def test_blocks_are_of_unets():
    model = network("text")
    model.load_lora_adapter(STYLE, prefix="text_encoder", adapter_name="style")
    with pytest.raises(ValueError, match="a CLIPTextModel has no such blocks"):
        model.set_adapters("style", {"down": 0.5})
