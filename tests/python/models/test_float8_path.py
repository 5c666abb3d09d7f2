"""quantize_fp8: which layers of a UNet become float8, that norms and GEGLU write it themselves, and how far its numbers
are from those in 16 bits. On the CPU by compositions; SF_TEST_DEVICE=cuda by the kernels."""

import os

import folders
import golden_pipelines
import pytest
import test_pipelines
from test_gpu_fusions import SMALL
from test_pipelines import one_thread  # noqa: F401

import scaffolding as sf
from scaffolding import cuda, nn
from scaffolding.diffusion import StableDiffusionPipeline
from scaffolding.models import UNet2DConditionModel
from scaffolding.profiler import profile

DEVICE = os.environ.get("SF_TEST_DEVICE", "cpu")
SHIPPED = folders.ROOT / "models" / "emoji-128"
BLOCKS = 4  # transformer blocks of that


def unet(dtype=sf.bfloat16):
    sf.manual_seed(0)
    return UNet2DConditionModel(**SMALL).eval().to(dtype).to(DEVICE)


def predict(model):
    sf.manual_seed(1)
    x, text = (sf.randn(*size).to(model.dtype).to(model.device) for size in ((2, 4, 8, 8), (2, 5, 16)))
    with sf.no_grad():
        return model(x, sf.tensor(7, device=model.device), text).sample.float().cpu()


def error(got, expected):
    return ((got - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", [sf.bfloat16, sf.float32])
def test_the_prediction_stays_near_that_in_16_bits(dtype):
    model = unet(dtype)
    expected = predict(model)
    assert model.quantize_fp8() is model
    assert 0 < error(predict(model), expected) < 0.03
    float8 = {name for name, m in model.named_modules() if isinstance(m, nn.LinearFP8)}
    assert len(float8) == 6 * BLOCKS
    assert {name.split("transformer_blocks.0.")[1] for name in float8} == {
        "attn1.to_q", "attn1.to_k", "attn1.to_v", "attn2.to_q", "ff.net.0.proj", "ff.net.2"
    }  # fmt: skip


def test_what_comes_before_a_float8_layer_quantises_its_own_result():
    if DEVICE != "cuda":
        pytest.skip("counts kernels of CUDA")
    model = unet()
    model.quantize_fp8()
    with profile() as prof:
        predict(model)
    calls = [e.key for e in prof.events()]
    assert (calls.count("layer_norm_fp8"), calls.count("geglu_fp8"), calls.count("scaled_product")) == (
        3 * BLOCKS,
        BLOCKS,
        4 * BLOCKS,
    )
    assert not {"fp8_quantize", "layer_norm", "glu", "fp8_dequantize"} & set(calls)


def test_kernels_give_what_the_ops_one_after_the_other_give():
    """In float32: with 16 bits a number between two codes falls on the other side where one more is rounded."""
    model = unet(sf.float32)
    model.quantize_fp8()
    fused = predict(model)
    for name, module in model.named_modules():  # what is looked at is called by itself
        if "transformer_blocks" in name and name.endswith(("norm1", "norm2", "norm3")):
            module.register_forward_hook(lambda *_: None)
    with profile() as prof:
        assert error(predict(model), fused) < 0.01
    assert DEVICE != "cuda" or sum(e.key == "fp8_quantize" for e in prof.events()) == 6 * BLOCKS


def test_a_quantised_denoiser_is_captured(monkeypatch):
    if DEVICE != "cuda":
        pytest.skip("graphs are CUDA's")
    monkeypatch.setattr(golden_pipelines, "made_networks", {})
    pipe = test_pipelines.make("StableDiffusionPipeline").to("cuda")
    call = {"num_inference_steps": 2, "output_type": "latent", "seed": 0}
    plain = pipe("the cat", **call).images.cpu()
    pipe.unet.quantize_fp8()
    quantised = pipe("the cat", **call, capture=False).images.cpu()
    assert 0 < error(quantised, plain) < 0.1
    assert (pipe("the cat", **call).images.cpu() == quantised).all() and pipe.cuda_graphs["captures"] == 2


def test_gradients_take_the_way_of_the_ops():
    model = unet(sf.float32)
    model.quantize_fp8()
    x = sf.randn(1, 4, 8, 8, device=DEVICE).requires_grad_()
    model(x, sf.tensor(7, device=DEVICE), sf.randn(1, 5, 16, device=DEVICE)).sample.square().mean().backward()
    assert sf.isfinite(x.grad).all() and x.grad.abs().max() > 0


def test_a_gpu_without_float8_products_is_refused(monkeypatch):
    if DEVICE != "cuda":
        pytest.skip("asks a GPU")
    monkeypatch.setattr(cuda, "get_device_capability", lambda device=None: (8, 6))
    model = unet()
    with pytest.raises(RuntimeError, match=r"need compute capability 8.9, and .* has 8.6"):
        model.quantize_fp8()
    assert not any(isinstance(m, nn.LinearFP8) for m in model.modules())


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(ValueError, match="has no Linear to replace"):
        UNet2DConditionModel(
            **{
                **SMALL,
                "down_block_types": ["DownBlock2D"] * 2,
                "up_block_types": ["UpBlock2D"] * 2,
                "mid_block_type": "UNetMidBlock2D",
            }
        ).quantize_fp8()


@pytest.mark.skipif(DEVICE != "cpu", reason="the emulator would take minutes for a picture")
def test_the_shipped_models_picture_changes_little():
    pipe = StableDiffusionPipeline.from_pretrained(SHIPPED)
    call = dict(num_inference_steps=6, seed=3, output_type="np")
    before = sf.tensor(pipe("a red apple", **call).images)
    pipe.unet.quantize_fp8()
    after = sf.tensor(pipe("a red apple", **call).images)
    difference = (after - before).abs().mean().item()  # of values in [0, 1]
    assert 0 < difference < 0.02
