"""Writes tests/golden/schedulers/<class>.json.xz: runs of diffusers' schedulers with a formula in the model's place.

    python tests/golden/make_golden_schedulers.py [class ...]      # a Python that has torch, diffusers and scipy

Each case (scheduler_cases.py) names the class, its config, and the arguments of set_timesteps and step. It holds
timesteps, sigmas, some of the samples of the run, and add_noise and get_velocity at two timesteps; flow matching has
steps of tokens at several timesteps besides. tests/python/diffusion/test_schedulers.py reads the files.
"""

import inspect
import json
import math
import pathlib
import sys
import warnings

import diffusers
import numpy as np
import torch
from packed import write_json
from scheduler_cases import CASES, SD, SEED, shared_fields

warnings.simplefilter("ignore")
diffusers.logging.set_verbosity_error()
FOLDER = pathlib.Path(__file__).parent / "schedulers"
SHAPE = (1, 2, 3, 3)


def model(x, t, channels):
    """The model's place: a function of sample and timestep. In float64 and then rounded,
    so that both sides give the scheduler the same bits.
    """
    y = 0.7 * torch.sin(x.double() * 1.3) + 0.1 * math.cos(float(t) / 100)
    return (torch.cat([y, 0.3 * torch.cos(x.double()) ** 2], 1) if channels == 2 else y).to(x.dtype)


def numbers(t):
    """Nine digits tell float32 numbers apart; integers stay short."""
    if t is None:
        return None
    return [
        int(v) if abs(v) < 1e15 and v == int(v) else float(f"{v:.9g}") for v in t.detach().double().flatten().tolist()
    ]


