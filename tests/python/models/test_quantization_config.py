"""Weights that are quantised while they are loaded, and FP4 and int8 as bitsandbytes gives and stores them
(tests/golden/make_golden_quantized_rows.py)."""

import subprocess
import sys

import folders
import pytest
from packed import unpacked

import scaffolding as sf
from scaffolding import nn, safetensors
from scaffolding.diffusion import StableDiffusionPipeline
from scaffolding.models import (
    BitsAndBytesConfig,
    GGUFQuantizationConfig,
    PipelineQuantizationConfig,
    QuantoConfig,
    TorchAoConfig,
    UNet2DConditionModel,
)

SHIPPED = folders.ROOT / "models" / "emoji-128"


@pytest.fixture(scope="module")
def golden():
    return safetensors.load(unpacked(folders.GOLDEN / "quantized_rows.safetensors.xz"))


def same(a, b):
    if str(a.dtype).startswith("scaffolding.float8"):
        return a.dtype == b.dtype and same(a.float(), b.float())
    return a.shape == b.shape and a.dtype == b.dtype and sf.equal(a, b)


def test_fp4_is_bitsandbytes(golden):
    codes, absmax = sf.quantize_fp4(golden["x"])
    assert same(codes, golden["fp4.codes"]) and same(absmax, golden["fp4.absmax"])
    assert same(sf.dequantize_fp4(codes, absmax, golden["x"].shape), golden["fp4.numbers"])


def test_int8_is_bitsandbytes(golden):
    codes, scale = sf.quantize_int8(golden["int8.x"])
    assert same(codes, golden["int8.codes"]) and same(scale, golden["int8.scale"])
    assert same(sf.dequantize_int8(codes, scale), golden["int8.numbers"])
    zeros, scale = sf.quantize_int8(golden["x"])
    assert scale[4].item() == 0 and zeros[4].abs().max().item() == 0


CONFIGS = {
    "nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "fp4": BitsAndBytesConfig(load_in_4bit=True),
    "int8": BitsAndBytesConfig(load_in_8bit=True),
    "Q8_0": GGUFQuantizationConfig(quant_type="q8_0"),
    "Q4_0 dynamic": GGUFQuantizationConfig(quant_type="q4_0", dynamic=True),
    "Q4_1": QuantoConfig("int4"),
    "float8_e4m3fn": TorchAoConfig("float8_weight_only"),
    "int8 of torchao": TorchAoConfig("int8_weight_only"),
    "int8 dynamic": TorchAoConfig("int8_dynamic_activation_int8_weight"),
}


def prediction(unet):
    g = sf.Generator().manual_seed(1)
    size = unet.config["sample_size"]
    x = sf.randn(2, unet.config["in_channels"], size, size, generator=g).to(unet.dtype)
    text = sf.randn(2, 7, unet.config["cross_attention_dim"], generator=g).to(unet.dtype)
    with sf.no_grad():
        return unet(x, sf.tensor([300]), text).sample.float()


@pytest.fixture(scope="module")
def full():
    return prediction(UNet2DConditionModel.from_pretrained(SHIPPED / "unet", torch_dtype=sf.float32))


# Of its largest noise: what the predictions may differ by.
BOUNDS = {"nf4": 0.2, "fp4": 0.35, "Q4_1": 0.2, "Q4_0 dynamic": 0.2, "float8_e4m3fn": 0.08}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_is_what_quantising_after_loading_makes(name, full):
    config = CONFIGS[name]
    unet = UNet2DConditionModel.from_pretrained(SHIPPED / "unet", torch_dtype=sf.float32, quantization_config=config)
    format, options = config._format()
    after = UNet2DConditionModel.from_pretrained(SHIPPED / "unet", torch_dtype=sf.float32)
    if format.startswith("Q"):
        nn.quantize_(after, format, **options)
    else:
        nn.quantize_(after, format, lambda m, layer: _core_rule(layer, format), **_quantize_options(options))
    got, want = unet.state_dict(), after.state_dict()
    assert got.keys() == want.keys() and all(same(got[k], want[k]) for k in got)
    noise = prediction(unet)
    assert same(noise, prediction(after))
    error = ((noise - full).norm() / full.norm()).item()
    assert 0 < error < BOUNDS.get(name, 0.03), error
    kinds = {type(m).__name__ for m in unet.modules()}
    assert ("Conv2dGGUF" in kinds) == (name in ("Q8_0", "Q4_0 dynamic"))
    assert all(m.dynamic == ("dynamic" in name) for m in unet.modules() if type(m).__name__ == "LinearGGUF")


