"""LoRAs that are trained: add_adapter() begins, learns and ends as PEFT's does (tests/golden/lora_training_cases.py),
beside dense and quantised weights, with checkpointing; what it leaves alone, and what it refuses.
"""

import pathlib

import numpy as np
import pytest
from hashed_weights import hashed, hashed_weight, places
from lora_training_cases import ATTENTION, CONFIGS, KEPT, LEARNING_RATE, SEED, SHAPES, STEPS, TIMESTEPS, UNET
from packed import read_json

import scaffolding as sf
from scaffolding import nn
from scaffolding.models import (
    CLIPTextModel,
    LoraConfig,
    UNet2DConditionModel,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)

GOLDEN = read_json(pathlib.Path(__file__).parents[2] / "golden/lora_training.json.xz")["cases"]
INPUTS = {name: sf.tensor(hashed(name, shape)) for name, shape in SHAPES.items()}


def fresh(dtype=sf.float32):
    unet = UNet2DConditionModel(**UNET)
    unet.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in unet.state_dict().items()})
    return unet.to(dtype).requires_grad_(False).train()


def call(unet):
    x, text = (INPUTS[name].to(unet.dtype) for name in ("sample", "encoder_hidden_states"))
    return unet(x, sf.tensor(TIMESTEPS), text).sample.float()


def step(unet):
    loss = nn.functional.mse_loss(call(unet), INPUTS["target"])
    loss.backward()
    return loss.item()


def lora_of(unet):
    return {name: p for name, p in unet.named_parameters() if ".lora_" in name}


def with_lora(unet, **fields):
    sf.manual_seed(SEED)
    unet.add_adapter(LoraConfig(**{"r": 4, "target_modules": ATTENTION} | fields))
    return unet


def train(unet, steps=STEPS, rate=LEARNING_RATE):
    optimizer = sf.optim.AdamW(list(lora_of(unet).values()), lr=rate)
    losses = []
    for _ in range(steps):
        losses.append(step(unet))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def close(got, want, tolerance=2e-4):
    for name, values in want.items():
        t = got[name].detach().numpy().ravel()[places(name, got[name].numel(), KEPT)]
        np.testing.assert_allclose(t, values, rtol=tolerance, atol=tolerance * 0.1, err_msg=name)


@pytest.mark.parametrize("name", CONFIGS)
def test_it_begins_learns_and_ends_as_pefts_does(name):
    golden, unet = GOLDEN[name], fresh()
    with_lora(unet, **({"r": 8} | CONFIGS[name]))
    lora = lora_of(unet)
    assert {n: list(p.shape) for n, p in lora.items()} == dict(golden["parameters"])
    assert all(p.requires_grad and p.is_leaf for p in lora.values())
    close(lora, golden["begin"], 1e-5)
    base = {k: v.clone() for k, v in unet.state_dict().items()}
    optimizer, losses = sf.optim.AdamW([p for p in unet.parameters() if p.requires_grad], lr=LEARNING_RATE), []
    for i in range(STEPS):
        losses.append(step(unet))
        if i == 0:
            close({n: p.grad for n, p in lora.items()}, golden["gradients"], 1e-3)
        optimizer.step()
        optimizer.zero_grad()
    np.testing.assert_allclose(losses, golden["losses"], rtol=1e-4)
    assert losses[-1] < losses[0]
    # AdamW divides by gradients that may be next to nothing: 1 % of what a step moves.
    for n, values in golden["end"].items():
        t = lora[n].detach().numpy().ravel()[places(n, lora[n].numel(), KEPT)]
        np.testing.assert_allclose(t, values, atol=0.02 * LEARNING_RATE * STEPS, err_msg=n)
    assert all(sf.equal(base[k], v) for k, v in unet.state_dict().items()) and base.keys() == unet.state_dict().keys()


def test_a_new_one_changes_nothing_and_is_no_part_of_the_state(tmp_path):
    unet = fresh()
    before, keys = call(unet), list(unet.state_dict())
    with_lora(unet)
    assert (call(unet) - before).abs().max().item() < 1e-5 and list(unet.state_dict()) == keys
    assert unet.active_adapters() == ["default"] and len(lora_of(unet)) == len(list(unet.parameters())) - len(keys)
    unet.save_pretrained(tmp_path)
    assert sf.equal(call(UNet2DConditionModel.from_pretrained(tmp_path).requires_grad_(False).train()), before)


