"""Single files whose weights are float8 or int8 with scales beside, as ComfyUI's tools write them."""

import json

import pytest

import scaffolding as sf
from scaffolding import nn, safetensors
from scaffolding.diffusion import StableDiffusionPipeline
from scaffolding.models import GGUFQuantizationConfig

LAYER = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "one.safetensors"
    StableDiffusionPipeline.from_pretrained("emoji-128").save_single_file(path)
    with safetensors.safe_open(path, framework="sf") as file:
        return safetensors.load_file(path), file.metadata()


def is_linear(name, t):
    return name.startswith("unet.") and name.endswith(".weight") and t.ndim == 2 and "time_embedding" not in name


def rewritten(tensors, how, metadata):
    """{name: tensor} with linear weights in few bits, what they stand for, and the metadata."""
    out, numbers, layers = {}, {}, {}
    for name, t in tensors.items():
        if not is_linear(name, t):
            out[name] = t
            continue
        layer = name.removesuffix(".weight")
        if how == "int8_tensorwise":
            scale = t.float().abs().max() / 127
            q = (t.float() / scale).round().to(sf.int8)
            numbers[name] = q.float() * scale
        else:
            dtype = sf.float8_e5m2 if how.endswith("e5m2") else sf.float8_e4m3fn
            q, scale = sf.quantize_fp8(t.float(), dtype, per_row=how == "rows")
            numbers[name] = sf.dequantize_fp8(q, scale)
        out[name] = q
        if how == "rows":
            out[layer + ".weight_scale"] = scale.reshape(-1)
        elif how in ("comfy_quant", "metadata", "int8_tensorwise"):
            out[layer + ".weight_scale"] = scale
        else:
            out[layer + ".scale_weight"] = scale
        format = how if how == "int8_tensorwise" else "float8_e4m3fn"
        if how in ("comfy_quant", "int8_tensorwise"):
            out[layer + ".comfy_quant"] = sf.tensor(list(json.dumps({"format": format}).encode()), dtype=sf.uint8)
        layers[layer] = {"format": format}
    if how.startswith("scaled"):
        out["scaled_fp8"] = sf.zeros(2).to(sf.float8_e4m3fn)
    if how == "metadata":
        metadata = {**metadata, "_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}
    return out, numbers, metadata


@pytest.mark.parametrize("how", ["scaled", "scaled e5m2", "rows", "comfy_quant", "metadata", "int8_tensorwise"])
def test_the_numbers_are_those_of_codes_and_scales(how, whole, tmp_path):
    tensors, metadata = whole
    out, numbers, metadata = rewritten(tensors, how, metadata)
    safetensors.save_file(out, tmp_path / "few.safetensors", metadata)
    pipe = StableDiffusionPipeline.from_single_file(tmp_path / "few.safetensors")
    state = pipe.unet.state_dict()
    for name, want in numbers.items():
        assert sf.equal(state[name.removeprefix("unet.")].float(), want), name
    kept = StableDiffusionPipeline.from_single_file(
        tmp_path / "few.safetensors", quantization_config=GGUFQuantizationConfig()
    )
    kinds = {type(m) for m in kept.unet.modules()}
    assert (nn.LinearInt8 if how == "int8_tensorwise" else nn.LinearFP8) in kinds
    bytes_of = lambda m: sum(t.numel() * t.element_size() for t in m.state_dict().values())  # noqa: E731
    assert bytes_of(kept.unet) < bytes_of(pipe.unet)
    picture, want = (
        p("red apple", num_inference_steps=2, seed=7, output_type="pt").images.float() for p in (kept, pipe)
    )
    assert (picture - want).abs().max().item() < 0.01


def test_rotated_weights_are_turned_back(whole, tmp_path):
    """ConvRot: groups of a row times a Kronecker power of the regular Hadamard matrix of order 4."""
    tensors, metadata = whole
    four = sf.tensor([[1.0, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]) / 2
    out, numbers = dict(tensors), {}
    for name, t in tensors.items():
        if not is_linear(name, t) or t.shape[1] % 16:
            continue
        size = 64 if t.shape[1] % 64 == 0 else 16
        turn = four
        while turn.shape[0] < size:
            turn = sf.kron(turn, four)
        rotated = (t.float().reshape(-1, size) @ turn.t()).reshape(t.shape)
        scale = rotated.abs().amax(1, keepdim=True) / 127
        out[name] = (rotated / scale).round().to(sf.int8)
        layer = name.removesuffix(".weight")
        out[layer + ".weight_scale"] = scale
        facts = {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": size}
        out[layer + ".comfy_quant"] = sf.tensor(list(json.dumps(facts).encode()), dtype=sf.uint8)
        numbers[name] = ((out[name].float() * scale).reshape(-1, size) @ turn).reshape(t.shape), t.float()
    safetensors.save_file(out, tmp_path / "turned.safetensors", metadata)
    assert len(numbers) > 20
    for config in (None, GGUFQuantizationConfig()):  # what is turned back lies in no blocks
        pipe = StableDiffusionPipeline.from_single_file(tmp_path / "turned.safetensors", quantization_config=config)
        state = pipe.unet.state_dict()
        for name, (want, full) in numbers.items():
            got = state[name.removeprefix("unet.")].float()
            assert (got - want).abs().max().item() < 2e-6 * want.abs().max().item() + 1e-7, name
            assert (got - full).norm().item() < 0.02 * full.norm().item(), name


def one(name, value):
    return lambda tensors, metadata: tensors.__setitem__(LAYER + name, value)


def text(facts):
    return sf.tensor(list(facts.encode()), dtype=sf.uint8)


DAMAGE = [
    (one(".scale_weight", sf.tensor(float("nan"))), ValueError, "must be finite, got nan"),
    (one(".scale_weight", sf.ones(3)), ValueError, "must be one number, or one for each of"),
    (one(".scale_weight", sf.ones(1, dtype=sf.int32)), ValueError, "must be one number"),
    (one(".nobody.scale_weight", sf.ones(1)), ValueError, "is a scale, and there is no"),
    (one(".comfy_quant", text("{")), ValueError, "is no JSON"),
    (one(".comfy_quant", text("[" * 60000)), ValueError, "JSON|must be an object"),
    (one(".comfy_quant", text("[]")), ValueError, "must be an object with a format"),
    (one(".comfy_quant", sf.zeros(3)), ValueError, "bytes of a JSON text"),
    (one(".comfy_quant", text('{"format": "nvfp4"}')), NotImplementedError, "'nvfp4' are not read"),
    (one(".comfy_quant", text('{"format": "float8_e4m3fn", "convrot": true}')), ValueError, "int8 weights alone"),
    *(
        (
            one(".comfy_quant", text('{"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": %s}' % size)),
            ValueError,
            "power of 4",
        )
        for size in ("0", "-4", "8", "4096", "1e99", '"256"')
    ),
    (one(".comfy_quant", text('{"format": "int8_tensorwise", "convrot": 7}')), ValueError, "power of 4"),
    (one(".wscales", sf.ones(3)), NotImplementedError, "SVDQuant .Nunchaku., whose packed weights are not read"),
    (lambda t, m: m.update(_quantization_metadata="7"), ValueError, "has no layers"),
    (lambda t, m: m.update(_quantization_metadata="{"), ValueError, "is no JSON"),
]


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_files_that_are_wrong_are_refused(number, whole, tmp_path):
    damage, error, message = DAMAGE[number]
    tensors, metadata = whole
    out, _, metadata = rewritten(tensors, "scaled", dict(metadata))
    damage(out, metadata)
    safetensors.save_file(out, tmp_path / "few.safetensors", metadata)
    with pytest.raises(error, match=message):
        StableDiffusionPipeline.from_single_file(tmp_path / "few.safetensors")
