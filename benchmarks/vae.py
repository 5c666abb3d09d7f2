"""The autoencoder of Stable Diffusion decoding 64x64 latents to 512x512 pixels: time and peak memory, beside diffusers
where it is installed.

    PYTHONPATH=build/python python benchmarks/vae.py [--torch-python PYTHON] [--rounds N] [--threads N] [--dtype f32]
    [--latents 64]

Each measurement is in a process of its own, in turn, and the best of the rounds counts. "cpu" is processor time over
threads, which other programs disturb less than time on the clock. "peak" is the largest resident memory during a decode
above that before it, which holds the weights. "floor" is what the multiplications would take at the machine's peak,
without Winograd's savings; it is measured by benchmarks/table.py's loop, or given by --gflops."""

import gc
import json
import pathlib
import time

import turns

CONFIG = dict(
    block_out_channels=(128, 256, 512, 512),
    down_block_types=("DownEncoderBlock2D",) * 4,
    up_block_types=("UpDecoderBlock2D",) * 4,
    layers_per_block=2,
    sample_size=512,
)
GFLOP_512 = 2515  # multiplications and additions of one decode of 64x64 latents


def status(name):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"/proc/self/status has no {name}")


def child(which, latents, dtype, threads):
    """One program's decode, twice; answers as JSON."""
    lib, models = turns.library(which.split()[0])
    lib.set_num_threads(threads)
    lib.manual_seed(0)
    model = models.AutoencoderKL(**CONFIG).eval().to({"f32": lib.float32, "bf16": lib.bfloat16}[dtype])
    if which.endswith("tiled"):
        model.enable_tiling()
        model.tile_sample_min_size, model.tile_latent_min_size = 256, 32
    z = lib.randn(1, 4, latents, latents).to(model.dtype)
    best = {}
    gc.collect()
    for _ in range(2):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
        before, start, start_cpu = status("VmRSS"), time.perf_counter(), time.process_time()
        with lib.no_grad():
            picture = model.decode(z).sample
        now = {
            "wall": time.perf_counter() - start,
            "cpu": (time.process_time() - start_cpu) / threads,
            "peak": status("VmHWM") - before,
        }
        best = {k: max(v, best.get(k, 0)) if k == "peak" else min(v, best.get(k, v)) for k, v in now.items()}
        del picture
    print(json.dumps(best | {"weights": before}))


def add_options(parser):
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--latents", type=int, default=64)
    parser.add_argument("--gflops", type=float, default=235, help="the machine's peak for float32, of all threads")
    parser.add_argument("--only", help="one of the rows")


def main():
    options = turns.options_of(__doc__, 3, add_options)
    if options.child:
        return child(options.child[0], options.latents, options.dtype, options.threads)
    peers = {name + tiled: python for name, python in turns.programs(options).items() for tiled in ("", " tiled")}
    if options.only:
        peers = {options.only: peers[options.only]}
    arguments = ["--latents", str(options.latents), "--dtype", options.dtype]
    found = {
        name: {key: [a[key] for a in answers] for key in answers[0]}
        for name, answers in turns.take_turns(options, __file__, [], peers, arguments).items()
    }
    print(f"decode {options.latents}x{options.latents} latents, {options.dtype}, {options.threads} threads")
    print(f"{'':14}{'wall s':>9}{'cpu s':>9}{'peak MB':>9}")
    for name, f in found.items():
        print(f"{name:14}{min(f['wall']):9.2f}{min(f['cpu']):9.2f}{max(f['peak']) / 1e6:9.0f}")
    floor = GFLOP_512 * (options.latents / 64) ** 2 / options.gflops / (2 if options.dtype == "bf16" else 1)
    print(f"{'floor':14}{floor:9.2f}{floor:9.2f}")
    for name in ("ours", "ours tiled"):
        if name in found and name.replace("ours", "torch") in found:
            ours, torch = found[name], found[name.replace("ours", "torch")]
            print(
                f"{name} / torch: wall {min(ours['wall']) / min(torch['wall']):.2f}, cpu "
                f"{min(ours['cpu']) / min(torch['cpu']):.2f}"
            )


if __name__ == "__main__":
    main()
