"""Folders as bitsandbytes, torchao and quanto store a layer in them: read as they lie, or refused by name."""

import json

import folders
import pytest
from packed import unpacked

import scaffolding as sf
from scaffolding import nn, safetensors
from scaffolding.models import CLIPTextModel

LAYER = "text_model.encoder.layers.0.mlp.fc1"
FILE = "model.safetensors"


def golden(name, part):
    """A layer's tensors in a golden file, by what follows its name in files."""
    tensors = safetensors.load(unpacked(folders.GOLDEN / f"{name}.safetensors.xz"))
    return {k.removeprefix(part + "."): v for k, v in tensors.items() if k.startswith(part + ".")}


def write(place, sizes, tensors, config, dtype=sf.float32):
    """A folder of a small text encoder, one layer [out, in] of which has these tensors."""
    out, inside = sizes
    model = CLIPTextModel(
        vocab_size=20, hidden_size=inside, intermediate_size=out, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=8,
    ).to(dtype)  # fmt: skip
    model.save_pretrained(place)
    state = {k: v for k, v in safetensors.load_file(place / FILE).items() if not k.startswith(LAYER)}
    safetensors.save_file(state | {LAYER + "." + k: v for k, v in tensors.items()}, place / FILE)
    text = json.loads((place / "config.json").read_text()) | {"quantization_config": config}
    (place / "config.json").write_text(json.dumps(text))


def layer_of(place, **options):
    model = CLIPTextModel.from_pretrained(place, **options)
    return model, model.get_submodule(LAYER)


def bitsandbytes(kind):
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}


LAYERS = [("quantized_layers", "nested", "nf4"), ("quantized_layers", "plain", "nf4")]
LAYERS += [("quantized_rows", "fp4.layer", "fp4")]


@pytest.mark.parametrize("file, part, kind", LAYERS)
def test_a_layer_has_bitsandbytes_entries_and_reads_them(file, part, kind, tmp_path):
    tensors = golden(file, part)
    numbers = tensors.pop("numbers").float()
    out, inside = numbers.shape
    write(tmp_path, numbers.shape, tensors, bitsandbytes(kind), sf.bfloat16)
    model, layer = layer_of(tmp_path)
    assert type(layer) is {"nf4": nn.LinearNF4, "fp4": nn.LinearFP4}[kind]
    assert layer.compress_statistics == (part == "nested")
    got = layer(sf.eye(inside).to(sf.bfloat16)).float() - tensors["bias"].float()
    assert (got.t() - numbers).abs().max().item() < 0.01 * numbers.abs().max().item()
    # What is saved has the names, the tables and the text that were read.
    model.save_pretrained(tmp_path / "again")
    saved = safetensors.load_file(tmp_path / "again" / FILE)
    written = {k.removeprefix(LAYER + "."): v for k, v in saved.items() if k.startswith(LAYER + ".")}
    assert set(written) == set(tensors)
    state = f"weight.quant_state.bitsandbytes__{kind}"
    for key, value in written.items():
        want = tensors[key]
        assert value.dtype == want.dtype and (key == state or value.shape == want.shape), key
        if key == state:
            texts = [json.loads(bytes(t.tolist())) for t in (value, want)]
            offsets = [t.pop("nested_offset", 0) for t in texts]
            assert offsets[0] == pytest.approx(offsets[1], rel=1e-6) and texts[0] == texts[1]
        else:
            assert value.float().flatten().tolist() == pytest.approx(want.float().flatten().tolist(), abs=1e-6), key


def torchao(kind):
    tensors = golden("torchao_layers", kind)
    config, y = json.loads(bytes(tensors.pop("config").tolist())), tensors.pop("y")
    whole = safetensors.load(unpacked(folders.GOLDEN / "torchao_layers.safetensors.xz"))
    return tensors | {"bias": whole["bias"]}, config, whole["x"], y


@pytest.mark.parametrize("kind", ["int8", "dynamic", "float8"])
def test_torchao_layers_compute_what_torchao_does(kind, tmp_path):
    tensors, config, x, y = torchao(kind)
    write(tmp_path, (24, 32), tensors, config)
    _, layer = layer_of(tmp_path)
    assert type(layer) is (nn.LinearFP8 if kind == "float8" else nn.LinearInt8)
    assert layer.dynamic == (kind == "dynamic")
    codes = tensors["_weight_qdata"]
    assert sf.equal(layer.weight.float(), codes.float()) and layer.weight.dtype == codes.dtype
    scale = tensors["_weight_scale"].float()
    exact = x.double() @ (codes.float() * scale).double().t() + tensors["bias"].double()
    ours, theirs = ((z.double() - exact).norm().item() / exact.norm().item() for z in (layer(x), y))
    if kind == "dynamic":  # a row's largest activation is 127.5 there and 127 here: other codes, as good
        assert 0 < ours < 1.3 * theirs < 0.02
    else:
        assert max(ours, theirs) < 1e-6


