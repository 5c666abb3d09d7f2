"""The cases of make_golden_schedulers.py: configs and arguments of diffusers' schedulers. CASES has a function for each
class, shared_fields() what most classes have; a case is a dictionary of "config", "set_timesteps" and "step", and where
they matter "seed" and "dtype".
"""

import inspect

import diffusers

SEED = 11


def grid(**axes):
    """Every combination of the axes' values."""
    out = [{}]
    for name, values in axes.items():
        out = [{**c, name: v} for c in out for v in values]
    return out


SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
BETAS = [{"beta_schedule": "linear"}, SD, {"beta_schedule": "squaredcos_cap_v2"}]
PREDICTIONS = ["epsilon", "sample", "v_prediction"]
SPACINGS = ["linspace", "leading", "trailing"]
CURVES = ["use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"]
STEPS = [1, 2, 4, 10, 25, 50]


def case(config, steps, set_timesteps=None, step=None, seed=None, dtype="float32"):
    c = {
        "config": config,
        "set_timesteps": set_timesteps if set_timesteps is not None else {"num_inference_steps": steps},
        "step": step or {},
    }
    if seed is not None:
        c["seed"] = seed
    if dtype != "float32":
        c["dtype"] = dtype
    return c


def every(config, steps=STEPS, **kwargs):
    return [case(config, n, **kwargs) for n in steps]


STOCHASTIC = [
    "DDPMScheduler",
    "EulerAncestralDiscreteScheduler",
    "LCMScheduler",
    "CogVideoXDPMScheduler",
    "TCDScheduler",
    "KDPM2AncestralDiscreteScheduler",
]


def shared_fields(cls):
    """Fields that most classes have, one at a time."""
    has = inspect.signature(getattr(diffusers, cls).__init__).parameters
    seed = {"seed": SEED} if cls in STOCHASTIC else {}
    betas = SD if "beta_schedule" in has else {}
    out = [case({**betas, "num_train_timesteps": 500}, 10, **seed)]
    if "trained_betas" in has:
        out.append(
            case(
                {"num_train_timesteps": 50, "trained_betas": [round(0.001 * (i + 1), 3) for i in range(50)]}, 10, **seed
            )
        )
    if "beta_schedule" in has:
        out.append(case({"beta_schedule": "linear", "beta_start": 0.0002, "beta_end": 0.015}, 10, **seed))
    # whose first timestep it would put past the last of training
    if "steps_offset" in has and cls not in ("LCMScheduler", "TCDScheduler"):
        out.append(case({**betas, "steps_offset": 2, "timestep_spacing": "leading"}, 10, **seed))
    if "thresholding" in has:
        out.append(
            case(
                {**betas, "thresholding": True, "dynamic_thresholding_ratio": 0.8, "sample_max_value": 1.2}, 10, **seed
            )
        )
    if "clip_sample" in has:
        out.append(case({**betas, "clip_sample": True, "clip_sample_range": 0.6}, 10, **seed))
    if "rescale_betas_zero_snr" in has:
        out += every(
            {
                **betas,
                "rescale_betas_zero_snr": True,
                "prediction_type": "v_prediction",
                "timestep_spacing": "trailing",
            },
            [2, 25],
            **seed,
        )
    if cls == "UniPCMultistepScheduler":
        c = {
            "use_flow_sigmas": True,
            "prediction_type": "flow_prediction",
            "use_dynamic_shifting": True,
            "time_shift_type": "linear",
        }
        out.append(case(c, None, set_timesteps={"num_inference_steps": 10, "mu": 1.8}))
    for dtype in ("float64", "float16", "bfloat16"):
        out.append(case(betas, 4, dtype=dtype, **seed))
    return out


