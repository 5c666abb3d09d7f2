"""y = Wx + s B(Ax) of one layer and of a network, against float64: beside weights of every dtype the LoRA adds no error
of its own.
"""

import numpy as np
import pytest

import scaffolding as sf
from scaffolding.models import UNet2DConditionModel

BLOCK = "mid_block.attentions.0"
LINEAR = {"query": f"{BLOCK}.transformer_blocks.0.attn1.to_q", "wide": f"{BLOCK}.transformer_blocks.0.ff.net.2"}
CONV = {"1x1": f"{BLOCK}.proj_in", "3x3": "mid_block.resnets.0.conv1", "strided": "down_blocks.0.downsamplers.0.conv"}
DENSE = ["float32", "bfloat16", "float16"]
RANKS = {"rank 1": [1], "rank 4": [4], "rank 64": [64], "three": [1, 4, 64]}
STRENGTHS = [0.7, 0.4, -1.25]
ALPHA = 3.0
# Of the bare layer's error. Where a LoRA gives as much as the layer, sums of float32 stay what they are; in 16 bits A,
# B and what lies between them are rounded too, each of which is of the order of rounding the output.
MORE = {"float32": 1.5}
MORE_IN_16_BITS = 2
# Most of its error comes from elsewhere, but less of it by tiles (AMX).
TILES = "avx512amx" in sf.backends.cpu.instruction_sets()
MORE_IN_A_NETWORK = 1.5 if TILES else 1.25


def network(dtype):
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=[64, 128],
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=4,
        cross_attention_dim=64,
        down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"],
    ).eval()
    unet.requires_grad_(False)
    if dtype in (*DENSE, "float64"):
        return unet.to(getattr(sf, dtype))
    return sf.nn.quantize_(unet.to(sf.bfloat16), dtype)


def exact(layer):
    """The layer's weight in float64, as it is after quantising."""
    if hasattr(layer, "absmax"):
        shape = (layer.out_features, layer.in_features)
        nested = {"nested_absmax": layer.nested_absmax, "offset": layer.offset}
        return sf.dequantize_nf4(layer.weight, layer.absmax, shape, sf.float32, **nested).numpy().astype(float)
    if hasattr(layer, "scale"):
        return sf.dequantize_fp8(layer.weight, layer.scale, sf.float32).numpy().astype(float)
    return layer.weight.float().numpy().astype(float)


def product(x, weight, layer):
    """x @ weight^T, or the convolution, in float64."""
    if weight.ndim == 2:
        return x @ weight.T
    (size, _), (step, _), (edge, _) = weight.shape[2:], layer.stride, layer.padding
    x = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::step, ::step]
    return np.einsum("bchwij,ocij->bohw", windows, weight)


def error(got, want):
    return np.sqrt(np.mean((got.double().numpy() - want) ** 2) / np.mean(want**2))


