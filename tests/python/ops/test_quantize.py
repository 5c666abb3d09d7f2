"""Quantised storage against bitsandbytes and PyTorch (tests/golden/make_golden_quantize.py), and models made of it.
SF_TEST_DEVICE=cuda repeats it there.
"""

import hashlib
import os

import folders
import pytest
from packed import unpacked

import scaffolding as sf
from scaffolding import nn
from scaffolding.models import UNet2DConditionModel

DEVICE = os.environ.get("SF_TEST_DEVICE", "cpu")


@pytest.fixture(scope="module")
def golden():
    data = unpacked(folders.GOLDEN / "quantize.safetensors.xz")
    return {name: tensor.to(DEVICE) for name, tensor in sf.safetensors.load(data).items()}


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and sf.equal(a.cpu(), b.cpu())


def has_digest(tensor, sha256):
    raw = bytes(tensor.cpu().contiguous().flatten().view(sf.uint8).tolist())
    return hashlib.sha256(raw).digest() == bytes(sha256.tolist())


@pytest.mark.parametrize("name", ["whole", "large", "zeros"])
def test_nf4_is_bitsandbytes(golden, name):
    x = golden[f"{name}.x"]
    codes, absmax = sf.quantize_nf4(x)
    assert same(codes, golden[f"{name}.codes"]) and same(absmax, golden[f"{name}.absmax"])
    numbers = sf.dequantize_nf4(codes, absmax, x.shape, x.dtype)
    assert numbers.shape == x.shape and numbers.dtype == x.dtype
    assert has_digest(numbers, golden[f"{name}.numbers.sha256"])
    nested = {k: golden[f"{name}.nested.{k}"] for k in ("absmax", "nested_absmax", "offset")}
    numbers = sf.dequantize_nf4(
        codes, nested["absmax"], x.shape, x.dtype, nested_absmax=nested["nested_absmax"], offset=nested["offset"]
    )
    expected = golden[f"{name}.nested.numbers"].float()
    assert (numbers[-24:].float() - expected).abs().max().item() <= 2**-8 * expected.abs().max().item() * (
        x.dtype is not sf.float32
    ) + 1e-6


@pytest.mark.parametrize("name", ["whole", "large", "zeros"])
def test_the_dynamic_map_is_bitsandbytes(golden, name):
    every = sf.arange(256, dtype=sf.int32).to(sf.uint8).to(DEVICE)
    assert same(sf.dequantize_blockwise(every, sf.ones(1, device=DEVICE)), golden["dynamic_map"])
    x = golden[f"{name}.x"].float()
    codes, absmax = sf.quantize_blockwise(x)
    assert same(absmax, golden[f"{name}.eight.absmax"])
    wrong = (codes.to(sf.int32) - golden[f"{name}.eight"].to(sf.int32)).abs()
    # where two numbers are equally near but for the last bit
    assert wrong.max().item() <= 1 and (wrong > 0).sum().item() <= x.numel() / 1000
    numbers = sf.dequantize_blockwise(golden[f"{name}.eight"], absmax)
    assert numbers.shape == x.shape and numbers.dtype == x.dtype
    assert has_digest(numbers, golden[f"{name}.eight.numbers.sha256"])


@pytest.mark.parametrize("kind, dtype", [("e4m3", sf.float8_e4m3fn), ("e5m2", sf.float8_e5m2)])
@pytest.mark.parametrize("how", ["tensor", "row"])
def test_float8_is_torch(golden, kind, dtype, how):
    q, scale = sf.quantize_fp8(golden[f"{kind}.x"], dtype, per_row=how == "row")
    assert same(scale, golden[f"{kind}.{how}.scale"])
    assert same(q.float(), golden[f"{kind}.{how}.q"].float()) and q.dtype is dtype
    assert same(sf.dequantize_fp8(q, scale), golden[f"{kind}.{how}.numbers"])


def layer(dtype=sf.float32):
    sf.manual_seed(2)
    return nn.Sequential(nn.Linear(96, 80)).to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", [sf.float32, sf.bfloat16])
@pytest.mark.parametrize(
    "how",
    [
        {"dtype": "nf4"},
        {"dtype": "nf4", "compress_statistics": False},
        {"dtype": sf.float8_e4m3fn},
        {"dtype": "float8_e5m2", "per_row": False},
    ],
)
def test_a_quantised_layer_is_linear_of_the_dequantised_weight(dtype, how):
    net, dense = layer(dtype), layer(dtype)[0]
    assert nn.quantize_(net, **how) is net
    q = net[0]
    if how["dtype"] == "nf4":
        assert type(q) is nn.LinearNF4
        weight = sf.dequantize_nf4(q.weight, q.absmax, (80, 96), dtype, nested_absmax=q.nested_absmax, offset=q.offset)
    else:
        assert type(q) is nn.LinearFP8
        weight = sf.dequantize_fp8(q.weight, q.scale, dtype)
    bound = {"nf4": 0.12, "float8_e5m2": 0.08}.get(how["dtype"], 0.04)
    assert (weight - dense.weight).float().norm().item() < bound * dense.weight.float().norm().item()
    x = sf.randn(3, 7, 96).to(dtype).to(DEVICE).requires_grad_()
    twin = x.detach().clone().requires_grad_()
    y, want = net(x), nn.functional.linear(twin, weight, dense.bias)
    if dtype is sf.float32 or DEVICE != "cpu":
        assert same(y.detach(), want.detach())
    else:  # the weight is not rounded to 16 bits on the way
        if how["dtype"] == "nf4":
            nested = {"nested_absmax": q.nested_absmax, "offset": q.offset}
            exact = sf.dequantize_nf4(q.weight, q.absmax, (80, 96), sf.float32, **nested)
        else:
            exact = sf.dequantize_fp8(q.weight, q.scale)
        wide = nn.functional.linear(twin.detach().float(), exact, dense.bias.detach().float())
        assert (y.detach().float() - wide).abs().max().item() <= 2**-8 * wide.abs().max().item()
    step = sf.randn(3, 7, 80).to(dtype).to(DEVICE)
    y.backward(step)
    want.backward(step)
    assert sf.allclose(x.grad.float(), twin.grad.float(), rtol=1e-2 if dtype is sf.bfloat16 else 1e-5, atol=1e-4)
    assert sf.allclose(
        q.bias.grad.float(), dense.bias.grad.float(), rtol=1e-2 if dtype is sf.bfloat16 else 1e-5, atol=1e-4
    )
    assert [name for name, _ in net.named_parameters()] == ["0.bias"]
    again = nn.quantize_(layer(dtype), **how)
    again.load_state_dict(net.state_dict())
    assert same(again(x.detach()), y.detach())


