"""LoRA files against what PEFT holds once diffusers has loaded them (tests/golden/make_golden_lora.py), and every layer
of the tiny networks under the names of each program.
"""

import math

import lora_cases
import numpy as np
import pytest

import scaffolding as sf
from scaffolding import models

read_lora = sf._core._models.read_lora
LORA = lora_cases.FOLDER
GOLDEN, NETWORKS = lora_cases.document(), lora_cases.networks()
FAMILIES = {
    family: {c: name for c, name in parts.items() if name in NETWORKS and c != "vae"}
    for family, parts in GOLDEN["networks"].items()
}
ADAPTERS = GOLDEN["adapters"]


def network(name):
    class_name, config = NETWORKS[name]
    return getattr(models, class_name).from_config(config)


@pytest.fixture(scope="module")
def components():
    return {family: {c: network(name) for c, name in parts.items()} for family, parts in FAMILIES.items()}


def update(layer):
    """scale * B A of a layer, as a matrix [rows, I * kh * kw]."""
    down, up = layer["down"].float().numpy(), layer["up"].float().numpy().reshape(-1, layer["rank"])
    if layer["mid"] is not None:
        down = np.einsum("mrhw,ri->mihw", layer["mid"].float().numpy(), down[:, :, 0, 0])
    return layer["scale"] * up @ down.reshape(layer["rank"], -1)


@pytest.mark.parametrize("adapter, file", [(name, f) for name, a in ADAPTERS.items() for f in a["files"]])
def test_layers_are_those_of_peft(components, adapter, file):
    lora = read_lora(str(LORA / file), components[adapter.partition("/")[0]])
    golden = ADAPTERS[adapter]["modules"]
    assert {c: {x["module"] for x in layers} for c, layers in lora["layers"].items()} == {
        c: set(modules) for c, modules in golden.items()
    }
    assert {use for use, *_ in lora["keys"].values()} == {"applied"}
    for component, layers in lora["layers"].items():
        for layer in layers:
            rank, scale, norm = golden[component][layer["module"]]
            assert np.linalg.norm(update(layer)) == pytest.approx(norm, rel=1e-3), layer["module"]
            assert layer["rank"] == rank
            # kinds without alpha have it in B, and some of kohya's were given to diffusers in such a kind
            if file == ADAPTERS[adapter]["files"][0] and not file.endswith("_kohya.safetensors"):
                assert layer["scale"] == pytest.approx(scale), layer["module"]


def weights_of(model):
    """[O, I] and [O, I, kh, kw] of every linear layer and convolution."""
    return {n: m.weight.shape for n, m in model.named_modules() if isinstance(m, (sf.nn.Linear, sf.nn.Conv2d))}


def tensors_of(stems, parts=("lora_down.weight", "lora_up.weight")):
    """A LoRA of rank 2 for {stem: shape of the weight}."""
    out = {}
    for stem, shape in stems.items():
        out[f"{stem}.{parts[0]}"] = sf.ones(2, *shape[1:], dtype=sf.float16)
        out[f"{stem}.{parts[1]}"] = sf.ones(shape[0], 2, *[1] * (len(shape) - 2), dtype=sf.float16)
    return out


@pytest.mark.parametrize("kind", ["kohya", "diffusers", "diffusers_old", "peft"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_under_the_names_of(components, kind, family, tmp_path):
    stems, wanted, flat = {}, {}, {"unet": "lora_unet_", "text_encoder": "lora_te1_", "text_encoder_2": "lora_te2_"}
    for component, model in components[family].items():
        weights = weights_of(model)
        wanted[component] = set(weights)
        before = f"base_model.model.{component}." if kind == "peft" else f"{component}."
        for module, shape in weights.items():
            name = flat[component] + module.replace(".", "_") if kind == "kohya" else before + module
            stems[name] = shape
    ends = {
        "kohya": ("lora_down.weight", "lora_up.weight"),
        "diffusers_old": ("lora.down.weight", "lora.up.weight"),
    }
    tensors = tensors_of(stems, ends.get(kind, ("lora_A.weight", "lora_B.weight")))
    path = tmp_path / "lora.safetensors"
    sf.safetensors.save_file(tensors, path)
    lora = read_lora(str(path), components[family])
    assert lora["format"] == kind
    assert {c: {x["module"] for x in layers} for c, layers in lora["layers"].items()} == wanted
    assert all(x["scale"] == 1 and x["rank"] == 2 for layers in lora["layers"].values() for x in layers)
    assert set(lora["keys"]) == set(tensors)


def test_nan_and_strangers_are_refused(components, tmp_path):
    path = tmp_path / "lora.safetensors"
    good = {"lora_unet_conv_in": weights_of(components["sd"]["unet"])["conv_in"]}
    tensors = tensors_of(good)
    tensors["lora_unet_conv_in.lora_up.weight"][0, 1] = math.nan
    sf.safetensors.save_file(tensors, path)
    with pytest.raises(ValueError, match="'lora_unet_conv_in' has NaN or infinity in its up weight"):
        read_lora(str(path), components["sd"])
    sf.safetensors.save_file(tensors_of({**good, "lora_unet_conv_inn": [4, 4]}), path)
    with pytest.raises(ValueError, match=r"2 of its 4 keys do not fit this model: .*; strict=False leaves them out"):
        read_lora(str(path), components["sd"])
    lora = read_lora(str(path), components["sd"], strict=False)
    assert [x["module"] for x in lora["layers"]["unet"]] == ["conv_in"]
    assert sorted(use for use, *_ in lora["keys"].values()) == ["applied", "applied", "unused", "unused"]
    sf.safetensors.save_file({"lora_unet_conv_in.hada_w1_a": sf.ones(2)}, path)
    with pytest.raises(RuntimeError, match="is of LoHa, which is not supported yet"):
        read_lora(str(path), components["sd"])
