"""Schedulers of random configs against diffusers: whole runs, as make_golden_schedulers.py makes them.

    PYTHONPATH=build/dev/python python tests/conformance/random_schedulers.py --torch-python PYTHON [--runs 1500]
    [--seed 1]

PYTHON is one that has torch, diffusers and scipy. Prints the largest difference of each class, relative to the largest
value, and the configs above 1e-5; fails where one in two hundred is. A few are: torch's float32 square roots are wrong
in the last place in 7 of 1000, its exponentials in 1 of 100, and with the zero-SNR sigma of 4096, or a third order and
short steps, what is left of such a number after subtraction may be mostly that.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "golden"), str(HERE.parent / "python")]
LIMIT = 1e-5
SOME = [False, False, True]
FEW = [False] * 5 + [True]
AXES = {
    "prediction_type": ["epsilon", "sample", "v_prediction"], "timestep_spacing": ["linspace", "leading", "trailing"],
    "rescale_betas_zero_snr": [False, True], "beta_schedule": ["linear", "scaled_linear", "squaredcos_cap_v2"],
    "beta_start": [0.0001, 0.00085], "beta_end": [0.02, 0.012], "clip_sample": [False, True], "thresholding": FEW,
    "sample_max_value": [1.0, 1.5], "set_alpha_to_one": [False, True], "steps_offset": [0, 1],
    "solver_order": [1, 2, 3], "algorithm_type": ["dpmsolver++", "dpmsolver", "sde-dpmsolver++", "sde-dpmsolver"],
    "use_karras_sigmas": SOME, "use_exponential_sigmas": FEW, "use_beta_sigmas": FEW, "use_lu_lambdas": FEW,
    "final_sigmas_type": ["zero", "sigma_min"], "lower_order_final": [True, True, False],
    "euler_at_final": [False, True], "predict_x0": [True, False],
    "variance_type": ["fixed_small", "fixed_small_log", "fixed_large"], "skip_prk_steps": [True, False],
    "interpolation_type": ["linear", "log_linear"], "snr_shift_scale": [1.0, 3.0], "shift": [1.0, 3.0],
    "shift_terminal": [None, 0.1], "timestep_scaling": [10.0, 3.0], "stochastic_sampling": [False, True],
    "use_flow_sigmas": SOME, "flow_shift": [1.0, 3.0],
}  # fmt: skip
SOLVERS = {"UniPCMultistepScheduler": ["bh1", "bh2"], "DPMSolverMultistepScheduler": ["midpoint", "heun"]}


def write_theirs(path, runs, seed):
    """Runs that diffusers can do and whose numbers stay finite."""
    import inspect

    import diffusers
    import make_golden_schedulers as golden

    draw = random.Random(seed)
    out = []
    while len(out) < runs:
        cls = draw.choice(list(golden.CASES))
        has = inspect.signature(getattr(diffusers, cls).__init__).parameters
        config = {
            k: draw.choice(v)
            for k, v in AXES.items()
            if k in has and draw.random() < 0.6 and not (k == "variance_type" and cls != "DDPMScheduler")
        }
        if cls in SOLVERS:
            config["solver_type"] = draw.choice(SOLVERS[cls])
        if config.get("use_flow_sigmas"):
            config["prediction_type"] = "flow_prediction"
        stochastic = (
            cls in golden.STOCHASTIC or "sde" in config.get("algorithm_type", "") or config.get("stochastic_sampling")
        )
        case = golden.case(
            config, draw.choice([1, 2, 3, 4, 5, 7, 10, 20, 25, 50]), seed=golden.SEED if stochastic else None
        )
        try:
            case["result"] = golden.run(cls, case)
        except Exception:  # many combinations are none: diffusers says so in one way or another
            continue
        values = [v for sample in case["result"]["samples"] for v in sample]
        if all(math.isfinite(v) and abs(v) < 1e6 for v in values):
            out.append([cls, case])
    path.write_text(json.dumps(out))


def difference(cls, case):
    """The largest of a run, relative to the largest value; None where ours refuses the config."""
    import test_schedulers

    worst = 0.0

    def note(got, expected, limit, what):
        nonlocal worst
        worst = max(worst, test_schedulers.distance(got, expected, what))

    plain, test_schedulers.assert_like = test_schedulers.assert_like, note
    try:
        test_schedulers.test_runs_equal_diffusers(cls, case)
    except (ValueError, NotImplementedError) as e:
        print("refused:", cls, case["config"], e)
        return None
    finally:
        test_schedulers.assert_like = plain
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON"))
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        return write_theirs(options.write, options.runs, options.seed)
    if not options.torch_python:
        parser.error("--torch-python or TORCH_PYTHON must name a Python that has torch, diffusers and scipy")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "runs.json"
        command = [
            options.torch_python,
            __file__,
            "--runs",
            str(options.runs),
            "--seed",
            str(options.seed),
            "--write",
            str(path),
        ]
        subprocess.run(command, check=True)
        cases = json.loads(path.read_text())
    largest, above = collections.defaultdict(float), 0
    for cls, case in cases:
        d = difference(cls, case)
        if d is None:
            continue
        largest[cls] = max(largest[cls], d)
        if d > LIMIT:
            above += 1
            print(f"{d:.1e}", cls, case["config"], case["set_timesteps"])
    for cls, d in sorted(largest.items()):
        print(f"{cls}: at most {d:.1e}")
    print(f"{above} of {len(cases)} above {LIMIT:g}")
    return int(above > len(cases) / 200)


if __name__ == "__main__":
    sys.exit(main())