def test_what_was_trained_is_saved_and_loaded(tmp_path):
    unet = with_lora(fresh(), lora_alpha=6)
    train(unet)
    unet.eval()
    with sf.no_grad():
        trained = call(unet)
    unet.save_lora_adapter(tmp_path)
    other = fresh().eval()
    other.load_lora_adapter(tmp_path, prefix=None, adapter_name="default")
    with sf.no_grad():
        assert (call(other) - trained).abs().max().item() < 1e-5
    # The faster paths of inference, once it is trained no more.
    unet.set_requires_grad("default", False)
    assert not lora_of(unet)
    with sf.no_grad():
        assert (call(unet) - trained).abs().max().item() < 1e-5
    # A loaded one goes on: from the same numbers, in memory of its own.
    other.train().set_requires_grad("default")
    assert lora_of(other).keys() == {k.replace(".weight", ".default.weight") for k in get_peft_model_state_dict(unet)}
    again = with_lora(fresh(), lora_alpha=6)
    assert set_peft_model_state_dict(again, get_peft_model_state_dict(unet)) == ([], [])
    assert train(other, 2) == pytest.approx(train(again, 2), rel=1e-5)
    kept = fresh().eval()
    kept.load_lora_adapter(tmp_path, prefix=None)
    with sf.no_grad():
        assert (call(kept) - trained).abs().max().item() < 1e-5  # the file is as it was


def test_a_state_of_other_shapes_is_refused_and_missing_keys_are_told():
    unet = with_lora(fresh())
    state = {k: v.clone() for k, v in get_peft_model_state_dict(unet).items()}
    first, second, *_ = state
    with pytest.raises(ValueError, match=r"must be of shape \(4, 16\), got \(3, 16\)"):
        set_peft_model_state_dict(unet, {second: state[second] + 1, first: sf.zeros(3, 16)})
    assert all(sf.equal(v, get_peft_model_state_dict(unet)[k]) for k, v in state.items())
    del state[first]
    assert set_peft_model_state_dict(unet, state | {"else": sf.zeros(1)}) == ([first], ["else"])


@pytest.mark.parametrize("format", ["nf4", "int8", "q8_0", "q4_K", "float8_e4m3fn"])
def test_beside_quantised_weights_gradients_are_those_of_what_they_stand_for(format):
    """QLoRA's base: the blocks never change, and the LoRA learns what it would beside the dequantised weights."""
    config = UNET | {"block_out_channels": [64, 64], "cross_attention_dim": 64}

    def made():
        unet = UNet2DConditionModel(**config)
        unet.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in unet.state_dict().items()})
        return unet.requires_grad_(False).train()

    def run(unet):
        with_lora(unet, init_lora_weights=False)
        text = sf.tensor(hashed("text", (2, 5, 64)))
        y = unet(INPUTS["sample"], sf.tensor(TIMESTEPS), text).sample
        nn.functional.mse_loss(y, INPUTS["target"]).backward()
        return {n: p.grad for n, p in lora_of(unet).items()}

    quantised, dense = made(), made()
    nn.quantize_(quantised, format, convolutions=False)
    blocks = {k: v.clone() for k, v in quantised.state_dict().items()}
    for name, layer in quantised.named_modules():
        if "Linear" in type(layer).__name__ and not isinstance(layer, nn.Linear):
            eye = sf.eye(layer.in_features)
            bias = 0 if layer.bias is None else layer.bias.detach()
            with sf.no_grad():
                dense.get_submodule(name).weight.copy_((layer(eye) - bias).t())
    got, want = run(quantised), run(dense)
    assert got.keys() == want.keys() and len(got) > 20
    for name, g in want.items():
        assert (got[name] - g).norm().item() < 2e-4 * g.norm().item() + 1e-9, name
    for k, v in quantised.state_dict().items():
        a, b = (t.float() if "float8" in str(t.dtype) else t for t in (blocks[k], v))
        assert sf.equal(a, b), k


def test_checkpointing_changes_no_gradient():
    plain, checkpointed = with_lora(fresh(), init_lora_weights=False), with_lora(fresh(), init_lora_weights=False)
    checkpointed.enable_gradient_checkpointing()
    assert step(plain) == pytest.approx(step(checkpointed), rel=1e-6)
    for name, p in lora_of(plain).items():
        other = lora_of(checkpointed)[name].grad
        assert (p.grad - other).norm().item() <= 1e-5 * p.grad.norm().item(), name


def test_beside_half_weights_it_is_in_float32():
    unet = with_lora(fresh(sf.bfloat16))
    assert {p.dtype for p in lora_of(unet).values()} == {sf.float32} and unet.dtype == sf.bfloat16
    losses = train(unet, 8)
    assert losses[-1] < losses[0]
    with sf.autocast("cpu", sf.bfloat16):
        autocast = with_lora(fresh())
        assert train(autocast, 8)[-1] < losses[0]


