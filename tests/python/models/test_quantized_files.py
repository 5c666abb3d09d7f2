"""Models of quantised layers in folders: as bitsandbytes writes NF4, and float8."""

import json
import os
import shutil

import pytest

import scaffolding as sf
from scaffolding import nn, safetensors
from scaffolding.models import UNet2DConditionModel

DEVICE = os.environ.get("SF_TEST_DEVICE", "cpu")
STATE = ".weight.quant_state.bitsandbytes__nf4"


def small_unet():
    return UNet2DConditionModel(
        sample_size=8, block_out_channels=[32, 64], down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
        up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"], cross_attention_dim=32, attention_head_dim=8,
        norm_num_groups=8, layers_per_block=1,
    ).eval()  # fmt: skip


def run(unet):
    g = sf.Generator().manual_seed(1)
    x, text = (
        sf.randn(1, 4, 8, 8, generator=g).to(unet.device).to(unet.dtype),
        sf.randn(1, 5, 32, generator=g).to(unet.device).to(unet.dtype),
    )
    with sf.no_grad():
        return unet(x, sf.tensor([3]).to(unet.device), text).sample.float().cpu().flatten().tolist()


def plain(module, name):
    return not name.startswith("time_embedding")


WAYS = {
    "fp4": dict(dtype="fp4"),
    "int8": dict(dtype="int8"),
    "int8, dynamic": dict(dtype="int8", dynamic=True),
    "nf4": dict(dtype="nf4"),
    "nf4 with whole magnitudes": dict(dtype="nf4", compress_statistics=False),
    "float8": dict(dtype="float8_e4m3fn"),
    "Q8_0, dynamic": dict(dtype="q8_0", dynamic=True),
    "Q4_K": dict(dtype="q4_K"),
    "float8 e5m2, one scale, dynamic": dict(dtype="float8_e5m2", per_row=False, dynamic=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_comes_back_as_it_was(way, tmp_path):
    unet = nn.quantize_(small_unet().to(sf.bfloat16).to(DEVICE), filter_fn=plain, **WAYS[way])
    want = run(unet)
    unet.save_pretrained(tmp_path)
    again = UNet2DConditionModel.from_pretrained(tmp_path, device=DEVICE)
    assert run(again) == want and not again.training
    kinds = {name: (type(m), m.extra_repr()) for name, m in unet.named_modules() if name}
    assert {name: (type(m), m.extra_repr()) for name, m in again.named_modules() if name} == kinds
    assert {k: str(v.dtype) for k, v in again.state_dict().items()} == {
        k: str(v.dtype) for k, v in unet.state_dict().items()
    }
    again.save_pretrained(tmp_path / "again")
    name = "diffusion_pytorch_model.safetensors"
    assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert (tmp_path / "again" / "config.json").read_text() == (tmp_path / "config.json").read_text()


def test_convolutions_in_int8(tmp_path):
    dense, unet = small_unet(), small_unet()
    unet.load_state_dict(dense.state_dict())
    nn.quantize_(unet, "int8", dynamic=True)
    kinds = {name: type(m) for name, m in unet.named_modules()}
    convolutions = [name for name, kind in kinds.items() if kind is nn.Conv2dInt8]
    assert len(convolutions) > 8 and kinds["conv_in"] is kinds["conv_out"] is nn.Conv2d
    assert not [n for n, k in kinds.items() if k is nn.Conv2d and n not in ("conv_in", "conv_out")]
    full, got = run(dense), run(unet)
    error = sum((a - b) ** 2 for a, b in zip(full, got, strict=True)) ** 0.5 / sum(a * a for a in full) ** 0.5
    assert 0 < error < 0.05, error
    unet.save_pretrained(tmp_path)
    again = UNet2DConditionModel.from_pretrained(tmp_path)
    assert run(again) == got and {name: type(m) for name, m in again.named_modules()} == kinds
    linear = nn.quantize_(small_unet(), "int8", dynamic=True, convolutions=False)
    assert not any(type(m) is nn.Conv2dInt8 for m in linear.modules())
    with pytest.raises(ValueError, match="groups must be 1"):
        nn.Conv2dInt8(8, 8, 3, groups=2)


def test_other_tensors_take_another_dtype_and_shards_are_found(tmp_path):
    unet = nn.quantize_(small_unet().to(sf.bfloat16), "nf4", plain)
    unet.save_pretrained(tmp_path, max_shard_size=100_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    wide = UNet2DConditionModel.from_pretrained(tmp_path, torch_dtype=sf.float32)
    assert wide.dtype == sf.float32 and wide.conv_in.weight.dtype == sf.float32
    assert max(abs(a - b) for a, b in zip(run(wide), run(unet), strict=True)) < 0.1
    layer = next(m for m in wide.modules() if type(m) is nn.LinearNF4)
    assert layer.weight.dtype == layer.absmax.dtype == sf.uint8 and layer.nested_absmax.dtype == sf.float32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("quantised")
    nn.quantize_(small_unet().to(sf.bfloat16), "nf4", plain).save_pretrained(place)
    return place


NAME = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q"


def said(change):
    """Changes what the JSON text of a layer says."""

    def f(tensors, config):
        facts = json.loads(bytes(tensors[NAME + STATE].tolist()))
        change(facts)
        tensors[NAME + STATE] = sf.tensor(list(json.dumps(facts).encode()), dtype=sf.uint8)

    return f


def tensor(part, value):
    return lambda tensors, config: tensors.__setitem__(NAME + part, value)


DAMAGE = [
    (said(lambda f: f.update(shape=[1 << 40, 1 << 40])), ValueError, "shape must be"),
    (said(lambda f: f.update(blocksize=0)), ValueError, "blocksize must be 64"),
    (said(lambda f: f.update(quant_type="fp4")), ValueError, "quant_type must be 'nf4'"),
    (said(lambda f: f.update(nested_offset=float("nan"))), ValueError, "nested_offset a number"),
    (said(lambda f: f.update(nested_blocksize=2)), ValueError, "nested_blocksize must be 256"),
    (tensor(STATE, sf.tensor(list(b"[" * 60000), dtype=sf.uint8)), ValueError, "no JSON object"),
    (tensor(STATE, sf.tensor(list(b"7"), dtype=sf.uint8)), ValueError, "no JSON object"),
    (tensor(STATE, sf.zeros(1 << 17, dtype=sf.uint8)), ValueError, "bytes of a JSON text"),
    (tensor(STATE, sf.zeros(3)), ValueError, "bytes of a JSON text"),
    (tensor(".weight", sf.zeros(5, 1, dtype=sf.uint8)), ValueError, "to_q.weight must be uint8"),
    (tensor(".weight.absmax", sf.zeros(64)), ValueError, "absmax must be uint8"),
    (tensor(".weight.nested_absmax", sf.zeros(9)), ValueError, "nested_absmax must be float32"),
    (tensor(".weight.quant_map", sf.zeros(16)), ValueError, "another table"),
    (tensor(".weight.nested_quant_map", sf.zeros(256)), ValueError, "another table"),
    (lambda t, c: t.pop(NAME + ".weight.absmax"), ValueError, "lacks"),
    (lambda t, c: t.pop("conv_in.bias"), RuntimeError, "conv_in.bias"),
    (lambda t, c: t.update({"nobody" + STATE: t[NAME + STATE]}), ValueError, "no Linear of that name"),
    (lambda t, c: c.update(quantization_config="nf4"), NotImplementedError, "quant_method must be"),
    (lambda t, c: c["quantization_config"].update(quant_method="gptq"), NotImplementedError, "got 'gptq'"),
    (lambda t, c: c["quantization_config"].update(bnb_4bit_quant_type="fp4"), ValueError, "'fp4', and layers .* nf4"),
    (lambda t, c: c["quantization_config"].update(bnb_4bit_quant_type="int4"), NotImplementedError, "nf4 or fp4"),
    (lambda t, c: c["quantization_config"].update(load_in_4bit=False), ValueError, "one of load_in_4bit and"),
    (
        lambda t, c: c.update(quantization_config={"quant_method": "scaffolding", "layers": [1]}),
        ValueError,
        "layers must be",
    ),
    (
        lambda t, c: c.update(
            quantization_config={"quant_method": "scaffolding", "layers": {NAME: {"dynamic": False}}}
        ),
        ValueError,
        "float8",
    ),
]


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_files_that_are_wrong_are_refused(number, folder, tmp_path):
    damage, error, message = DAMAGE[number]
    file = "diffusion_pytorch_model.safetensors"
    tensors, config = safetensors.load_file(folder / file), json.loads((folder / "config.json").read_text())
    damage(tensors, config)
    safetensors.save_file(tensors, tmp_path / file)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=message):
        UNet2DConditionModel.from_pretrained(tmp_path)


def test_what_cannot_be_saved_is_refused(tmp_path):
    unet = nn.quantize_(small_unet().to(sf.bfloat16), "nf4", plain)
    with pytest.raises(ValueError, match="safe_serialization=True"):
        unet.save_pretrained(tmp_path / "a", safe_serialization=False)
    nn.quantize_(unet, "float8_e4m3fn")
    with pytest.raises(ValueError, match="no common file format"):
        unet.save_pretrained(tmp_path / "b")
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_cut_files_are_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    file = tmp_path / "copy" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError):
        UNet2DConditionModel.from_pretrained(tmp_path / "copy")


def test_a_quantised_pipeline_is_no_single_file(tmp_path):
    from scaffolding.diffusion import StableDiffusionPipeline

    pipe = StableDiffusionPipeline.from_pretrained("emoji-128")
    nn.quantize_(pipe.unet, "q8_0")
    with pytest.raises(NotImplementedError, match="is quantised"):
        pipe.save_single_file(tmp_path / "one.safetensors")
    assert not list(tmp_path.iterdir())
