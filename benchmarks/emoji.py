"""A picture of a small model from nothing to pixels: start-up, loading, 128x128 in 20 steps with guidance, memory;
beside diffusers on PyTorch.

    PYTHONPATH=build/python python benchmarks/emoji.py models/emoji-128 --program build/scaffolding [--torch-python
    PYTHON]

Each row is a process of its own, several rounds of all in turn, medians. "import" and "load" are start-up, which a
newcomer waits for each time; "first" is the first picture of a process, "next" the following one. "peak" is the largest
resident memory. The floor is what the products and convolutions of the picture would take at the speed of a 1536^3
product on this machine.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

PROMPT = "red apple, fluent 3d, on a blue background"


def peak_megabytes():
    rows = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return int(rows["VmHWM"].split()[0]) / 1000


def flop_of(pipe, call, conv, linear):
    """Multiplications and additions of the convolutions and linear layers of one call, counted by hooks."""
    total = [0]

    def count(module, inputs, output):
        weight = module.weight
        total[0] += 2 * output.numel() * weight.numel() // weight.shape[0]

    hooks = [
        m.register_forward_hook(count)
        for part in (pipe.unet, pipe.vae, pipe.text_encoder)
        for m in part.modules()
        if isinstance(m, (conv, linear))
    ]
    call()
    for hook in hooks:
        hook.remove()
    return total[0]


def measure(library, model, steps, threads):
    """In a process of its own: what each part took, as JSON."""
    began = time.perf_counter()
    if library == "ours":
        import scaffolding as framework
        from scaffolding.diffusion import StableDiffusionPipeline
    else:
        import torch as framework
        from diffusers import StableDiffusionPipeline

        framework.set_grad_enabled(False)
    framework.set_num_threads(threads)
    imported = time.perf_counter()
    dtype = framework.float32
    pipe = StableDiffusionPipeline.from_pretrained(
        model, torch_dtype=dtype, **({} if library == "ours" else {"safety_checker": None, "local_files_only": True})
    )
    loaded = time.perf_counter()
    pipe.set_progress_bar_config(disable=True)

    def call(steps=steps):
        return pipe(
            PROMPT, num_inference_steps=steps, guidance_scale=5.0, generator=framework.Generator().manual_seed(0)
        )

    ends = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        ends.append(time.perf_counter() - start)
    out = {
        "import": imported - began,
        "load": loaded - imported,
        "first": ends[0],
        "next": min(ends[1:]),
        "peak": peak_megabytes(),
    }
    if library == "ours":
        # Hooks count a pass of each network; the denoiser's is called `steps` times.
        layers = framework.nn.Conv2d, framework.nn.Linear
        one, two = flop_of(pipe, lambda: call(1), *layers), flop_of(pipe, lambda: call(2), *layers)
        a = framework.randn(1536, 1536)
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            a @ a
            best = min(best, time.perf_counter() - start)
        out["floor"] = (one + (two - one) * (steps - 1)) / (2 * 1536**3 / best)
    print(json.dumps(out))


def run_program(program, model, steps, threads):
    """The whole process: seconds and megabytes, as the kernel counts them."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [
        program,
        "txt2img",
        PROMPT,
        "--model",
        model,
        "--steps",
        str(steps),
        "--seed",
        "0",
        "-q",
        "--force",
        "-o",
        "/tmp/scaffolding-benchmark.png",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{program} failed")
    return {"whole": time.perf_counter() - began, "peak": usage.ru_maxrss / 1000}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--program")
    parser.add_argument("--torch-python")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=("ours", "diffusers"), help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.measure:
        return measure(o.measure, o.model, o.steps, o.threads)
    rows = {}
    environment = {"GOMP_SPINCOUNT": "2000"} | os.environ | {"OMP_NUM_THREADS": str(o.threads)}
    for _ in range(o.rounds):
        if o.program:
            rows.setdefault("program", []).append(run_program(o.program, o.model, o.steps, o.threads))
        for library, python in (("ours", sys.executable), ("diffusers", o.torch_python)):
            if not python:
                continue
            command = [
                python,
                __file__,
                o.model,
                "--measure",
                library,
                "--steps",
                str(o.steps),
                "--threads",
                str(o.threads),
            ]
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            if done.returncode != 0:
                sys.exit(done.stderr.strip().split("\n")[-1])
            rows.setdefault(library, []).append(
                json.loads(done.stdout.split("\n")[-2]) | {"process": time.perf_counter() - began}
            )
    medians = {name: {key: statistics.median(r[key] for r in runs) for key in runs[0]} for name, runs in rows.items()}
    print(f"{'':10}" + "".join(f"{h:>10}" for h in ("import s", "load s", "first s", "next s", "peak MB", "floor s")))
    for name in ("ours", "diffusers"):
        if name in medians:
            cells = (medians[name].get(key) for key in ("import", "load", "first", "next", "peak", "floor"))
            print(
                f"{name:10}"
                + "".join(f"{'' if c is None else format(c, '.0f' if c > 50 else '.3f'):>10}" for c in cells)
            )
    if "program" in medians:
        print(
            f"the program, from start to file: {medians['program']['whole']:.3f} s, peak "
            f"{medians['program']['peak']:.0f} MB"
        )
    if "diffusers" in medians:
        a, b = medians["ours"], medians["diffusers"]
        print(
            f"picture: {a['next'] / b['next']:.2f} of diffusers' time; start-up: "
            f"{(a['import'] + a['load']) / (b['import'] + b['load']):.3f} of it"
        )


if __name__ == "__main__":
    main()