def ddim():
    out = []
    for c in BETAS:
        out += every({**c})
    out += every({**SD, "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1})
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS, rescale_betas_zero_snr=[False, True]):
        # Without any signal left at the first timestep, a prediction of the noise says nothing about the sample.
        if not (c["prediction_type"] == "epsilon" and c["rescale_betas_zero_snr"]):
            out.append(case({**SD, **c, "clip_sample": False}, 10))
    out.append(case({**SD, "thresholding": True, "sample_max_value": 1.5}, 10))
    out.append(case({**SD, "trained_betas": [0.001 * (i + 1) for i in range(40)], "num_train_timesteps": 40}, 10))
    out.append(case({**SD, "clip_sample_range": 0.5}, 10, step={"use_clipped_model_output": True}))
    for eta in (0.5, 1.0):
        out.append(case({**SD, "clip_sample": False}, 10, step={"eta": eta}, seed=SEED))
    out.append(case({**SD, "clip_sample": False}, 4, step={"eta": 0.5}, seed=SEED, dtype="float16"))
    out.append(case({**SD, "clip_sample": False}, 4, step={"eta": 0.5}, seed=SEED, dtype="float64"))
    return out


def ddpm():
    out = []
    for c in BETAS + [{"beta_schedule": "sigmoid"}, {"beta_schedule": "laplace"}]:
        out += every({**c}, seed=SEED)
    out.append(case({**SD, "clip_sample": False}, 50, seed=SEED))
    for v in ["fixed_small", "fixed_small_log", "fixed_large", "learned", "learned_range"]:
        out.append(case({**SD, "variance_type": v}, 10, seed=SEED))
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1 if c["timestep_spacing"] == "leading" else 0}, 10, seed=SEED))
    out.append(case({**SD, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}, 10, seed=SEED))
    out.append(
        case({**SD, "thresholding": True, "dynamic_thresholding_ratio": 0.8, "sample_max_value": 2.0}, 10, seed=SEED)
    )
    out.append(case(SD, None, set_timesteps={"timesteps": [900, 500, 321, 20, 0]}, seed=SEED))
    return out


def curves(config, steps=(2, 10, 25)):
    return [case({**config, curve: True}, n) for curve in CURVES for n in steps]


