"""scaffolding.diffusion.training_utils and .optimization: diffusers' numbers (make_golden_training_utils.py)."""

import json
import pathlib
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hashed_weights import hashed

import scaffolding as sf
from scaffolding import diffusion, optim
from scaffolding.diffusion import DDPMScheduler, UNet2DModel, training_utils

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "training_utils.json").read_text())


def named(name, *shape):
    return sf.tensor(hashed(name, shape))


@pytest.mark.parametrize("scheme, options, want", GOLDEN["densities"])
def test_where_timesteps_are_drawn(scheme, options, want):
    sf.manual_seed(7)
    got = training_utils.compute_density_for_timestep_sampling(scheme, 5, **options)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
    generator = sf.Generator().manual_seed(7)
    again = training_utils.compute_density_for_timestep_sampling(scheme, 5, **options, generator=generator)
    assert sf.equal(got, again)


@pytest.mark.parametrize("scheme", GOLDEN["weights"])
def test_weights_of_losses(scheme):
    got = training_utils.compute_loss_weighting_for_sd3(scheme, sf.tensor(GOLDEN["sigmas"]))
    np.testing.assert_allclose(got.numpy(), GOLDEN["weights"][scheme], rtol=1e-5)


@pytest.mark.parametrize("power", GOLDEN["dream"])
def test_dream(power):
    def unet(sample, timesteps, text):
        return SimpleNamespace(sample=sample * 0.5 + text)

    tensors = [named(n, 2, 3, 2, 2) for n in ("noise", "noisy", "target")]
    timesteps = sf.tensor([3, 700])
    got = training_utils.compute_dream_and_update_latents(
        unet, DDPMScheduler(), timesteps, *tensors, named("text", 1), float(power)
    )
    for t, want in zip(got, GOLDEN["dream"][power]):
        np.testing.assert_allclose(t.flatten().numpy(), want, rtol=1e-4, atol=1e-5)
    for kind, error in (("v_prediction", NotImplementedError), ("sample", ValueError)):
        with pytest.raises(error):
            scheduler = DDPMScheduler(prediction_type=kind)
            training_utils.compute_dream_and_update_latents(unet, scheduler, timesteps, *tensors, named("text", 1))


def test_signal_to_noise_ratios():
    got = training_utils.compute_snr(DDPMScheduler(), sf.tensor([0, 500, 999]))
    np.testing.assert_allclose(got.numpy(), GOLDEN["snr"], rtol=1e-4)


def test_one_seed_for_all():
    drawn = []
    for _ in range(2):
        training_utils.set_seed(11)
        drawn.append((random.random(), float(np.random.rand()), sf.rand(3).tolist()))
    assert drawn[0] == drawn[1]


def test_only_what_trains_is_cast():
    net = sf.nn.Sequential(sf.nn.Linear(2, 3), sf.nn.Linear(3, 1)).to(sf.float16)
    net[0].requires_grad_(False)
    names = {p.data_ptr() for p in net.parameters()}
    training_utils.cast_training_params([net])
    assert [p.dtype for p in net.parameters()] == [sf.float16] * 2 + [sf.float32] * 2
    assert len(names & {p.data_ptr() for p in net[0].parameters()}) == 2
    training_utils.cast_training_params(net, sf.bfloat16)
    assert net[1].weight.dtype is sf.bfloat16 and net[1].weight.requires_grad and net[0].weight.dtype is sf.float16


def test_networks_elsewhere_for_a_while():
    net = sf.nn.Linear(2, 3)
    with training_utils.offload_models(net, device="meta", offload=False):
        assert net.weight.device.type == "cpu"
    with pytest.raises(ZeroDivisionError):
        with training_utils.offload_models(net, device=sf.device("cpu")):
            raise ZeroDivisionError
    assert net.weight.device.type == "cpu"
    training_utils.free_memory()


def test_names_are_where_diffusers_has_them():
    assert diffusion.EMAModel is optim.EMAModel is training_utils.EMAModel
    for name in diffusion.optimization.__all__:
        assert getattr(diffusion, name) is getattr(diffusion.optimization, name) is getattr(optim.schedules, name)


def test_averages_in_a_folder(tmp_path):
    model = UNet2DModel(sample_size=8, block_out_channels=(4, 8), layers_per_block=1, norm_num_groups=4,
                        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                        up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    ema = training_utils.EMAModel(
        model.parameters(), decay=0.75, use_ema_warmup=True, model_cls=UNet2DModel, model_config=model.config
    )
    with sf.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    ema.step(model.parameters())
    ema.save_pretrained(tmp_path)
    again = training_utils.EMAModel.from_pretrained(tmp_path, UNet2DModel)
    assert {k: v for k, v in again.state_dict().items() if k != "shadow_params"} == {
        k: v for k, v in ema.state_dict().items() if k != "shadow_params"
    }
    assert again.decay == 0.75 and again.optimization_step == 1 and again.model_config["sample_size"] == 8
    for a, b in zip(ema.shadow_params, again.shadow_params):
        assert sf.equal(a, b)
    averages = UNet2DModel.from_pretrained(tmp_path)
    assert all(sf.equal(a, p) for a, p in zip(ema.shadow_params, averages.parameters()))
    again.step(model.parameters())
    again.save_pretrained(tmp_path / "later")
    assert training_utils.EMAModel.from_pretrained(tmp_path / "later", UNet2DModel).optimization_step == 2
    with pytest.raises(ValueError, match="model_cls"):
        training_utils.EMAModel(model.parameters()).save_pretrained(tmp_path)