def _core_rule(layer, format):
    return sf._core._quantized_format(layer, 1, format, []) != ""


def _quantize_options(options):
    return {k: v for k, v in options.items() if k in ("compress_statistics", "convolutions", "dynamic", "per_row")}


def test_names_and_rules_keep_layers_wide():
    config = BitsAndBytesConfig(
        load_in_8bit=True, llm_int8_skip_modules=["mid_block"], rules={"*attn2*": None, "*attn1.to_q": "nf4"}
    )
    unet = UNet2DConditionModel.from_pretrained(SHIPPED / "unet", quantization_config=config)
    kinds = {name: type(m).__name__ for name, m in unet.named_modules() if "Linear" in type(m).__name__}
    assert {k for n, k in kinds.items() if "time_embedding" in n or "attn2" in n} == {"Linear"}
    assert {k for n, k in kinds.items() if n.endswith("attn1.to_q")} == {"LinearNF4"}
    assert {k for n, k in kinds.items() if "mid_block" in n and "to_q" not in n} <= {"Linear"}
    assert {k for n, k in kinds.items() if n.endswith("attn1.to_k") and "mid" not in n} == {"LinearInt8"}


def test_a_pipeline_quantises_the_components_that_are_named():
    config = PipelineQuantizationConfig(
        quant_mapping={
            "unet": GGUFQuantizationConfig(quant_type="q8_0"),
            "text_encoder": BitsAndBytesConfig(load_in_8bit=True),
        }
    )
    pipe = StableDiffusionPipeline.from_pretrained("emoji-128", quantization_config=config)
    full = StableDiffusionPipeline.from_pretrained("emoji-128")
    kinds = lambda m: {type(layer).__name__ for layer in m.modules()}  # noqa: E731
    assert "Conv2dGGUF" in kinds(pipe.unet) and "LinearInt8" in kinds(pipe.text_encoder)
    assert kinds(pipe.vae) == kinds(full.vae)
    picture, want = (p("red apple", num_inference_steps=4, seed=7, output_type="pt").images for p in (pipe, full))
    assert 0 < (picture - want).abs().mean().item() < 0.02
    one = PipelineQuantizationConfig("quanto", {"weights_dtype": "int8"}, ["unet"])
    pipe = StableDiffusionPipeline.from_pretrained("emoji-128", quantization_config=one)
    assert "LinearInt8" in kinds(pipe.unet) and kinds(pipe.text_encoder) == kinds(full.text_encoder)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: BitsAndBytesConfig(), ValueError, "one of load_in_4bit and load_in_8bit"),
        (lambda: BitsAndBytesConfig(True, True), ValueError, "one of load_in_4bit and load_in_8bit"),
        (lambda: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="int4"), ValueError, "'nf4' or 'fp4'"),
        (lambda: BitsAndBytesConfig(load_in_8bit=True, llm_int8_has_fp16_weight=True), NotImplementedError, "16-bit"),
        (lambda: BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules="a"), TypeError, "a list of names"),
        (lambda: TorchAoConfig("int4wo"), NotImplementedError, "quant_type must be one of int8_weight_only"),
        (lambda: QuantoConfig("int2"), NotImplementedError, "weights_dtype must be one of int8, int4, float8"),
        (lambda: GGUFQuantizationConfig(quant_type="q9"), ValueError, "quant_type must be one of Q4_0"),
        (lambda: PipelineQuantizationConfig(), ValueError, "quant_backend or quant_mapping"),
        (lambda: PipelineQuantizationConfig("gptq", {}), ValueError, "quant_backend must be one of"),
        (lambda: PipelineQuantizationConfig(quant_mapping={"unet": "q8_0"}), TypeError, "the config of 'unet'"),
    ],
)
def test_configs_that_are_wrong_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_what_does_not_fit_is_refused(tmp_path):
    load = UNet2DConditionModel.from_pretrained
    with pytest.raises(TypeError, match="must be a BitsAndBytesConfig, GGUF"):
        load(SHIPPED / "unet", quantization_config="nf4")
    with pytest.raises(ValueError, match="needs quant_type"):
        load(SHIPPED / "unet", quantization_config=GGUFQuantizationConfig())
    with pytest.raises(ValueError, match="has no layer that it is for"):
        load(SHIPPED / "unet", quantization_config=QuantoConfig(rules={"*": None}))
    with pytest.raises(ValueError, match="must be one of nf4"):
        load(SHIPPED / "unet", quantization_config=QuantoConfig(rules={"*": "q9_9"}))
    with pytest.raises(TypeError, match="PipelineQuantizationConfig, got QuantoConfig"):
        StableDiffusionPipeline.from_pretrained("emoji-128", quantization_config=QuantoConfig())
    with pytest.raises(ValueError, match="'transformer', which is no network"):
        StableDiffusionPipeline.from_pretrained(
            "emoji-128", quantization_config=PipelineQuantizationConfig(quant_mapping={"transformer": QuantoConfig()})
        )
    load(SHIPPED / "unet", quantization_config=QuantoConfig()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="quantised already"):
        load(tmp_path, quantization_config=QuantoConfig())