def test_dropout_is_of_training_alone():
    unet = with_lora(fresh(), lora_dropout=0.5, init_lora_weights=False)
    assert not sf.equal(call(unet), call(unet))
    unet.eval()
    assert sf.equal(call(unet), call(unet))
    same = with_lora(fresh(), init_lora_weights=False).eval()
    assert sf.equal(call(unet), call(same))


def test_another_adapter_beside_it_stays_as_it_is():
    unet = with_lora(fresh(), init_lora_weights=False)
    unet.set_requires_grad("default", False)
    fixed = {k: v.clone() for k, v in get_peft_model_state_dict(unet).items()}
    sf.manual_seed(8)
    unet.add_adapter(LoraConfig(r=2, target_modules=["to_q", "conv1"]), "second")
    assert unet.active_adapters() == ["second"]
    alone = call(unet)
    unet.set_adapters(["default", "second"], [0.5, 1.0])
    assert not sf.equal(call(unet), alone)
    assert set(lora_of(unet)) == {n for n in lora_of(unet) if ".second." in n}
    losses = train(unet)
    assert losses[-1] < losses[0]
    assert all(sf.equal(v, fixed[k]) for k, v in get_peft_model_state_dict(unet).items())
    unet.eval()
    with sf.no_grad():
        before = call(unet)
        unet.fuse_lora()
        assert (call(unet) - before).abs().max().item() < 1e-4
        with pytest.raises(ValueError, match="is fused into the weights; unfuse it"):
            unet.set_requires_grad("default")
        unet.unfuse_lora()
        assert sf.equal(call(unet), before)
        unet.disable_adapters()
        assert sf.equal(call(unet), call(fresh().eval()))
    unet.enable_adapters()
    unet.delete_adapters("second")
    assert not lora_of(unet)


def test_of_a_text_encoder_with_every_linear_layer():
    clip = CLIPTextModel(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    ).requires_grad_(False)
    clip.add_adapter(LoraConfig(r=2, target_modules="all-linear"))
    names = {n.rsplit(".lora_", 1)[0].rsplit(".", 1)[1] for n in lora_of(clip)}
    assert names == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    clip(sf.tensor([[1, 5, 3]])).last_hidden_state.sum().backward()
    assert all(p.grad is not None for n, p in lora_of(clip).items() if "lora_B" in n)
    clip.zero_grad()
    assert all(p.grad is None for p in clip.parameters())
    assert not any(p.requires_grad for p in clip.requires_grad_(False).parameters())


@pytest.mark.parametrize(
    "fields, error, text",
    [
        ({"target_modules": None}, ValueError, "target_modules must say which layers"),
        (
            {"target_modules": ["to_z"]},
            ValueError,
            "no module of UNet2DConditionModel is meant by target_modules 'to_z'",
        ),
        ({"target_modules": ["norm1"]}, ValueError, "a LoRA goes beside linear layers and 2-D convolutions"),
        ({"target_modules": "(("}, ValueError, "add_adapter"),
        ({"r": 0}, ValueError, "r must be from 1 to 16384, got 0"),
        ({"r": 10**6}, ValueError, "r must be from 1 to 16384, got 1000000"),
        ({"lora_alpha": 0}, ValueError, "lora_alpha must be finite and not 0"),
        ({"lora_alpha": float("nan")}, ValueError, "lora_alpha must be finite and not 0"),
        ({"lora_dropout": 1.0}, ValueError, "lora_dropout must be from 0 to below 1, got 1"),
        ({"init_lora_weights": "pissa"}, NotImplementedError, "init_lora_weights must be True, False or 'gaussian'"),
        ({"rank_pattern": {"to_q": -3}}, ValueError, "r must be from 1 to 16384, got -3"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_changes(fields, error, text):
    unet = fresh()
    with pytest.raises(error, match=text.replace("(", r"\(")):
        unet.add_adapter(LoraConfig(**{"r": 4, "target_modules": ATTENTION} | fields))
    assert not lora_of(unet) and not unet.active_adapters()


def test_names_and_configs_of_others_are_refused():
    unet = with_lora(fresh())
    with pytest.raises(ValueError, match="there is an adapter 'default' already"):
        with_lora(unet)
    with pytest.raises(TypeError, match="adapter_config must be a LoraConfig, got dict"):
        unet.add_adapter({"r": 4}, "other")
    with pytest.raises(ValueError, match="adapter_name must not be empty"):
        unet.add_adapter(LoraConfig(target_modules=ATTENTION), "")
    with pytest.raises(ValueError, match="there is no adapter 'other'; there are default"):
        unet.set_requires_grad("other")

    class OfPeft(LoraConfig):
        def to_dict(self):
            return super().to_dict() | {"use_dora": True}

    with pytest.raises(NotImplementedError, match="use_dora=True of the LoraConfig is not supported"):
        unet.add_adapter(OfPeft(target_modules=ATTENTION), "other")
