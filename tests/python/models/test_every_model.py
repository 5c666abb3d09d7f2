"""Every registered model against diffusers or transformers: keys at full size, outputs, gradients, files, dtypes, the
meta device, signatures.

The models are those that the library registers; what they must compute stands in tests/golden/models, one file for a
family, written by its make_golden_models_*.py (tests/golden/model_fixture.py says how). A model without one fails here
by name. What only one family has is in test_models_*.py."""

import numpy as np
import pytest
from hashed_weights import hashed, hashed_weight
from model_cases import (
    FOLDER,
    arguments_of,
    away,
    cotangent,
    families,
    gradient_row,
    keys_folder,
    outputs_of,
    published,
    thinned,
)
from packed import LONG_SUFFIX, read_json, unpacked
from signatures import parameters_of, plain, unexplained

import scaffolding as sf
from scaffolding.backends import cpu

REGISTERED = sf._core._models.names()
FAMILIES = families()
MODELS = {
    name: {**model, "family": family} for family, file in FAMILIES.items() for name, model in file["models"].items()
}
CASES = {
    f"{family}: {case['name']}": {**case, "family": family}
    for family, file in FAMILIES.items()
    for case in file["cases"]
}
TRAINED = [name for name, case in CASES.items() if case["gradients"]]
FIRST = {}  # (class, method): the first case that trains
for _name in TRAINED:
    FIRST.setdefault((CASES[_name]["class"], CASES[_name]["method"]), _name)
# whose layers may all be of kinds that take no LoRA
WITHOUT_LORA = ("AutoencoderKLLTX2Video", "LTX2LatentUpsamplerModel", "LTX2Vocoder", "LTX2VocoderWithBWE")
COVERED = [name for name in REGISTERED if name in MODELS]
PUBLISHED = [name for model in MODELS.values() for name in model["full_size"]]
_files = {}


def golden(case, name):
    family = case["family"]
    if family not in _files:
        raw = unpacked(FOLDER / "models" / f"{family}{LONG_SUFFIX}")
        _files[family] = {k: t.numpy() for k, t in sf.safetensors.load(raw).items()}
    return _files[family][f"{case['name']}/{name}"]


def class_of(name):
    return getattr(sf.models, name)


def filled(case, **fields):
    """The case's model with weights by the rule."""
    model = class_of(case["class"])(**{**case["config"], **fields}).eval()
    model.load_state_dict(
        {
            k: sf.tensor(hashed_weight(k, tuple(t.shape))) if t.dtype.is_floating_point else t
            for k, t in model.state_dict().items()
        }
    )
    return model


def call(model, case, change=lambda tensor, by_rule: tensor):
    """(named outputs, named inputs that follow the rule)"""
    inputs = {}

    def make(path, array, by_rule):
        tensor = change(sf.tensor(array), by_rule)
        if by_rule:
            inputs[path] = tensor
        return tensor

    method = model if case["method"] == "forward" else getattr(model, case["method"])
    return outputs_of(method(**arguments_of(case, make)), sf.Tensor), inputs


def near(got, want, tolerance, what):
    worst, scale = float(np.abs(got.astype(np.float64) - want).max()), max(float(np.abs(want).max()), 1e-6)
    assert worst <= tolerance * scale, f"{what}: off by {worst:.2e} at a scale of {scale:.2e}"


def is_golden(case, name, got, tolerance):
    off = away(f"{case['name']}/{name}", got, golden(case, name))
    assert off <= tolerance, f"{name}: off by {off:.2e} of the largest value"


