"""GGUF's block formats against the gguf package and ggml (tests/golden/make_golden_gguf_blocks.py), and what is made of
them: products, layers, models, files.
"""

import math
import subprocess

import folders
import pytest
from packed import unpacked

import scaffolding as sf
from scaffolding import nn
from scaffolding.models import UNet2DConditionModel

SIMPLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
SEARCHED = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]
ALL = SIMPLE + SEARCHED


@pytest.fixture(scope="module")
def golden():
    return sf.safetensors.load(unpacked(folders.GOLDEN / "gguf_blocks.safetensors.xz"))


@pytest.mark.parametrize("name", SIMPLE)
def test_encoding_is_the_gguf_packages(golden, name):
    blocks = sf.quantize_gguf(golden["x"], name)
    assert blocks.dtype == sf.uint8 and sf.equal(blocks, golden[f"{name}.blocks"])


@pytest.mark.parametrize("name", ALL)
def test_decoding_is_the_gguf_packages(golden, name):
    some, want = golden[f"{name}.some"], golden[f"{name}.some.numbers"]
    assert sf.equal(sf.dequantize_gguf(some, name, want.shape), want)
    for dtype in (sf.bfloat16, sf.float16):
        assert sf.equal(sf.dequantize_gguf(some, name.lower(), want.shape, dtype), want.to(dtype))


@pytest.mark.parametrize("name", SEARCHED)
def test_encoding_errs_no_more_than_ggml(golden, name):
    x = golden["x"].float()
    numbers = sf.dequantize_gguf(sf.quantize_gguf(x, name), name, x.shape)
    error = ((numbers - x) ** 2).mean(-1).sqrt()
    assert (error <= 1.02 * golden[f"{name}.error"]).all().item()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 70])
def test_products_are_those_of_the_decoded_weight(name, rows):
    sf.manual_seed(0)
    k, n = 1792, 37  # several depths of the packing, and a ragged last strip
    w, x, bias = sf.randn(n, k) / 40, sf.randn(rows, k), sf.randn(n)
    blocks = sf.quantize_gguf(w, name)
    dense = sf.dequantize_gguf(blocks, name, (n, k))
    want = sf.nn.functional.linear(x.double(), dense.double(), bias.double())
    assert (sf.linear_gguf(x, blocks, bias, name) - want).abs().max().item() < 2e-5
    more = sf.randn(rows, n)
    got = sf.linear_gguf(x, blocks, bias, name, "silu", more)
    assert (got - sf.nn.functional.silu(want + more)).abs().max().item() < 2e-5
    for dtype, most in ((sf.bfloat16, 0.03), (sf.float16, 4e-3)):
        low = sf.linear_gguf(x.to(dtype), blocks, bias.to(dtype), name)
        exact = sf.nn.functional.linear(x.to(dtype).double(), dense.double(), bias.to(dtype).double())
        assert low.dtype == dtype and (low - exact).abs().max().item() < most


def test_gradients_pass_through_the_decoded_weight():
    sf.manual_seed(1)
    layer = nn.Linear(256, 24)
    model = nn.Sequential(layer)
    x = sf.randn(5, 256, requires_grad=True)
    nn.quantize_(model, "q4_K")
    quantised = model[0]
    (quantised(x) ** 2).sum().backward()
    dense = sf.dequantize_gguf(quantised.weight, "Q4_K", (24, 256))
    y = sf.tensor(x.tolist(), requires_grad=True)
    bias = sf.tensor(quantised.bias.tolist(), requires_grad=True)
    (sf.nn.functional.linear(y, dense, bias) ** 2).sum().backward()
    assert (x.grad - y.grad).abs().max().item() < 1e-4
    assert (quantised.bias.grad - bias.grad).abs().max().item() < 1e-4
    with pytest.raises(TypeError, match="only floating-point"):
        quantised.weight.requires_grad_(True)


def test_lora_beside_has_the_effect_of_float64():
    sf.manual_seed(2)
    w, x = sf.randn(64, 256) / 16, sf.randn(40, 256)
    down, up = sf.randn(4, 256) / 16, sf.randn(64, 4)
    blocks = sf.quantize_gguf(w, "Q4_0")
    side = 0.1 * sf.nn.functional.linear(sf.nn.functional.linear(x, down), up)
    effect = sf.linear_gguf(x, blocks, None, "Q4_0", "none", side) - sf.linear_gguf(x, blocks, None, "Q4_0")
    exact = 0.1 * sf.nn.functional.linear(sf.nn.functional.linear(x.double(), down.double()), up.double())
    assert ((effect - exact).norm() / exact.norm()).item() < 0.01


def small_unet():
    sf.manual_seed(3)
    return UNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, attention_head_dim=8, cross_attention_dim=32,
        norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()  # fmt: skip


