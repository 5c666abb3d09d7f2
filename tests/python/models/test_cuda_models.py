"""Layers, pipelines and a training step on a GPU or its emulator: PyTorch's and diffusers' numbers,
as the CPU's tests have them.
"""

import golden_pipelines
import numpy as np
import pytest
import test_pipelines
from test_nn_golden import CASES, FILES, close, numbers_of, tensors_of, thinned  # noqa: F401  (a fixture is among them)
from test_recurrent import LAYERS as RECURRENT

import scaffolding as sf
from scaffolding import cuda, nn
from scaffolding.models import LoraConfig, UNet2DConditionModel
from scaffolding.nn.utils import rnn

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")


def moved(x):
    """Tensors on the GPU, in tuples too."""
    if isinstance(x, tuple):
        return tuple(moved(part) for part in x)
    return x.to("cuda") if isinstance(x, sf.Tensor) else x


@pytest.mark.parametrize("name, number, case", CASES, ids=[case["layer"].replace("nn.", "") for _, _, case in CASES])
def test_layers_have_torchs_values_and_gradients(name, number, case, numbers_of):  # noqa: F811
    numbers, kept = numbers_of[name], FILES[name]["kept"]
    scope = {"nn": nn, "torch": sf, "randn": sf.randn, "randint": sf.randint}
    evaluate, expression = case["layer"].startswith("eval:"), case["layer"].removeprefix("eval:")
    if any(word in case["layer"] + case["repr"] for word in ("ropout", "RReLU", "FractionalMaxPool")) and not evaluate:
        pytest.skip("what is dropped depends on the device's generator")
    sf.manual_seed(number)
    module = eval(expression, scope)
    module.state_dict()
    module.train(not evaluate)
    arguments = list(eval(f"({case['inputs']},)", scope))
    module = module.to("cuda")
    leaves = [
        a.detach().to("cuda").requires_grad_()
        if a.is_floating_point() and not bool((a.abs() == 1).all())
        else a.to("cuda")
        for a in arguments
    ]
    kwargs = {k: moved(v) for k, v in eval(f"dict({case['kwargs']})", scope).items()}
    taken = [a * 1 if a.requires_grad else a for a in leaves]
    if "CTCLoss" in expression:
        with pytest.raises(NotImplementedError, match="move the tensors to the CPU"):
            module(*taken, **kwargs)
        return
    outputs = tensors_of(module(*taken, **kwargs))
    total = 0
    for i, y in enumerate(outputs):
        assert y.device.type == "cuda"
        close(thinned(y.cpu(), kept), numbers[f"{number}.output.{i}"], f"output {i}", 2e-5)
        if y.requires_grad:
            total = total + (y * sf.cos(sf.arange(y.numel(), dtype=y.dtype) + i).reshape(y.shape).to("cuda")).sum()
    if isinstance(total, sf.Tensor):
        total.backward()
    for i, a in enumerate(leaves):
        if a.requires_grad and a.grad is not None:
            close(thinned(a.grad.cpu(), kept), numbers[f"{number}.input.{i}"], f"gradient of input {i}", 5e-5)
    for name, p in module.named_parameters():
        if p.grad is not None:
            close(thinned(p.grad.cpu(), kept), numbers[f"{number}.gradient.{name}"], f"gradient of {name}", 5e-5)
    for name, b in module.named_buffers():
        close(thinned(b.cpu(), kept), numbers[f"{number}.buffer.{name}"], f"buffer {name}", 2e-5)


@pytest.mark.parametrize("name", ["t2i_ddim", "i2i_euler", "inpaint_unet9_strength", "xl_dpm", "ddpm", "ddim_eta"])
def test_pictures_are_diffusers(name, monkeypatch):
    monkeypatch.setattr(golden_pipelines, "made_networks", {})  # networks that move are not those of other tests
    case = golden_pipelines.CASES[name]
    want = golden_pipelines.run(case)
    golden_pipelines.assert_is(name, want)
    golden_pipelines.made_networks.clear()
    got = golden_pipelines.run(case, lambda *args: golden_pipelines.pipeline_of(*args).to("cuda"))
    assert got.shape == want.shape
    assert np.abs((255 * got).round() - (255 * want).round()).max() <= 1


@pytest.mark.parametrize("half", [None, sf.bfloat16], ids=["float32", "autocast"])
def test_a_unet_learns_as_on_the_cpu(half, monkeypatch):
    monkeypatch.setattr(golden_pipelines, "made_networks", {})

    def losses(device):
        sf.manual_seed(1)
        unet = test_pipelines.filled("unet").to(device).train()
        golden_pipelines.made_networks.clear()
        noise = test_pipelines.scheduler()
        latents, text = sf.randn(2, 4, 8, 8), sf.randn(2, 7, unet.config.cross_attention_dim)
        target, steps = sf.randn(2, 4, 8, 8), sf.tensor([3, 500])
        latents, text, target, steps = (t.to(device) for t in (latents, text, target, steps))
        optimizer, values = sf.optim.AdamW(unet.parameters(), lr=1e-3), []
        for _ in range(2):
            with sf.autocast(device, dtype=half or sf.bfloat16, enabled=half is not None):
                loss = nn.functional.mse_loss(
                    unet(noise.add_noise(latents, target, steps), steps, text).sample.float(), target
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values

    assert losses("cuda") == pytest.approx(losses("cpu"), rel=2e-2 if half else 1e-4)


@pytest.mark.parametrize("make", RECURRENT)
def test_packed_sequences(make):
    sf.manual_seed(2)
    layer, x = make(num_layers=2, bidirectional=True), [sf.randn(n, 3) for n in (5, 3, 1)]
    with sf.no_grad():
        want = rnn.pad_packed_sequence(layer(rnn.pack_sequence(x))[0])[0]
        got = rnn.pad_packed_sequence(layer.cuda()(rnn.pack_sequence([s.cuda() for s in x]))[0])[0]
    close(got.cpu().numpy(), want.numpy(), "output", 1e-4)


def test_a_lora_is_trained_as_on_the_cpu():
    """Its factors go with the model and stay the same tensors; of slots for inference they are no part."""
    losses, ends = [], []
    for device in ("cpu", "cuda"):
        sf.manual_seed(3)
        unet = UNet2DConditionModel(
            sample_size=4,
            block_out_channels=[8, 8],
            down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
            up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
            layers_per_block=1,
            norm_num_groups=4,
            cross_attention_dim=8,
            attention_head_dim=4,
        )
        x, text, target = sf.randn(1, 4, 4, 4), sf.randn(1, 3, 8), sf.randn(1, 4, 4, 4)
        unet.requires_grad_(False).add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_out.0", "conv1"]))
        lora = [p for p in unet.parameters() if p.requires_grad]
        unet.train().to(device)
        assert all(p.device.type == device for p in lora)
        optimizer = sf.optim.AdamW(lora, lr=1e-2)
        for _ in range(3):
            y = unet(x.to(device), sf.tensor([7]).to(device), text.to(device)).sample
            loss = nn.functional.mse_loss(y, target.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        ends.append([p.detach().to("cpu") for p in lora])
        if device == "cuda":
            unet.eval().set_requires_grad("default", False)
            with sf.no_grad():
                again = unet(x.to(device), sf.tensor([7]).to(device), text.to(device)).sample.to("cpu")
            assert nn.functional.mse_loss(again, target).item() < losses[3]
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-4) and losses[2] < losses[0]
    for a, b in zip(*ends):
        assert (a - b).abs().max().item() < 2e-3
