"""CogVideoX's networks beside diffusers' where that is installed: a transformer block, and the autoencoder decoding.

    PYTHONPATH=build/python python benchmarks/video.py [--torch-python PYTHON] [--bench build/scaffolding_bench]
    [--rounds N] [--threads N] [--row TEXT]

Rows: "block" is one of CogVideoX-2B's 30, 1920 wide with 30 heads, over 226 tokens of text and 3774 of a video;
"decode" is AutoencoderKLCogVideoX with its own numbers of channels, 5 frames of 8x8 latents to 17 frames of 64x64
pixels. Weights are random. The programs take turns, each measurement in a process of its own, and medians of the rounds
are printed.
"cpu" is processor time over threads, which other programs disturb less than time on the clock. OMP_WAIT_POLICY is
passive for both, or waiting threads would count as work. "of peak" is the rate of the network's multiplications and
additions, as direct sums have them, over what scaffolding_bench's loop of them reaches, which has its turns too; a
convolution by Winograd's algorithm makes fewer and may pass it.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROWS = {"block f32": "float32", "block bf16": "bfloat16", "decode f32": "float32", "decode bf16": "bfloat16"}
WIDTH, HEADS, TEXT, VIDEO = 1920, 30, 226, 3774
LATENTS = (1, 16, 5, 8, 8)


def block_flop():
    tokens = TEXT + VIDEO
    return 2 * tokens * 12 * WIDTH**2 + 4 * tokens**2 * WIDTH


def decode_flop(lib, vae):
    """Of the convolutions, as they are called."""
    total = 0

    def count(module, _, output):
        nonlocal total
        total += 2 * (output[0] if isinstance(output, tuple) else output).numel() * module.weight[0].numel()

    kinds = (lib.nn.Conv2d, lib.nn.Conv3d)
    return [m.register_forward_hook(count) for m in vae.decoder.modules() if isinstance(m, kinds)], lambda: total


def child(which, row, threads):
    if which == "ours":
        import scaffolding as lib
        from scaffolding.models import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
    else:
        import torch as lib
        from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
    lib.set_num_threads(threads)
    lib.manual_seed(0)
    dtype, answer = getattr(lib, ROWS[row]), {}
    if row.startswith("block"):
        model = CogVideoXTransformer3DModel(num_attention_heads=HEADS, num_layers=1).eval().to(dtype)
        video, text, temb = (lib.randn(*s).to(dtype) for s in ((1, VIDEO, WIDTH), (1, TEXT, WIDTH), (1, 512)))
        answer["flop"] = block_flop()

        def call():
            return model.transformer_blocks[0](video, text, temb)

    else:
        model = AutoencoderKLCogVideoX().eval().to(dtype)
        latents = lib.randn(*LATENTS).to(dtype)

        def call():
            return model.decode(latents).sample

    with lib.no_grad():
        if row.startswith("decode"):
            hooks, total = decode_flop(lib, model)
            call()
            answer["flop"] = total()
            for hook in hooks:
                hook.remove()
        call()
        times = []
        for _ in range(3):
            start, start_cpu = time.perf_counter(), time.process_time()
            call()
            times.append((time.perf_counter() - start, (time.process_time() - start_cpu) / threads))
    answer["wall"], answer["cpu"] = (statistics.median(t) for t in zip(*times))
    print(json.dumps(answer))


def peak_of(bench, dtype, threads):
    """FLOP per second, of the fastest of its loops; 0 without the program."""
    if not bench.exists():
        return 0
    lines = subprocess.run(
        [bench, "--peaks", "--threads", str(threads)], check=True, stdout=subprocess.PIPE
    ).stdout.splitlines()
    rates = [p["flop_per_second"] for p in map(json.loads, lines) if p.get("peak", "").startswith(dtype + " ")]
    return max(rates, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--torch-python", default=os.environ.get("TORCH_PYTHON"), help="a Python that has torch and diffusers"
    )
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/scaffolding_bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--row", default="", help="only rows whose name has this in it")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child, options.threads)
    programs = {"ours": sys.executable} | ({"torch": options.torch_python} if options.torch_python else {})
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(options.threads)}
    for row in (r for r in ROWS if options.row in r):
        answers, peaks = {which: [] for which in programs}, []
        for _ in range(options.rounds):
            peaks.append(peak_of(options.bench, row.split()[-1], options.threads))
            for which, python in programs.items():
                command = [python, __file__, "--threads", str(options.threads), "--child", which, row]
                result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
                answers[which].append(json.loads(result.splitlines()[-1]))
        peak = statistics.median(peaks)
        medians = {w: {k: statistics.median(a[k] for a in found) for k in found[0]} for w, found in answers.items()}
        for which, m in medians.items():
            line = f"{row:12} {which:6} wall {m['wall']:.2f} s, cpu {m['cpu']:.2f} s"
            if peak:
                line += f", {m['flop'] / peak:.2f} s at the peak: {100 * m['flop'] / peak / m['wall']:.0f} % of it"
            if which == "ours" and "torch" in medians:
                shares = (f"{100 * m[k] / medians['torch'][k]:.0f} % ({k})" for k in ("wall", "cpu"))
                line += f"; takes {', '.join(shares)} of torch's time"
            print(line, flush=True)


if __name__ == "__main__":
    main()
