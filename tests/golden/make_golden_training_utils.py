"""Golden file of diffusers.training_utils: where timesteps are drawn, weights of losses, DREAM, signal-to-noise ratios.

Usage: /path/to/python-with-diffusers tests/golden/make_golden_training_utils.py
Writes training_utils.json; tests/python/diffusion/test_training_utils.py repeats the calls. Draws are of torch's
generator with seed 7.
"""

import json
import pathlib
from types import SimpleNamespace

import diffusers
import torch
from diffusers import DDPMScheduler
from diffusers.training_utils import (
    compute_density_for_timestep_sampling,
    compute_dream_and_update_latents,
    compute_loss_weighting_for_sd3,
    compute_snr,
)
from hashed_weights import hashed

HERE = pathlib.Path(__file__).parent
DENSITIES = [["none", {}], ["logit_normal", {"logit_mean": 0.2, "logit_std": 0.9}], ["mode", {"mode_scale": 1.1}]]
SIGMAS = [0.05, 0.5, 0.99]


def named(name, *shape):
    return torch.from_numpy(hashed(name, shape))


def density(scheme, options):
    torch.manual_seed(7)
    return compute_density_for_timestep_sampling(scheme, 5, **options).tolist()


def dream(power):
    scheduler, timesteps = DDPMScheduler(), torch.tensor([3, 700])
    tensors = [named(n, 2, 3, 2, 2) for n in ("noise", "noisy", "target")]

    def unet(sample, timesteps, text):
        return SimpleNamespace(sample=sample * 0.5 + text)

    out = compute_dream_and_update_latents(unet, scheduler, timesteps, *tensors, named("text", 1), power)
    return [t.flatten().tolist() for t in out]


if __name__ == "__main__":
    schemes = ("sigma_sqrt", "cosmap", "none")
    document = {
        "made_by": {"torch": torch.__version__, "diffusers": diffusers.__version__},
        "densities": [[scheme, options, density(scheme, options)] for scheme, options in DENSITIES],
        "weights": {s: compute_loss_weighting_for_sd3(s, torch.tensor(SIGMAS)).tolist() for s in schemes},
        "sigmas": SIGMAS,
        "dream": {str(power): dream(power) for power in (1.0, 2.5)},
        "snr": compute_snr(DDPMScheduler(), torch.tensor([0, 500, 999])).tolist(),
    }
    (HERE / "training_utils.json").write_text(json.dumps(document) + "\n")