def test_float8_by_rows_is_saved_as_torchao_does(tmp_path):
    tensors, config, _, _ = torchao("float8")
    write(tmp_path, (24, 32), tensors, config)
    model, _ = layer_of(tmp_path)
    nn.quantize_(model, "float8_e4m3fn")
    model.save_pretrained(tmp_path / "again")
    with safetensors.safe_open(tmp_path / "again" / FILE, framework="sf") as file:
        facts, names = file.metadata(), set(file.keys())
        saved = {key: file.get_tensor(f"{LAYER}.{key}") for key in tensors}
    for key, want in tensors.items():
        assert saved[key].dtype == want.dtype and saved[key].shape == want.shape
        assert sf.equal(saved[key].float(), want.float()), key
    written = json.loads((tmp_path / "again" / "config.json").read_text())["quantization_config"]
    assert written == config
    # What torchao makes its tensors from again.
    assert json.loads(facts[LAYER + ".weight"]) == {
        "_type": "Float8Tensor", "_tensor_data_names": ["qdata", "scale"],
        "_data": {"block_size": [1, 32], "mm_config": None, "act_quant_kwargs": None,
                  "kernel_preference": {"_type": "KernelPreference", "_data": "AUTO"},
                  "dtype": {"_type": "torch.dtype", "_data": "float32"}},
    }  # fmt: skip
    whole = {n.replace("._weight_qdata", ".weight") for n in names if not n.endswith("._weight_scale")}
    assert set(json.loads(facts["tensor_names"])) == whole == set(facts) - {"format", "tensor_names"}
    plain = whole & names
    assert len(plain) > 10 and all(json.loads(facts[name]) == {"_type": "Tensor"} for name in plain)


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_quanto_layers_are_codes_times_scales(kind, tmp_path):
    g = sf.Generator().manual_seed(3)
    weight, bias = sf.randn(24, 32, generator=g), sf.randn(24, generator=g)
    most = 127.0 if kind == "int8" else 448.0
    scale = (weight.abs().amax(-1, keepdim=True) / most).to(sf.bfloat16)
    codes = (weight / scale.float()).clamp(-most, most)
    codes = sf.round(codes).to(sf.int8) if kind == "int8" else codes.to(sf.float8_e4m3fn)
    one = sf.ones(())
    tensors = {"weight._data": codes, "weight._scale": scale, "bias": bias, "input_scale": one, "output_scale": one}
    write(tmp_path, (24, 32), tensors, {"quant_method": "quanto", "weights_dtype": kind})
    _, layer = layer_of(tmp_path)
    assert type(layer) is (nn.LinearInt8 if kind == "int8" else nn.LinearFP8)
    x = sf.randn(4, 32, generator=g)
    want = x.double() @ (codes.float() * scale.float()).double().t() + bias.double()
    assert (layer(x).double() - want).abs().max().item() < 1e-5 * want.abs().max().item()


def changed(**parts):
    return lambda t, c: t.update(parts)


def quant_type(**facts):
    return lambda t, c: c["quant_type"]["default"].update(facts)


DAMAGE = [
    (quant_type(_type="Int4WeightOnlyConfig"), NotImplementedError, "got 'Int4WeightOnlyConfig'"),
    (lambda t, c: c.update(quant_type="int4wo"), NotImplementedError, "got 'int4wo'"),
    (lambda t, c: c.update(quant_type=7), NotImplementedError, "got 7"),
    (lambda t, c: c["quant_type"].update(fc2={}), NotImplementedError, "configs for single layers"),
    (quant_type(_data={"act_mapping_type": {"_data": "ASYMMETRIC"}}), NotImplementedError, "must be SYMMETRIC"),
    (changed(_weight_zero_point=sf.ones(24, 1, dtype=sf.int8)), NotImplementedError, "a point other than 0"),
    (changed(_weight_act_pre_scale=sf.ones(32)), NotImplementedError, "has act_pre_scale"),
    (changed(_weight_scale=sf.full((24, 1), float("nan"))), ValueError, "must be magnitudes, got nan"),
    (changed(_weight_scale=-sf.ones(24, 1)), ValueError, "must be magnitudes, got -1"),
    (changed(_weight_scale=sf.ones(12, 2)), ValueError, r"one for each of 24 rows, got \[12, 2\]"),
    (changed(_weight_scale=sf.ones(24, 1, dtype=sf.int32)), ValueError, "must be floating"),
    (changed(_weight_qdata=sf.zeros(24, 31, dtype=sf.int8)), ValueError, r"must be int8 \[24, 32\]"),
    (changed(_weight_qdata=sf.zeros(24, 32)), ValueError, "must be int8"),
    (lambda t, c: t.pop("_weight_scale"), ValueError, "lacks"),
    (lambda t, c: (c.clear(), c.update(quant_method="quanto", weights_dtype="int4")), NotImplementedError, "'int4'"),
    (lambda t, c: (c.clear(), c.update(quant_method="quanto", weights_dtype="int2")), NotImplementedError, "'int2'"),
    (changed(wscales=sf.ones(1, 24)), NotImplementedError, "is of SVDQuant .Nunchaku., whose packed weights are not"),
    (
        lambda t, c: (c.clear(), c.update(quant_method="quanto", weights="int8", activations="int8")),
        NotImplementedError,
        "activations must be none, got 'int8'",
    ),
    (lambda t, c: c.update(quant_method="gguf"), NotImplementedError, "read by from_single_file"),
    (lambda t, c: c.update(quant_method="gptq"), NotImplementedError, "got 'gptq'"),
    # Entries of no layer stay unknown keys.
    (lambda t, c: c.update(quant_method="bitsandbytes", load_in_8bit=True), RuntimeError, "_weight_qdata"),
]


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_files_that_are_wrong_are_refused(number, tmp_path):
    damage, error, message = DAMAGE[number]
    tensors, config, _, _ = torchao("dynamic")
    damage(tensors, config)
    write(tmp_path, (24, 32), tensors, config)
    with pytest.raises(error, match=message):
        CLIPTextModel.from_pretrained(tmp_path)


def test_a_folder_that_is_quantised_is_not_quantised_again(tmp_path):
    from scaffolding.models import TorchAoConfig

    tensors, config, _, _ = torchao("int8")
    write(tmp_path, (24, 32), tensors, config)
    with pytest.raises(ValueError, match="quantised already"):
        CLIPTextModel.from_pretrained(tmp_path, quantization_config=TorchAoConfig("int8wo"))
