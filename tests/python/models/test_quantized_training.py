"""LoRAs beside frozen quantised weights: their effect, and their training, with checkpointing too."""

import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.models import UNet2DConditionModel
from scaffolding.nn import streaming

FORMATS = ["nf4", "fp4", "int8", "float8_e4m3fn", "q8_0", "q4_0", "q4_K"]


def same(a, b):
    if str(a.dtype).startswith("scaffolding.float8"):
        a, b = a.float(), b.float()
    return sf.equal(a, b)


def dense_of(layer, dtype=sf.float32):
    """The weight that a quantised linear layer multiplies with: what it makes of the unit matrix."""
    eye = sf.eye(layer.in_features).to(dtype)
    bias = 0 if layer.bias is None else layer.bias.detach()
    with sf.no_grad():
        return (layer(eye) - bias).t()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype, bound", [(sf.float32, 1e-5), (sf.bfloat16, 4e-3)])
def test_gradients_pass_through_the_dequantised_weight(format, dtype, bound):
    sf.manual_seed(3)
    model = nn.Sequential(nn.Linear(256, 96)).to(dtype)
    nn.quantize_(model, format)
    layer, x = model[0], sf.randn(20, 256).to(dtype).requires_grad_()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    weight, out = dense_of(layer).double(), layer(x)
    step = sf.randn(20, 96).to(dtype)
    out.backward(step)
    want = step.double() @ weight
    assert (x.grad.double() - want).norm().item() < bound * want.norm().item()
    assert (layer.bias.grad.double() - step.double().sum(0)).norm().item() < bound * step.double().sum(0).norm().item()
    assert all(same(before[k], v) for k, v in model.state_dict().items())
    assert [n for n, _ in model.named_parameters()] == ["0.bias"]


class Beside(nn.Module):
    """A LoRA beside a layer, in Python."""

    def __init__(self, base, generator):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(sf.randn(4, base.in_features, generator=generator) / 8)
        self.up = nn.Parameter(sf.zeros(base.out_features, 4))

    def forward(self, x):
        return self.base(x) + nn.functional.linear(nn.functional.linear(x, self.down), self.up)


def quantised(format):
    sf.manual_seed(4)
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=[64, 128], layers_per_block=1, norm_num_groups=8, attention_head_dim=8,
        cross_attention_dim=64, down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"],
    )  # fmt: skip
    unet.requires_grad_(False)
    return nn.quantize_(unet, format)


def network(format, checkpointing):
    unet, generator = quantised(format), sf.Generator().manual_seed(5)
    for name, layer in list(unet.named_modules()):
        if name.endswith((".to_q", ".to_v")):
            parent, _, attribute = name.rpartition(".")
            setattr(unet.get_submodule(parent), attribute, Beside(layer, generator))
    if checkpointing:
        unet.enable_gradient_checkpointing()
    return unet.train()


def trained(unet, steps):
    g = sf.Generator().manual_seed(6)
    x, text, want = (sf.randn(2, *size, generator=g) for size in ((4, 8, 8), (5, 64), (4, 8, 8)))
    parameters = [p for p in unet.parameters() if p.requires_grad]
    optimizer, losses, first = sf.optim.AdamW(parameters, lr=1e-2), [], None
    for _ in range(steps):
        loss = ((unet(x, sf.tensor([10]), text).sample - want) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        first = first or [p.grad.clone() for p in parameters]
        optimizer.step()
        losses.append(loss.item())
    return losses, first


@pytest.mark.parametrize("format", FORMATS)
def test_loras_learn_beside_frozen_blocks_with_checkpointing(format):
    unet = network(format, False)
    learns = [n for n, p in unet.named_parameters() if p.requires_grad]
    assert learns and all(n.endswith((".up", ".down")) for n in learns)
    before = {k: v.clone() for k, v in unet.state_dict().items() if not k.endswith((".up", ".down"))}
    losses, grads = trained(unet, 6)
    assert losses[-1] < 0.98 * losses[0], losses
    assert all(same(v, unet.state_dict()[k]) for k, v in before.items())  # the base never changes
    again, others = trained(network(format, True), 1)
    assert again[0] == pytest.approx(losses[0], rel=1e-5)
    for a, b in zip(grads, others, strict=True):
        assert (a - b).norm().item() <= 1e-4 * max(a.norm().item(), 1e-6)


@pytest.mark.parametrize("format", FORMATS)
def test_a_lora_has_the_effect_of_float64(format):
    """Strength 0.1: what it changes, against the same in float64 beside the weight that the layer multiplies with."""
    sf.manual_seed(7)
    unet = quantised(format).eval()
    name = "mid_block.attentions.0.transformer_blocks.0.attn1.to_k"
    layer = unet.get_submodule(name)
    down, up = sf.randn(4, layer.in_features) / 16, sf.randn(layer.out_features, 4)
    x = sf.randn(40, layer.in_features)
    with sf.no_grad():
        bare = layer(x)
        lora = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
        unet.load_lora_adapter(lora, prefix=None, adapter_name="one")
        unet.set_adapters(["one"], [0.1])
        effect = unet.get_submodule(name)(x).double() - bare.double()
    want = 0.1 * (x.double() @ down.double().t() @ up.double().t())
    assert (effect - want).norm().item() < 0.01 * want.norm().item()


def backward(unet):
    """Gradients of the first layer, which learns, and of the text, through all blocks."""
    g = sf.Generator().manual_seed(8)
    x, text, want = (sf.randn(2, *size, generator=g) for size in ((4, 8, 8), (5, 64), (4, 8, 8)))
    text.requires_grad_()
    loss = ((unet(x, sf.tensor([10]), text).sample - want) ** 2).mean()
    loss.backward()
    grads = [unet.conv_in.weight.grad.clone(), unet.conv_in.bias.grad.clone(), text.grad.clone()]
    unet.conv_in.zero_grad()
    return loss.item(), grads


@pytest.mark.parametrize("format", ["nf4", "int8", "q8_0"])
def test_gradients_pass_through_streamed_frozen_blocks(format, tmp_path):
    def network():
        unet = quantised(format)
        unet.requires_grad_(False)
        unet.conv_in.requires_grad_(True)
        return unet.train()

    loss, grads = backward(network())
    assert all(g.abs().max().item() > 0 for g in grads)
    for checkpointing in (True, False):
        unet = network()
        if checkpointing:
            unet.enable_gradient_checkpointing()
        unet.enable_group_offload(
            "cpu", offload_type="block_level", num_blocks_per_group=1,
            offload_to_disk_path=str(tmp_path / str(checkpointing)),
        )  # fmt: skip
        streamer = streaming.streamer_of(unet)
        assert len(streamer.streamed_names()) > 4
        for _ in range(2):
            streamed, others = backward(unet)
            assert streamed == loss
            for a, b in zip(grads, others, strict=True):
                assert (a - b).abs().max().item() <= 1e-6 * a.abs().max().item()
            copies = streamer.statistics()["copies"]
            with sf.no_grad():  # blocks come and go in slots, whose content no recorded call may read
                unet(sf.zeros(1, 4, 8, 8), sf.tensor([10]), sf.zeros(1, 5, 64))
            assert streamer.statistics()["copies"] > copies
        unet.remove_all_hooks()