@pytest.mark.parametrize("per_row", [False, True])
def test_dynamic_float8_quantises_the_input_too(per_row):
    net, dense = layer(sf.bfloat16), layer(sf.bfloat16)[0]
    nn.quantize_(net, sf.float8_e4m3fn, per_row=per_row, dynamic=True)
    x = sf.randn(32, 96).bfloat16().to(DEVICE)
    q, scale = sf.quantize_fp8(x, per_row=per_row)
    weight = sf.dequantize_fp8(net[0].weight, net[0].scale)
    want = sf.dequantize_fp8(q, scale).cpu() @ weight.t().cpu() + dense.bias.float().cpu()
    got = net(x)
    assert got.dtype is sf.bfloat16
    assert (got.float().cpu() - want).norm().item() < 4e-3 * want.norm().item()


def test_a_whole_model_is_quantised_and_its_weights_are_gone():
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=[32, 64], down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
        up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"], cross_attention_dim=32, attention_head_dim=8,
        norm_num_groups=8, layers_per_block=1,
    ).to(DEVICE)  # fmt: skip
    x, t, text = sf.randn(1, 4, 8, 8).to(DEVICE), sf.tensor([3]).to(DEVICE), sf.randn(1, 5, 32).to(DEVICE)
    layers = {name: m for name, m in unet.named_modules() if type(m) is nn.Linear}
    before = sum(m.weight.numel() * 4 for m in layers.values())
    with sf.no_grad():
        want = unet(x, t, text).sample
    nn.quantize_(unet, "nf4", lambda module, name: not name.startswith("time_embedding"))
    assert type(unet.time_embedding.linear_1) is nn.Linear
    quantized = {name: m for name, m in unet.named_modules() if type(m) is nn.LinearNF4}
    assert set(quantized) == {name for name in layers if not name.startswith("time_embedding")}
    assert all(m.weight.numel() == 0 for name, m in layers.items() if name in quantized)
    after = sum(b.numel() * b.element_size() for m in quantized.values() for b in m.buffers())
    assert after < 0.15 * before
    with sf.no_grad():
        got = unet(x, t, text).sample  # each of them is called: the dense weights have no elements any more
    difference = (got - want).cpu().norm().item() / want.cpu().norm().item()
    assert 1e-4 < difference < 0.15
    calls = []
    for name, m in quantized.items():
        m.register_forward_hook(lambda module, arguments, result, name=name: calls.append(name))
    with sf.no_grad():
        unet(x, t, text)
    assert set(calls) == set(quantized)


def test_a_model_whose_weights_no_object_holds_is_quantised():
    """A weight's Python object is made when somebody asks for it and may have had another's id."""
    model = sf.models.UNet2DConditionModel(
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        cross_attention_dim=32,
        attention_head_dim=(2, 4),
        transformer_layers_per_block=(1, 1),
        use_linear_projection=True,
    )
    linear = sum(type(m) is sf.nn.Linear for m in model.modules())
    quantized = sf.nn.quantize_(model, "float8_e4m3fn")
    assert sum(type(m) is sf.nn.LinearFP8 for m in quantized.modules()) == linear > 20


def test_what_cannot_be_is_refused():
    with pytest.raises(TypeError, match="one of nf4, fp4, int8, float8_e4m3fn, float8_e5m2, Q4_0, .*, got 'int4'"):
        nn.quantize_(layer(), "int4")
    with pytest.raises(ValueError, match="quantize_: ReLU has no Linear to replace"):
        nn.quantize_(nn.ReLU())
    net = nn.quantize_(layer(), "float8_e4m3fn")
    with pytest.raises(
        TypeError, match="weight was converted to bfloat16; convert a model to another dtype before it is quantised"
    ):
        net.to(sf.bfloat16)(sf.randn(2, 96).to(DEVICE).bfloat16())
    with pytest.raises(RuntimeError, match="linear_nf4: a weight in four bits"):
        codes, absmax = sf.quantize_nf4(sf.randn(4, 32))
        sf.linear_nf4(sf.randn(2, 32), codes, absmax.requires_grad_(), None, None, None, 4)