def euler():
    out = []
    for c in BETAS:
        out += every({**c})
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 10))
    out += curves(SD)
    out.append(case({**SD, "use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 9.0}, 10))
    out.append(case({**SD, "interpolation_type": "log_linear", "use_karras_sigmas": True}, 10))
    out.append(case({**SD, "final_sigmas_type": "sigma_min"}, 10))
    out.append(
        case({**SD, "timestep_type": "continuous", "prediction_type": "v_prediction", "use_karras_sigmas": True}, 10)
    )
    out.append(
        case(
            {**SD, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"},
            10,
        )
    )
    out.append(case(SD, None, set_timesteps={"timesteps": [999, 700, 250, 24]}))
    out.append(case(SD, None, set_timesteps={"sigmas": [14.6, 5.0, 1.2, 0.3, 0.0]}))
    out.append(case(SD, 10, step={"s_churn": 5.0, "s_noise": 1.1, "s_tmin": 0.2, "s_tmax": 10.0}, seed=SEED))
    return out


def euler_ancestral():
    out = []
    for c in BETAS:
        # diffusers' first of four steps is NaN from the infinite noise level of squaredcos_cap_v2.
        out += every({**c}, [n for n in STEPS if n != 4 or c.get("beta_schedule") != "squaredcos_cap_v2"], seed=SEED)
    for c in grid(prediction_type=["epsilon", "v_prediction"], timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 10, seed=SEED))
    out.append(
        case(
            {**SD, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"},
            10,
            seed=SEED,
        )
    )
    return out


def dpm():
    out = []
    for c in BETAS:
        out += every({**c})
    algorithms = [
        {"algorithm_type": a, "final_sigmas_type": f}
        for a, f in [("dpmsolver++", "zero"), ("dpmsolver++", "sigma_min"), ("dpmsolver", "sigma_min")]
    ]
    for a in algorithms:
        for c in grid(solver_order=[1, 2, 3], solver_type=["midpoint", "heun"]):
            out.append(case({**SD, **a, **c}, 10))
    for c in grid(
        algorithm_type=["sde-dpmsolver++", "sde-dpmsolver"], solver_order=[1, 2], solver_type=["midpoint", "heun"]
    ):
        out.append(case({**SD, **c, "final_sigmas_type": "sigma_min"}, 10, seed=SEED))
    out.append(
        case(
            {**SD, "algorithm_type": "sde-dpmsolver++", "solver_order": 3, "final_sigmas_type": "sigma_min"},
            10,
            seed=SEED,
        )
    )
    out.append(case({**SD, "algorithm_type": "sde-dpmsolver++"}, 25, seed=SEED))
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 10))
        out.append(case({**SD, **c, "algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}, 4))
    out += curves(SD)
    out.append(case({**SD, "use_lu_lambdas": True}, 10))
    out.append(case({"beta_schedule": "squaredcos_cap_v2", "use_karras_sigmas": True}, 10))
    for c in [
        {"lower_order_final": False},
        {"euler_at_final": True, "final_sigmas_type": "sigma_min"},
        {"lower_order_final": False, "solver_order": 3},
    ]:
        out += every({**SD, **c}, [4, 25])
    out.append(case({**SD, "lambda_min_clipped": -5.1, "beta_schedule": "squaredcos_cap_v2"}, 10))
    out.append(case({**SD, "thresholding": True, "sample_max_value": 1.5}, 10))
    out.append(case({**SD, "thresholding": True, "algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}, 10))
    out.append(
        case(
            {**SD, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"},
            10,
        )
    )
    flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0}
    out += every(flow)
    for c in grid(solver_order=[1, 3], solver_type=["midpoint", "heun"]):
        out.append(case({**flow, **c}, 10))
    out.append(case({**flow, "algorithm_type": "sde-dpmsolver++"}, 10, seed=SEED))
    out.append(case({**flow, "use_karras_sigmas": True}, 10))
    out.append(case({"use_flow_sigmas": True, "prediction_type": "flow_prediction", "use_dynamic_shifting": True}, None,
                    set_timesteps={"num_inference_steps": 10, "mu": 0.8}))  # fmt: skip
    out.append(case(SD, None, set_timesteps={"timesteps": [999, 850, 500, 321, 20]}))
    out.append(case({**SD, "variance_type": "learned"}, 4))
    out.append(case({**SD, "algorithm_type": "sde-dpmsolver++"}, 4, seed=SEED, dtype="float16"))
    return out


def pndm():
    out = []
    for c in BETAS:
        out += every({**c}, [4, 10, 25])
        out += every({**c, "skip_prk_steps": True})
    out.append(case({**SD, "skip_prk_steps": True, "steps_offset": 1}, 50))
    for c in grid(prediction_type=["epsilon", "v_prediction"], timestep_spacing=SPACINGS, skip_prk_steps=[False, True]):
        out.append(case({**SD, **c}, 10))
    out.append(case({**SD, "set_alpha_to_one": True}, 10))
    out.append(case({**SD, "skip_prk_steps": True}, 4, dtype="float16"))
    return out


def flow():
    out = []
    for c in [{}, {"shift": 3.0}, {"shift_terminal": 0.1}, {"shift": 2.0, "shift_terminal": 0.02}]:
        out += every({**c}, STEPS[1:] if "shift_terminal" in c else STEPS)
    for kind in ["exponential", "linear"]:
        for n in (1, 4, 10):
            c = {"use_dynamic_shifting": True, "time_shift_type": kind}
            out.append(case(c, None, set_timesteps={"num_inference_steps": n, "mu": 0.8}))
    out += curves({"shift": 3.0}, (4, 10))
    out += every({"shift": 3.0, "stochastic_sampling": True}, [1, 4, 10], seed=SEED)
    out += every({"shift": 3.0, "shift_terminal": 0.1, "use_karras_sigmas": True}, [4, 10])
    out.append(
        case(
            {"use_dynamic_shifting": True, "shift_terminal": 0.02},
            None,
            set_timesteps={"num_inference_steps": 10, "mu": 0.8},
        )
    )
    out.append(case({"invert_sigmas": True}, 4))
    out.append(case({"shift": 3.0}, None, set_timesteps={"sigmas": [1.0, 0.7, 0.3, 0.1]}))
    out.append(case({"shift": 3.0}, None, set_timesteps={"timesteps": [1000.0, 700.5, 300.0]}))
    out.append(
        case(
            {},
            None,
            set_timesteps={"timesteps": [1000.0, 700.5, 300.0], "sigmas": [1.0, 0.7, 0.3], "num_inference_steps": 3},
        )
    )
    return out


def heun():
    out = []
    for c in BETAS + [{"beta_schedule": "exp"}]:
        out += every({**c})
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 10))
    out += curves(SD, (2, 10))
    out.append(case({**SD, "clip_sample": True, "clip_sample_range": 2.0}, 10))
    out.append(case(SD, None, set_timesteps={"timesteps": [999, 700, 250, 24]}))
    return out


def unipc():
    out = []
    for c in BETAS:
        out += every({**c})
    for c in grid(solver_order=[1, 2, 3, 4], solver_type=["bh1", "bh2"], predict_x0=[True, False]):
        out.append(case({**SD, **c, "final_sigmas_type": "sigma_min"}, 10))
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 10))
        out.append(case({**SD, **c, "predict_x0": False, "final_sigmas_type": "sigma_min"}, 4))
    out += curves(SD)
    out.append(
        case(
            {**SD, "use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 9.0, "final_sigmas_type": "sigma_min"}, 10
        )
    )
    out += every({**SD, "lower_order_final": False, "solver_order": 3, "final_sigmas_type": "sigma_min"}, [4, 25])
    out.append(case({**SD, "disable_corrector": [0, 3], "solver_order": 3}, 10))
    out.append(case({**SD, "thresholding": True, "sample_max_value": 1.5}, 10))
    out.append(
        case(
            {**SD, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"},
            10,
        )
    )
    flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
    out += every({**flow, "flow_shift": 3.0})
    # diffusers' bh1 has NaN where no noise is left
    for c in grid(solver_order=[1, 3], solver_type=["bh1", "bh2"], final_sigmas_type=["sigma_min"]):
        out.append(case({**flow, **c}, 10))
    out.append(case({**flow, "shift_terminal": 0.1}, 10))
    out.append(case({**flow, "use_karras_sigmas": True}, 10))
    out.append(case({**flow, "use_dynamic_shifting": True}, None, set_timesteps={"num_inference_steps": 10, "mu": 0.8}))
    out.append(case(flow, None, set_timesteps={"sigmas": [0.9, 0.7, 0.3, 0.1]}))
    return out


def lcm():
    out = every({}, seed=SEED)
    for c in [{"beta_schedule": "linear"}, {"beta_schedule": "squaredcos_cap_v2"}, {"timestep_scaling": 3.0},
              {"clip_sample": True}, {"thresholding": True}, {"set_alpha_to_one": False},
              {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}]:  # fmt: skip
        out += every(c, [4], seed=SEED)
    for p in PREDICTIONS:
        out.append(case({"prediction_type": p}, 10, seed=SEED))
    out.append(case({"original_inference_steps": 100}, 10, seed=SEED))
    out.append(case({}, None, set_timesteps={"num_inference_steps": 4, "original_inference_steps": 100}, seed=SEED))
    out.append(case({}, None, set_timesteps={"num_inference_steps": 4, "strength": 0.6}, seed=SEED))
    out.append(case({}, None, set_timesteps={"timesteps": [999, 759, 499, 259]}, seed=SEED))
    return out


def tcd():
    out = every({}, [1, 2, 4, 10], seed=SEED)
    for c in [{"beta_schedule": "squaredcos_cap_v2"}, {"set_alpha_to_one": False}]:
        out += every(c, [4], seed=SEED)
    for p in PREDICTIONS:
        for eta in (0.0, 0.8):
            out.append(case({"prediction_type": p}, 6, step={"eta": eta}, seed=SEED))
    out.append(case({}, None, set_timesteps={"num_inference_steps": 4, "original_inference_steps": 100}, seed=SEED))
    out.append(case({}, None, set_timesteps={"num_inference_steps": 4, "strength": 0.6}, seed=SEED))
    out.append(case({}, None, set_timesteps={"timesteps": [999, 759, 499, 259]}, seed=SEED))
    return out


def lms():
    out = []
    for c in BETAS:
        out += every({**c}, [1, 2, 10])
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 6))
    out += curves(SD, (6,))
    out += [case(SD, 6, step={"order": n}) for n in (1, 2, 3)]
    return out


def kdpm2(seed=None):
    out = []
    for c in BETAS[:2]:
        # Of two ancestral steps the first goes down to a square root of what is left of two nearly equal squares.
        out += every({**c}, [1, 2, 10] if seed is None else [1, 10], seed=seed)
    for c in grid(prediction_type=["epsilon", "v_prediction"], timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1}, 5, seed=seed))
    return out + [case({**SD, curve: True}, 6, seed=seed) for curve in CURVES]


def single():
    out = []
    for c in BETAS:
        out += every({**c}, [1, 2, 5, 10])
    for c in grid(solver_order=[1, 2, 3], solver_type=["midpoint", "heun"]):
        out.append(case({**SD, **c, "lower_order_final": True}, 6))
        out.append(case({**SD, **c, "algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}, 6))
        out.append(case({**SD, **c, "algorithm_type": "sde-dpmsolver++"}, 7, seed=SEED))
    out += [case({**SD, "prediction_type": p}, 4) for p in PREDICTIONS]
    out += curves(SD, (6,))
    out.append(case({**SD, "lambda_min_clipped": -5.1, "beta_schedule": "squaredcos_cap_v2"}, 6))
    out.append(case({"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0}, 6))
    out.append(case(SD, None, set_timesteps={"timesteps": [999, 850, 500, 321, 20]}))
    return out


def deis():
    out = []
    for c in BETAS:
        out += every({**c}, [1, 2, 10, 25])
    for n in (1, 2, 3):
        out.append(case({**SD, "solver_order": n, "lower_order_final": False}, 6))
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case({**SD, **c, "steps_offset": 1, "solver_order": 3}, 5))
    out += curves(SD, (6,))
    out += every({"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0}, [2, 6])
    return out


EDM = [{}, {"sigma_schedule": "exponential"}, {"prediction_type": "v_prediction"}, {"rho": 5.0, "sigma_max": 40.0},
       {"final_sigmas_type": "sigma_min"}, {"sigma_data": 0.8, "sigma_min": 0.01}]  # fmt: skip


def edm_euler():
    out = every({}, [1, 2, 10, 25])
    out += [case(c, 6) for c in EDM[1:]]
    out.append(case({}, 6, step={"s_churn": 2.0, "s_noise": 1.1, "s_tmin": 0.2, "s_tmax": 10.0}, seed=SEED))
    return out


def edm_dpm():
    out = every({}, [1, 2, 10, 25])
    out += [case({**c, "solver_order": 3}, 6) for c in EDM]
    for c in grid(solver_order=[1, 2], solver_type=["midpoint", "heun"]):
        out.append(case(c, 6))
        out.append(case({**c, "algorithm_type": "sde-dpmsolver++"}, 6, seed=SEED))
    out.append(case({"euler_at_final": True, "lower_order_final": False, "final_sigmas_type": "sigma_min"}, 6))
    return out


def ipndm():
    return every({}, [1, 2, 3, 4, 10])


def cogvideox(seed=None):
    out = every({}, seed=seed)
    for c in [{"beta_schedule": "linear"}, {"beta_schedule": "squaredcos_cap_v2"}, {"snr_shift_scale": 1.0},
              {"set_alpha_to_one": False},
              {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction",
               "timestep_spacing": "trailing"}]:  # fmt: skip
        out += every(c, [4, 10], seed=seed)
    for c in grid(prediction_type=PREDICTIONS, timestep_spacing=SPACINGS):
        out.append(case(c, 10, seed=seed))
    return out


CASES = {
    "DDIMScheduler": ddim,
    "DDPMScheduler": ddpm,
    "EulerDiscreteScheduler": euler,
    "EulerAncestralDiscreteScheduler": euler_ancestral,
    "DPMSolverMultistepScheduler": dpm,
    "PNDMScheduler": pndm,
    "FlowMatchEulerDiscreteScheduler": flow,
    "HeunDiscreteScheduler": heun,
    "UniPCMultistepScheduler": unipc,
    "LCMScheduler": lcm,
    "TCDScheduler": tcd,
    "LMSDiscreteScheduler": lms,
    "KDPM2DiscreteScheduler": kdpm2,
    "KDPM2AncestralDiscreteScheduler": lambda: kdpm2(SEED),
    "DPMSolverSinglestepScheduler": single,
    "DEISMultistepScheduler": deis,
    "EDMEulerScheduler": edm_euler,
    "EDMDPMSolverMultistepScheduler": edm_dpm,
    "IPNDMScheduler": ipndm,
    "CogVideoXDDIMScheduler": cogvideox,
    "CogVideoXDPMScheduler": lambda: cogvideox(SEED),
}