def rounded(array, dtype):
    return sf.tensor(array.astype(np.float32)).to(dtype)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype, place", [
    *((d, p) for d in DENSE for p in (LINEAR | CONV).values()),
    *((d, p) for d in ("float8_e4m3fn", "float8_e5m2", "nf4") for p in LINEAR.values()),
])  # fmt: skip
def test_a_layer_with_loras_is_as_exact_as_without(dtype, place, ranks):
    unet = network(dtype)
    layer, generator = unet.get_submodule(place), np.random.default_rng(0)
    kind, weight = unet.dtype, exact(unet.get_submodule(place))
    shape = (3, 50, weight.shape[1]) if weight.ndim == 2 else (2, weight.shape[1], 8, 8)
    x = rounded(generator.normal(size=shape), kind)
    inputs = x.float().numpy().astype(float)
    bias = layer.bias.float().numpy().astype(float) if layer.bias is not None else np.zeros(1)
    want = product(inputs, weight, layer) + bias.reshape(-1, *[1] * (weight.ndim - 2))
    bare, own = error(layer(x), want), want.std()
    names = [f"rank {rank}" for rank in RANKS[ranks]]
    for name, rank in zip(names, RANKS[ranks]):
        # A and B in half precision, as files have them; together they add about as much as the layer itself gives
        a = rounded(generator.normal(size=(rank, *weight.shape[1:])) / np.sqrt(weight[0].size), sf.float16)
        strength = STRENGTHS[len(names) > 1 and names.index(name)] * ALPHA / rank
        loud = own / (abs(strength) * np.sqrt(rank * len(names)))
        b = rounded(generator.normal(size=(len(weight), rank, *[1] * (weight.ndim - 2))) * loud, sf.float16)
        state = {f"unet.{place}.lora_A.weight": a, f"unet.{place}.lora_B.weight": b}
        metadata = {"r": rank, "lora_alpha": ALPHA}
        unet.load_lora_adapter(state, prefix="unet", adapter_name=name, metadata=metadata)
        low = product(inputs, a.float().numpy().astype(float), layer)
        up = b.float().numpy().astype(float).reshape(len(weight), rank)
        want = want + strength * np.moveaxis(np.tensordot(up, low, (1, low.ndim - 1 if weight.ndim == 2 else 1)), 0,
                                             -1 if weight.ndim == 2 else 1)  # fmt: skip
    unet.set_adapters(names, STRENGTHS[: len(names)])
    assert bare < (1e-6 if dtype == "float32" else 3e-3)
    # Parts on tiles (AMX) err less than a chain of 512 multiply-adds; the thin products beside them are such chains.
    least = 3e-7 if TILES and dtype == "float32" else 0
    assert error(layer(x), want) <= max(bare, least) * MORE.get(dtype, MORE_IN_16_BITS)
    unet.disable_lora()
    assert error(layer(x), want) > 0.5  # it was there


# ---- a network


def in_float64(unet):
    """The same network with the weights as they are now, dequantised."""
    other = network("float64")
    dense = {f"{name}.weight": m for name, m in unet.named_modules() if isinstance(m, QUANTISED)}
    state = unet.state_dict()
    other.load_state_dict(
        {k: sf.tensor(exact(dense[k]) if k in dense else state[k].double().numpy()) for k in other.state_dict()}
    )
    return other


def outputs(unet, inputs):
    sample, text = (x.to(unet.dtype) for x in inputs)
    return unet(sample, 437, text).sample


QUANTISED = (sf.nn.LinearNF4, sf.nn.LinearFP8)


@pytest.mark.parametrize("dtype", [*DENSE, "float8_e4m3fn", "nf4"])
def test_a_network_with_loras_is_as_exact_as_without(dtype):
    """Beside every layer: packed queries, keys and values, GEGLU, residuals, normalising convolutions."""
    unet, generator = network(dtype), np.random.default_rng(1)
    exactly = in_float64(unet)
    inputs = [rounded(generator.normal(size=shape), unet.dtype) for shape in ((2, 4, 8, 8), (2, 7, 64))]
    bare, without = error(outputs(unet, inputs), outputs(exactly, inputs).numpy()), outputs(unet, inputs)
    state, summed = {}, {}
    for name, layer in exactly.named_modules():
        if isinstance(layer, (sf.nn.Linear, sf.nn.Conv2d)):
            weight = layer.weight.numpy()
            ones = [1] * (weight.ndim - 2)
            a = rounded(generator.normal(size=(4, *weight.shape[1:])) / np.sqrt(weight[0].size), sf.float16)
            b = rounded(generator.normal(size=(len(weight), 4, *ones)) * 0.2, sf.float16)
            state |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
            down, up = (t.double().numpy() for t in (a, b))
            summed[f"{name}.weight"] = weight + 0.5 * np.tensordot(up.reshape(len(weight), 4), down, 1)
    unet.load_lora_adapter(state, prefix=None, adapter_name="all")
    unet.set_adapters("all", 0.5)
    exactly.load_state_dict(exactly.state_dict() | {k: sf.tensor(v) for k, v in summed.items()})
    want = outputs(exactly, inputs).numpy()
    assert error(without, want) > 0.1
    assert error(outputs(unet, inputs), want) <= bare * MORE_IN_A_NETWORK
