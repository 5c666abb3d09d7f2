"""The UNet of Stable Diffusion beside diffusers' where that is installed: a pass of Stable Diffusion 1.5, and a
training step of a smaller one.

    PYTHONPATH=build/python python benchmarks/unet.py [--torch-python PYTHON] [--rounds N] [--threads N] [--row TEXT]

Rows: "pass" is one sample at 64x64 latents, in float32 and bfloat16; "train" is forward, backward and AdamW of 50
million parameters, 8 samples at 32x32 latents, in float32 and under autocast to bfloat16. Weights are random. Each
measurement is in a process of its own, in turn, and the best of the rounds counts. "cpu" is processor time over
threads, which other programs disturb less than time on the clock. OMP_WAIT_POLICY is passive for both, or waiting
threads would count as work."""

import json
import time

import turns

SMALL = dict(
    block_out_channels=(128, 192, 256, 320),
    cross_attention_dim=512,
)
ROWS = {"pass f32": "float32", "pass bf16": "bfloat16", "train f32": "float32", "train bf16": "bfloat16"}


def child(which, row, threads):
    lib, models = turns.library(which)
    lib.set_num_threads(threads)
    lib.manual_seed(0)
    dtype, training = getattr(lib, ROWS[row]), row.startswith("train")
    config = SMALL if training else {"cross_attention_dim": 768}
    autocast = training and dtype != lib.float32
    if autocast:
        dtype = lib.float32
    model = models.UNet2DConditionModel(**config).to(dtype).train(training)
    batch, pixels = (8, 32) if training else (1, 64)
    x = lib.randn(batch, 4, pixels, pixels).to(dtype)
    noise = lib.randn(batch, 4, pixels, pixels).to(dtype)
    text = lib.randn(batch, 77, config["cross_attention_dim"]).to(dtype)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-4) if training else None

    def call():
        if not training:
            with lib.no_grad():
                return model(x, 500, text).sample
        optimizer.zero_grad()
        with lib.autocast("cpu", dtype=lib.bfloat16, enabled=autocast):
            loss = lib.nn.functional.mse_loss(model(x, 500, text).sample.float(), noise)
        loss.backward()
        optimizer.step()

    best = {}
    for _ in range(3):
        start, start_cpu = time.perf_counter(), time.process_time()
        call()
        now = {"wall": time.perf_counter() - start, "cpu": (time.process_time() - start_cpu) / threads}
        best = {k: min(v, best.get(k, v)) for k, v in now.items()}
    print(json.dumps(best | {"parameters": sum(p.numel() for p in model.parameters())}))


def main():
    options = turns.options_of(
        __doc__, 2, lambda p: p.add_argument("--row", default="", help="only rows whose name has this in it")
    )
    if options.child:
        return child(*options.child, options.threads)
    for row in (r for r in ROWS if options.row in r):
        answers = turns.take_turns(options, __file__, [row], turns.programs(options))
        best = {which: {k: min(a[k] for a in found) for k in found[0]} for which, found in answers.items()}
        for which, b in best.items():
            share = (
                f", {100 * b['cpu'] / best['torch']['cpu']:.0f} % of torch's processor time"
                if which == "ours" and "torch" in best
                else ""
            )
            print(
                f"{row:10} {which:6} wall {b['wall']:.2f} s, cpu {b['cpu']:.2f} s, {b['parameters'] / 1e6:.0f} "
                f"million parameters{share}",
                flush=True,
            )


if __name__ == "__main__":
    main()
