"""Golden file of the training objective: the losses of 20 steps of a tiny UNet, trained as diffusers' scripts do.

Usage: /path/to/python-with-diffusers tests/golden/make_golden_training.py
Writes training.json. Weights and data follow hashed_weights.py, noise and timesteps torch's generator;
tests/python/diffusion/test_training.py repeats the runs.
The loops are those of examples/text_to_image/train_text_to_image.py and, for flow matching,
examples/dreambooth/train_dreambooth_sd3.py.
"""

import json
import pathlib

import diffusers
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, FlowMatchEulerDiscreteScheduler, UNet2DConditionModel
from diffusers.training_utils import compute_density_for_timestep_sampling, compute_loss_weighting_for_sd3, compute_snr
from hashed_weights import hashed, hashed_weight

HERE = pathlib.Path(__file__).parent
STEPS, BATCH = 20, 4
UNET = {
    "sample_size": 8, "in_channels": 4, "out_channels": 4, "block_out_channels": [16, 32], "layers_per_block": 1,
    "norm_num_groups": 8, "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "cross_attention_dim": 24, "attention_head_dim": 2,
}  # fmt: skip
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
RUNS = {
    "epsilon": {"scheduler": SD, "options": {"snr_gamma": 5.0, "noise_offset": 0.1}},
    "v": {
        "scheduler": {**SD, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True},
        "options": {"snr_gamma": 5.0},
    },
    "plain": {"scheduler": SD, "options": {}},
    "sample": {
        "scheduler": {"prediction_type": "sample", "beta_schedule": "squaredcos_cap_v2"},
        "options": {"snr_gamma": 2.0, "input_perturbation": 0.1, "condition_dropout": 0.3},
    },
    "biased": {
        "scheduler": {**SD, "prediction_type": "v_prediction"},
        "options": {"timestep_bias_strategy": "later", "timestep_bias_multiplier": 3.0, "timestep_bias_portion": 0.5},
    },
    "range": {
        "scheduler": SD,
        "options": {
            "timestep_bias_strategy": "range",
            "timestep_bias_multiplier": 9.0,
            "timestep_bias_begin": 100,
            "timestep_bias_end": 300,
        },
    },
    "flow": {
        "scheduler": {"shift": 3.0},
        "options": {"weighting_scheme": "logit_normal", "logit_mean": 0.2, "logit_std": 0.9},
    },
    "flow_cosmap": {"scheduler": {}, "options": {"weighting_scheme": "cosmap", "noise_offset": 0.05}},
    "flow_mode": {"scheduler": {}, "options": {"weighting_scheme": "mode", "mode_scale": 1.1}},
}


def data(step):
    """Latents and embedded captions of a step: three batches in turn."""
    n = step % 3
    return torch.from_numpy(hashed(f"latents {n}", (BATCH, 4, 8, 8))), torch.from_numpy(
        hashed(f"captions {n}", (BATCH, 5, 24))
    )


def noised(latents, o):
    noise = torch.randn_like(latents)
    if o.get("noise_offset"):
        noise += o["noise_offset"] * torch.randn((latents.shape[0], latents.shape[1], 1, 1))
    seen = noise + o["input_perturbation"] * torch.randn_like(noise) if o.get("input_perturbation") else noise
    return noise, seen


def dropped(text, o):
    if not o.get("condition_dropout"):
        return text
    return torch.where((torch.rand(len(text)) < o["condition_dropout"])[:, None, None], torch.zeros(()), text)


def drawn_timesteps(count, steps, o):
    """train_text_to_image_sdxl.py: uniform without a bias, else by weights."""
    strategy = o.get("timestep_bias_strategy")
    if strategy is None:
        return torch.randint(0, steps, (count,)).long()
    portion = int(o.get("timestep_bias_portion", 0.25) * steps)
    part = {
        "later": slice(-portion, None),
        "earlier": slice(0, portion),
        "range": slice(o.get("timestep_bias_begin"), o.get("timestep_bias_end")),
    }
    weights = torch.ones(steps)
    weights[part[strategy]] *= o["timestep_bias_multiplier"]
    return torch.multinomial(weights / weights.sum(), count, replacement=True).long()


def alpha_loss(unet, scheduler, latents, text, o):
    noise, seen = noised(latents, o)
    timesteps = drawn_timesteps(len(latents), scheduler.config.num_train_timesteps, o)
    noisy = scheduler.add_noise(latents, seen, timesteps)
    kind = scheduler.config.prediction_type
    target = {"epsilon": noise, "sample": latents, "v_prediction": scheduler.get_velocity(latents, noise, timesteps)}[
        kind
    ]
    prediction = unet(noisy, timesteps, dropped(text, o), return_dict=False)[0]
    if "snr_gamma" not in o:
        return F.mse_loss(prediction.float(), target.float(), reduction="mean")
    snr = compute_snr(scheduler, timesteps)
    weights = torch.stack([snr, o["snr_gamma"] * torch.ones_like(timesteps)], dim=1).min(dim=1)[0]
    weights = {"epsilon": weights / snr, "v_prediction": weights / (snr + 1), "sample": weights}[kind]
    loss = F.mse_loss(prediction.float(), target.float(), reduction="none")
    return (loss.mean(dim=list(range(1, len(loss.shape)))) * weights).mean()


def flow_loss(unet, scheduler, latents, text, o):
    noise, seen = noised(latents, o)
    u = compute_density_for_timestep_sampling(
        o["weighting_scheme"], len(latents), o.get("logit_mean"), o.get("logit_std"), o.get("mode_scale")
    )
    indices = (u * scheduler.config.num_train_timesteps).long()
    timesteps = scheduler.timesteps[indices]
    sigmas = scheduler.sigmas[indices].reshape(-1, 1, 1, 1)
    noisy = (1.0 - sigmas) * latents + sigmas * seen
    prediction = unet(noisy, timesteps, text, return_dict=False)[0]
    weighting = compute_loss_weighting_for_sd3(o["weighting_scheme"], sigmas)
    target = noise - latents
    return torch.mean(
        (weighting.float() * (prediction.float() - target.float()) ** 2).reshape(len(target), -1), 1
    ).mean()


def run(name, scheduler, options):
    flow = name.startswith("flow")
    scheduler = (FlowMatchEulerDiscreteScheduler if flow else DDPMScheduler)(**scheduler)
    unet = UNet2DConditionModel(**UNET)
    for key, p in unet.named_parameters():
        p.data.copy_(torch.from_numpy(hashed_weight(key, tuple(p.shape))))
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3, weight_decay=1e-2)
    torch.manual_seed(len(name))
    losses = []
    for step in range(STEPS):
        loss = (flow_loss if flow else alpha_loss)(unet, scheduler, *data(step), options)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    runs = {name: {**case, "losses": run(name, **case)} for name, case in RUNS.items()}
    head = {"torch": torch.__version__, "diffusers": diffusers.__version__, "unet": UNET, "batch": BATCH}
    (HERE / "training.json").write_text(json.dumps({**head, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