PEAK = """
import sys
import scaffolding as sf
from scaffolding.models import UNet2DConditionModel, BitsAndBytesConfig, GGUFQuantizationConfig
config = {"nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
          "q8_0": GGUFQuantizationConfig(quant_type="q8_0"), "": None}[sys.argv[2]]
# getrusage's peak would be the parent's, where that was larger when it started this process.
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
small = UNet2DConditionModel.from_pretrained(sys.argv[3], quantization_config=config)  # what a first load needs once
before = peak()
model = UNet2DConditionModel.from_pretrained(sys.argv[1], torch_dtype=sf.bfloat16, quantization_config=config)
bytes = sum(t.numel() * t.element_size() for t in model.state_dict().values())
sizes = [m.in_features * m.out_features for m in model.modules() if hasattr(m, "in_features")]
largest = 2 * max(sizes + [m.weight.numel() for m in model.modules() if type(m).__name__.startswith("Conv2d")])
few = sum(t.numel() for t in model.state_dict().values() if t.dtype is sf.uint8)
print(peak() - before, bytes, largest, few)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A UNet of 1.3 GB in bfloat16, in a file."""
    place = tmp_path_factory.mktemp("large")
    config = dict(
        sample_size=16, block_out_channels=[320, 1280], down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
        up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"], cross_attention_dim=768, attention_head_dim=8,
        layers_per_block=2, transformer_layers_per_block=4,
    )  # fmt: skip
    with sf.device("meta"):  # drawing its values would take seconds
        model = UNet2DConditionModel(**config).to(sf.bfloat16)
    model = model.to_empty(device="cpu")
    with sf.no_grad():
        for i, weight in enumerate(model.parameters()):
            weight.fill_(0.01 + 0.001 * (i % 7))
    model.save_pretrained(place)
    return place


@pytest.mark.parametrize("format", ["nf4", "q8_0"])
def test_loading_needs_the_quantised_bytes_and_the_largest_tensor(format, large):
    run = [sys.executable, "-c", PEAK, str(large), format, str(SHIPPED / "unet")]
    peak, stored, largest, few = map(
        int, subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    )
    whole = sum(f.stat().st_size for f in large.glob("*.safetensors"))
    assert stored < 0.9 * whole and peak > 0.8 * few
    # What is not quantised is pages of the file.
    assert peak < few + largest + (200 << 20), (peak >> 20, few >> 20, largest >> 20)