def test_a_model_in_blocks_keeps_what_must_be_wide_and_comes_back(tmp_path):
    unet = small_unet()
    sample, text = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 32)
    with sf.no_grad():
        want = unet(sample, 10, text).sample
        nn.quantize_(unet, "q4_K", rules={"*attn2*": "q8_0", "mid_block.resnets.0.conv1": None})
        got = unet(sample, 10, text).sample
    kinds = {name: m for name, m in unet.named_modules() if type(m).__name__.endswith("GGUF")}
    assert kinds["down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_q"].format == "Q8_0"
    # 32 numbers fit no blocks of 256
    assert kinds["down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"].format in ("Q4_0", "IQ4_NL")
    assert kinds["down_blocks.1.resnets.0.conv2"].format == "Q4_K"
    assert not any("time_embedding" in name or name in ("conv_in", "conv_out") for name in kinds)
    assert "mid_block.resnets.0.conv1" not in kinds and "mid_block.resnets.0.conv2" in kinds
    error = ((got - want).norm() / want.norm()).item()
    assert 0 < error < 0.2, error
    unet.save_pretrained(tmp_path)
    again = UNet2DConditionModel.from_pretrained(tmp_path)
    with sf.no_grad():
        assert sf.equal(again(sample, 10, text).sample, got)
        half = again.to(sf.bfloat16)(sample.to(sf.bfloat16), 10, text.to(sf.bfloat16)).sample
    assert half.dtype == sf.bfloat16 and ((half.float() - got).norm() / got.norm()).item() < 0.05


@pytest.mark.parametrize(
    "kind, call",
    [
        ("format must be one of", lambda: sf.quantize_gguf(sf.randn(2, 32), "Q9_9")),
        ("whole blocks of 32", lambda: sf.quantize_gguf(sf.randn(2, 33), "Q8_0")),
        ("not finite", lambda: sf.quantize_gguf(sf.full((1, 32), math.nan), "Q8_0")),
        ("too large", lambda: sf.quantize_gguf(sf.full((1, 256), 3e38), "Q4_K")),
        ("needs 34 bytes", lambda: sf.dequantize_gguf(sf.zeros(33, dtype=sf.uint8), "Q8_0", (32,))),
        ("weight \\[N", lambda: sf.linear_gguf(sf.randn(2, 64), sf.zeros(3, 34, dtype=sf.uint8), None, "Q8_0")),
        ("has no Linear", lambda: nn.quantize_(nn.Sequential(nn.Linear(3, 3)), "q8_0")),
    ],
)
def test_what_cannot_be_is_refused(kind, call):
    with pytest.raises(ValueError, match=kind):
        call()


def test_files_stay_in_blocks_where_that_is_asked_for(tmp_path, build_dir):
    from scaffolding.diffusion import GGUFQuantizationConfig, StableDiffusionPipeline

    path = str(tmp_path / "small.gguf")
    subprocess.run(
        [build_dir / "scaffolding", "convert", folders.ROOT / "models/emoji-128", path, "--type", "q8_0"], check=True
    )
    config = GGUFQuantizationConfig(compute_dtype=sf.float32)
    kept = StableDiffusionPipeline.from_single_file(path, quantization_config=config)
    wide = StableDiffusionPipeline.from_single_file(path)
    layer = kept.unet.mid_block.attentions[0].transformer_blocks[0].attn2.to_k
    assert type(layer).__name__ == "LinearGGUF" and layer.format == "Q8_0" and layer.weight.dtype == sf.uint8
    assert kept.unet.dtype == wide.unet.dtype == sf.float32
    assert not any(type(m).__name__.endswith("GGUF") for m in wide.unet.modules())
    one, other = (p("red apple", num_inference_steps=2, seed=3, output_type="pt").images for p in (kept, wide))
    assert (one - other).abs().max().item() < 1e-3
    with pytest.raises(TypeError, match="must be a BitsAndBytesConfig, GGUF"):
        StableDiffusionPipeline.from_single_file(path, quantization_config={"load_in_4bit": True})


def test_large_convolutions_are_decoded_in_strips():
    """Kernels of more than two million numbers, a few output channels at a time: as the whole kernel does."""
    sf.manual_seed(8)
    model = nn.Sequential(nn.Conv2d(512, 560, 3, padding=1, padding_mode="circular"))
    dense = nn.Conv2d(512, 560, 3, padding=1, padding_mode="circular")
    nn.quantize_(model, "q8_0")
    layer = model[0]
    numbers = sf.dequantize_gguf(layer.weight, "Q8_0", (560, 512, 3, 3))
    dense.load_state_dict({"weight": numbers, "bias": layer.bias.detach()})
    with sf.no_grad():
        for size in ((2, 512, 6, 5), (512, 4, 4)):
            x = sf.randn(*size)
            got, want = model(x), dense(x)
            assert got.shape == want.shape and (got - want).abs().max().item() < 1e-4 * want.abs().max().item()
    x = sf.randn(1, 512, 5, 5, requires_grad=True)
    step = sf.randn(1, 560, 5, 5)
    model(x).backward(step)
    twin = x.detach().clone().requires_grad_()
    dense(twin).backward(step)
    assert (x.grad - twin.grad).norm().item() < 1e-4 * twin.grad.norm().item()