def same_tensors(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype is b[name].dtype, name
        assert sf.equal(a[name], b[name]), name


# ---- that there is something to compare with


@pytest.mark.parametrize("name", REGISTERED)
def test_it_has_golden_files(name):
    assert name in MODELS, (
        f"no file of tests/golden/models/ has {name}: run its tests/golden/make_golden_models_*.py with a Python that "
        "has torch "
        "(tools/new_model.py writes such a script, tests/golden/model_fixture.py says what goes into one)"
    )
    assert hasattr(sf.models, name), f"python/scaffolding/models/ has no class {name}"
    assert any(class_name == name for class_name, _ in FIRST), f"no case of {name} has gradients"
    assert MODELS[name][
        "full_size"
    ], f"{name} has no file in tests/golden/keys.tar.xz: pass full_size to model() in its make_golden_models_*.py"


def test_golden_files_are_of_registered_models():
    assert set(MODELS) <= set(REGISTERED)
    assert sorted(PUBLISHED) == sorted(path.stem for path in keys_folder().glob("*.txt"))


def test_an_error_anywhere_is_as_large_in_the_sums_of_golden_files():
    right = hashed("right", (3, 20, 31))
    of_output, of_gradient = thinned("x", right), gradient_row("x", right)
    assert of_output.size < right.size
    for at in range(0, right.size, 13):
        wrong = right.copy()
        wrong.flat[at] += 0.125
        assert np.abs(thinned("x", wrong) - of_output).max() == pytest.approx(0.125, abs=1e-5)
        assert np.abs(gradient_row("x", wrong) - of_gradient)[1:].max() == pytest.approx(0.125, abs=1e-4)


# ---- full size


@pytest.mark.parametrize("name", PUBLISHED)
def test_keys_and_shapes_of_the_published_model_without_memory(name):
    class_name, config, keys = published(name)
    before = cpu.memory_allocated()
    with sf.device("meta"):
        model = class_of(class_name)(**config)
    assert cpu.memory_allocated() - before < 1 << 20
    assert {k: list(t.shape) for k, t in model.state_dict().items()} == keys
    assert model.device.type == "meta" and all(t.is_meta for t in model.state_dict().values())


# ---- numbers


@pytest.mark.parametrize("name", CASES)
def test_outputs(name):
    case = CASES[name]
    with sf.no_grad():  # where more is fused
        outputs, _ = call(filled(case), case)
    assert {k: list(y.shape) for k, y in outputs.items()} == case["outputs"]
    assert list(outputs) == list(case["outputs"])
    for k, y in outputs.items():
        is_golden(case, k, y.numpy(), case.get("tolerance", 1e-5))


def lora_of(model):
    """Beside every layer that can have one, by its own name."""
    generator, state = np.random.default_rng(0), {}
    for name, layer in model.named_modules():
        if isinstance(layer, sf.nn.Linear) or (isinstance(layer, sf.nn.Conv2d) and layer.groups == 1):
            rows, *columns = layer.weight.shape
            sides = {"A": (2, *columns), "B": (rows, 2, *[1] * (len(columns) - 1))}
            for side, shape in sides.items():
                values = generator.normal(size=shape) / np.sqrt(np.prod(columns)) * (1 if side == "A" else 2)
                state[f"{name}.lora_{side}.weight"] = sf.tensor(values.astype(np.float32))
    return state


@pytest.mark.parametrize("name", CASES)
def test_loras_beside_every_layer(name):
    """No way through the model goes past them: fused into the weights they give the same."""
    case = CASES[name]
    model = filled(case)
    lora = lora_of(model)
    if not lora:
        assert case["class"] in WITHOUT_LORA
        return
    with sf.no_grad():
        bare, beside, fused, after = {}, {}, {}, {}

        def run(out):
            out |= {k: y.numpy().astype(np.float64) for k, y in call(model, case)[0].items()}

        run(bare)
        model.load_lora_adapter(lora, prefix=None, adapter_name="all")
        run(beside)
        model.fuse_lora()
        run(fused)
        model.unfuse_lora()
        model.delete_adapters("all")
        run(after)
    changed = False
    for k, y in bare.items():
        near(beside[k], fused[k], 1e-4, k)
        np.testing.assert_array_equal(after[k], y)
        changed |= np.abs(beside[k] - y).max() > 1e-2 * np.abs(y).max()
    assert changed


def gradients_of(case, model):
    outputs, inputs = call(model, case, lambda tensor, by_rule: tensor.requires_grad_(by_rule))
    sum((y * sf.tensor(cotangent(k, y.shape))).sum() for k, y in outputs.items()).backward()

    def gradient(t):
        return np.zeros(tuple(t.shape), np.float32) if t.grad is None else t.grad.contiguous().numpy()

    parameters = {k: gradient(p) for k, p in sorted(model.named_parameters())}
    return parameters, {k: gradient(x) for k, x in inputs.items()}, outputs


@pytest.mark.parametrize("name", TRAINED)
def test_the_gradient_of_every_parameter_and_input(name):
    case = CASES[name]
    parameters, inputs, outputs = gradients_of(case, filled(case))
    for k, y in outputs.items():  # where a tape is written
        is_golden(case, k, y.detach().numpy(), case.get("tolerance", 1e-5))
    rows = golden(case, "gradients")
    assert len(parameters) == len(rows)
    # What is zero in exact arithmetic, such as the gradient of a bias that softmax or a norm takes out,
    # is rounding here.
    typical = float(np.median(rows[rows[:, 0] > 0, 0]))
    for (key, gradient), want in zip(parameters.items(), rows):
        scale = max(float(want[0]), 1e-4 * typical)
        if want[0] < 1e-6 * typical:
            scale = 1e-2 * typical
        assert np.abs(gradient_row(key, gradient) - want).max() <= 1e-4 * scale, key
    assert [k for k, x in inputs.items() if np.any(x)] == case["inputs"]
    for k in case["inputs"]:
        is_golden(case, f"gradient of {k}", inputs[k], 1e-4)


@pytest.mark.parametrize("name", TRAINED)
def test_checkpointing_changes_no_bit_of_a_gradient(name):
    case = CASES[name]
    kept, again = filled(case), filled(case)
    if not MODELS[case["class"]]["checkpointing"]:
        with pytest.raises(NotImplementedError):
            again.enable_gradient_checkpointing()
        return
    again.enable_gradient_checkpointing()
    assert again.is_gradient_checkpointing and not kept.is_gradient_checkpointing
    for want, got in zip(gradients_of(case, kept)[:2], gradients_of(case, again)[:2]):
        for key in want:
            np.testing.assert_array_equal(want[key], got[key], key)


# ---- files

firsts = pytest.mark.parametrize("name", COVERED)


def first_case(name):
    return next(CASES[case] for (class_name, _), case in FIRST.items() if class_name == name)


def fields_of(name, config):
    return {k: v for k, v in config.items() if k in sf._core._models.field_names(name)}


def saved_bytes(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@firsts
@pytest.mark.parametrize("kind", ["safetensors", "shards", "bin"])
def test_folders_there_and_back(name, kind, tmp_path):
    model = filled(first_case(name))
    size = sum(t.nbytes for t in model.state_dict().values())
    how = {"max_shard_size": size // 3} if kind == "shards" else {"safe_serialization": kind != "bin"}
    model.save_pretrained(tmp_path / "a", **how)
    files = saved_bytes(tmp_path / "a")
    weights = [f for f in files if f.endswith(".bin" if kind == "bin" else ".safetensors")]
    assert len(weights) > 1 if kind == "shards" else len(weights) == 1
    again = class_of(name).from_pretrained(tmp_path / "a")
    assert (
        type(again) is class_of(name)
        and not again.training
        and fields_of(name, again.config) == fields_of(name, model.config)
    )
    same_tensors(again, model)
    again.save_pretrained(tmp_path / "b", **how)
    assert saved_bytes(tmp_path / "b") == files


TINY_KINDS = read_json(FOLDER / "single_file.json.xz")["tiny"]


@pytest.mark.parametrize("kind", sf._core._single_file_kinds())
def test_single_files_there_and_back(kind, tmp_path):
    """Every kind of checkpoint in one file, with every model in it: small ones of the golden file, or the classes'."""
    classes = {
        part: name for part, (_, name, _) in sf._core._single_file_kinds()[kind][2].items() if name in REGISTERED
    }
    if kind in TINY_KINDS:
        configs = TINY_KINDS[kind]["configs"]
    else:
        small = {case["class"]: case["config"] for case in reversed(CASES.values())}
        configs = {part: small[name] for part, name in classes.items()}
    models = {part: filled({"class": name, "config": fields_of(name, configs[part])}) for part, name in classes.items()}
    written = sf._core._to_single_file(
        kind, {part: dict(model.state_dict()) for part, model in models.items()}, configs
    )
    sf.safetensors.save_file({k: t.contiguous() for k, t in written.items()}, tmp_path / "model.safetensors")
    file = sf._core._SingleFile(str(tmp_path / "model.safetensors"), configs)
    assert file.kind == kind
    for part, model in models.items():
        again = type(model).__new__(type(model))
        file.load(again, part, None, None, {})
        same_tensors(again, model)
        assert fields_of(classes[part], again.config) == fields_of(classes[part], model.config), part


# ---- dtypes and devices


# T5's states in bfloat16 are off by 5.4 % in PyTorch too: they grow from block to block.
@pytest.mark.parametrize(("dtype", "tolerance"), [(sf.bfloat16, 0.06), (sf.float16, 0.01)], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", TRAINED)
def test_half_precision_is_near(name, dtype, tolerance):
    case = CASES[name]
    with sf.no_grad():
        want, _ = call(filled(case), case)
        outputs, _ = call(filled(case).to(dtype), case, lambda tensor, by_rule: tensor.to(dtype) if by_rule else tensor)
    for k, y in outputs.items():
        assert y.dtype is (dtype if want[k].dtype.is_floating_point else want[k].dtype), k
        is_golden(case, k, want[k].numpy(), case.get("tolerance", 1e-5))
        near(y.float().numpy(), want[k].numpy(), tolerance, k)


@firsts
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_loading_in_a_dtype_casts_the_tensors_that_theirs_does(name, dtype, tmp_path):
    case = next(case for case in CASES.values() if case["class"] == name)
    model = filled(case)
    model.save_pretrained(tmp_path)
    loaded = class_of(name).from_pretrained(tmp_path, torch_dtype=getattr(sf, dtype)).state_dict()
    kept = MODELS[name].get("kept_in_float32", {}).get(dtype, [])
    for k, t in model.state_dict().items():
        cast = t.dtype if k in kept or not t.dtype.is_floating_point else getattr(sf, dtype)  # norms count batches
        assert loaded[k].dtype is cast, k
        assert sf.equal(loaded[k], t.to(loaded[k].dtype)), k


@pytest.mark.parametrize("name", CASES)
def test_shapes_on_the_meta_device(name):
    case = CASES[name]
    with sf.device("meta"):
        model = class_of(case["class"])(**case["config"]).eval()
    with sf.no_grad():
        outputs, _ = call(model, case, lambda tensor, by_rule: tensor.to("meta"))
    assert {k: list(y.shape) for k, y in outputs.items()} == case["outputs"]
    assert all(y.is_meta for y in outputs.values())


# ---- signatures


@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name in COVERED for method in MODELS[name]["signatures"]]
)
def test_arguments_are_theirs(name, method):
    """Names, order and defaults; what differs is explained by the family's make_golden_models_*.py."""
    model = MODELS[name]
    wrong, stale = unexplained(
        parameters_of(getattr(class_of(name), method)),
        model["signatures"][method],
        model["differences"].get(method, {}),
    )
    assert not wrong, f"{name}.{method} differs from {model['library']}: {wrong}"
    assert not stale, f"{name}.{method}: these do not differ: {stale}"


@firsts
def test_config_fields_are_theirs(name):
    model = MODELS[name]
    with sf.device("meta"):
        config = fields_of(name, class_of(name)(**model["required"]).config)
    theirs = {**model["config"], **model["required"]}
    wrong, stale = unexplained({n: plain(v) for n, v in config.items()}, theirs, model["differences"].get("config", {}))
    assert not wrong, f"the config of {name} differs from {model['library']}: {wrong}"
    assert not stale, f"the config of {name}: these do not differ: {stale}"