def run(cls, c):
    dtype = getattr(torch, c.get("dtype", "float32"))
    scheduler = getattr(diffusers, cls)(**c["config"])
    arguments = dict(c["set_timesteps"])
    if "sigmas" in arguments:
        arguments["sigmas"] = np.array(arguments["sigmas"])  # UniPC multiplies them
    scheduler.set_timesteps(**arguments)
    generator = torch.Generator().manual_seed(c["seed"]) if "seed" in c else None
    takes_generator = {"generator": generator} if generator is not None else {}
    sample = (
        torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
        * float(getattr(scheduler, "init_noise_sigma", 1))
    ).to(dtype)
    timesteps = scheduler.timesteps
    if len(timesteps) > 1 and timesteps[0] == timesteps[1]:
        scheduler.set_begin_index(0)  # else a run begins at the second of equal timesteps, and has no sigma at its end
    keep = sorted({0, len(timesteps) // 2, len(timesteps) - 1})
    out = {
        "timesteps": numbers(timesteps),
        "sigmas": numbers(getattr(scheduler, "sigmas", None)),
        "keep": keep,
        "samples": [],
        "original": None,
    }
    if len(out["timesteps"]) > 12 and cls not in ("PNDMScheduler", "HeunDiscreteScheduler") and "KDPM2" not in cls:
        out["timesteps"] = out["timesteps"][::5]
        out["sigmas"] = out["sigmas"] and out["sigmas"][::5]
    channels = 2 if str(c["config"].get("variance_type")).startswith("learned") and cls == "DDPMScheduler" else 1
    old, back = None, None
    for i, t in enumerate(timesteps):
        x = scheduler.scale_model_input(sample, t) if hasattr(scheduler, "scale_model_input") else sample
        y = model(x, t, channels)
        if cls == "CogVideoXDPMScheduler":
            sample, old = scheduler.step(y, old, t, back, sample, **c["step"], **takes_generator)
            back, original = t, old
        else:
            r = scheduler.step(y, t, sample, **c["step"], **takes_generator)
            sample, original = r.prev_sample, r.to_tuple()[1] if len(r.to_tuple()) > 1 else None
        if i in keep:
            out["samples"].append(numbers(sample))
    out["original"] = numbers(original)
    return out


def noised(cls, config):
    """add_noise and get_velocity of a run of four steps, at its first and third timestep."""
    scheduler = getattr(diffusers, cls)(**config)
    scheduler.set_timesteps(4, **({"mu": 0.8} if config.get("use_dynamic_shifting") else {}))
    x, noise = (torch.randn((2, 1, 2), generator=torch.Generator().manual_seed(s)) for s in (5, 6))
    at = torch.stack([scheduler.timesteps[0], scheduler.timesteps[2]])
    out = {"config": config, "velocity": None, "noisy": None}
    if cls != "IPNDMScheduler":
        out["noisy"] = numbers(
            scheduler.scale_noise(x, at, noise) if cls.startswith("Flow") else scheduler.add_noise(x, noise, at)
        )
    # diffusers' Euler takes the place in the run for a training timestep.
    if hasattr(scheduler, "get_velocity") and cls != "EulerDiscreteScheduler":
        out["velocity"] = numbers(scheduler.get_velocity(x, noise, at))
    return out


def per_token():
    """Steps of FlowMatchEulerDiscreteScheduler whose tokens each have a timestep of their own."""
    out = []
    for config in ({}, {"shift": 3.0, "stochastic_sampling": True}):
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(**config)
        scheduler.set_timesteps(4)
        y, x = (torch.randn((2, 3, 4), generator=torch.Generator().manual_seed(s)) for s in (5, 6))
        at = [[1000.0, 700.0, 250.5], [20.0, 500.0, 999.0]]
        generator = torch.Generator().manual_seed(SEED)
        sample = scheduler.step(
            y, scheduler.timesteps[0], x, per_token_timesteps=torch.tensor(at), generator=generator
        ).prev_sample
        out.append({"config": config, "per_token_timesteps": at, "sample": numbers(sample)})
    return out


def other_predictors():
    """Runs of UniPCMultistepScheduler with solver_p."""
    out = []
    for cls, config, steps in (
        ("DDIMScheduler", {}, 10),
        ("DDIMScheduler", {"set_alpha_to_one": False, "clip_sample": False}, 6),
    ):
        predictor = getattr(diffusers, cls)(beta_schedule="scaled_linear", **config)
        scheduler = diffusers.UniPCMultistepScheduler(beta_schedule="scaled_linear", solver_p=predictor)
        scheduler.set_timesteps(steps)
        sample = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
        for t in scheduler.timesteps:
            sample = scheduler.step(model(sample, t, 1), t, sample).prev_sample
        out.append({"class": cls, "config": config, "steps": steps, "sample": numbers(sample)})
    return out


def main():
    FOLDER.mkdir(exist_ok=True)
    for cls in sys.argv[1:] or CASES:
        cases = CASES[cls]() + shared_fields(cls)
        for c in cases:
            c["result"] = run(cls, c)
        defaults = {k: v for k, v in getattr(diffusers, cls)().config.items() if not k.startswith("_")}
        has = inspect.signature(getattr(diffusers, cls).__init__).parameters
        configs = [{}]
        if "beta_schedule" in has:
            leading = {"steps_offset": 1, "timestep_spacing": "leading"} if "timestep_spacing" in has else {}
            configs += [{**SD, **leading}, {"beta_schedule": "squaredcos_cap_v2"}]
        if "rescale_betas_zero_snr" in has:
            configs.append(
                {
                    **SD,
                    "rescale_betas_zero_snr": True,
                    "prediction_type": "v_prediction",
                    "timestep_spacing": "trailing",
                }
            )
        if "use_flow_sigmas" in has:
            configs.append({"use_flow_sigmas": True, "prediction_type": "flow_prediction"})
        file = {
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "defaults": defaults,
            "noised": [noised(cls, c) for c in configs],
            "cases": cases,
        }
        if cls == "FlowMatchEulerDiscreteScheduler":
            file["per_token"] = per_token()
        if cls == "UniPCMultistepScheduler":
            file["other_predictors"] = other_predictors()
        lines = [json.dumps(c) for c in cases]
        head = json.dumps({k: v for k, v in file.items() if k != "cases"})
        file = FOLDER / f"{cls}.json.xz"
        text = head[:-1] + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n"
        write_json(file, text)
        print(cls, len(cases), "cases", file.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
