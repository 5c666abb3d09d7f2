"""CogVideoX's networks beside diffusers' where that is installed: a transformer block, and the autoencoder decoding,
as LTX-2's does; and a clip of the model that ships.

    PYTHONPATH=build/python python benchmarks/video.py [--torch-python PYTHON] [--bench build/scaffolding_bench]
    [--model models/emoji-video] [--rounds N] [--threads N] [--row TEXT]

Rows: "block" is one of CogVideoX-2B's 30, 1920 wide with 30 heads, over 226 tokens of text and 3774 of a video;
"decode" is AutoencoderKLCogVideoX with its own numbers of channels, 5 frames of 8x8 latents to 17 frames of 64x64
pixels; "ltx2 decode" is LTX-2.3's decoder as it is published, 3 frames of 4x6 latents to 17 frames of 128x192 pixels.
Their weights are random. "emoji-video clip" is a call of the pipeline in --model, loaded before: a prompt and a
trajectory to 17 frames of 64x64 pixels, 20 steps with guidance, float32, in at most 8 s; diffusers has no such
pipeline. The programs take turns, each measurement in a process of its own, and medians of the rounds are printed.
"cpu" is processor time over threads, which other programs disturb less than time on the clock. OMP_WAIT_POLICY is
passive for both, or waiting threads would count as work. "of peak" is the rate of the network's multiplications and
additions, as direct sums have them, over what scaffolding_bench's loop of them reaches, which has its turns too; a
convolution by Winograd's algorithm makes fewer and may pass it.
"""

import json
import pathlib
import statistics
import subprocess
import time

import turns

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = {"block f32": "float32", "block bf16": "bfloat16", "decode f32": "float32", "decode bf16": "bfloat16",
        "ltx2 decode f32": "float32"}  # fmt: skip
CLIP, GOAL = "emoji-video clip", 8  # seconds
WIDTH, HEADS, TEXT, VIDEO = 1920, 30, 226, 3774
LATENTS, LTX2_LATENTS = (1, 16, 5, 8, 8), (1, 128, 3, 4, 6)
LTX2_3 = {
    "block_out_channels": [128] * 4,  # of the encoder, which is small
    "layers_per_block": [1] * 5,
    "decoder_block_out_channels": [256, 512, 512, 1024],
    "decoder_layers_per_block": [4, 6, 4, 2, 2],
    "decoder_spatio_temporal_scaling": True,
    "decoder_inject_noise": False,
    "upsample_type": ["spatiotemporal", "spatiotemporal", "temporal", "spatial"],
    "upsample_residual": False,
    "upsample_factor": [2, 2, 1, 2],
    "decoder_causal": False,
    "decoder_spatial_padding_mode": "zeros",
}


def block_flop():
    tokens = TEXT + VIDEO
    return 2 * tokens * 12 * WIDTH**2 + 4 * tokens**2 * WIDTH


def convolution_flop(lib, module, call):
    """Of the convolutions in it that the call makes."""
    total = 0

    def count(module, _, output):
        nonlocal total
        total += 2 * (output[0] if isinstance(output, tuple) else output).numel() * module.weight[0].numel()

    kinds = (lib.nn.Conv2d, lib.nn.Conv3d)
    hooks = [m.register_forward_hook(count) for m in module.modules() if isinstance(m, kinds)]
    call()
    for hook in hooks:
        hook.remove()
    return total


def network(lib, models, row):
    """(a call of it, its multiplications and additions)"""
    dtype = getattr(lib, ROWS[row])
    if row.startswith("block"):
        model = models.CogVideoXTransformer3DModel(num_attention_heads=HEADS, num_layers=1).eval().to(dtype)
        video, text, temb = (lib.randn(*s).to(dtype) for s in ((1, VIDEO, WIDTH), (1, TEXT, WIDTH), (1, 512)))
        return lambda: model.transformer_blocks[0](video, text, temb), block_flop()
    ltx2 = row.startswith("ltx2")
    model = models.AutoencoderKLLTX2Video(**LTX2_3) if ltx2 else models.AutoencoderKLCogVideoX()
    model, latents = model.eval().to(dtype), lib.randn(*(LTX2_LATENTS if ltx2 else LATENTS)).to(dtype)

    def call():
        return model.decode(latents).sample

    return call, convolution_flop(lib, model.decoder, call)


def shipped_clip(lib, folder):
    """A call of the pipeline of the model that ships."""
    from scaffolding.diffusion import ToraPipeline

    pipe = ToraPipeline.from_pretrained(folder, torch_dtype=lib.float32)
    pipe.set_progress_bar_config(disable=True)
    told = {"trajectories": "10,54 32,20 54,10", "num_frames": 17, "height": 64, "width": 64, "seed": 7}
    return lambda: pipe("rocket, noto", num_inference_steps=20, guidance_scale=3.0, **told, output_type="sf_tensor")


def child(which, row, options):
    lib, models = turns.library(which)
    lib.set_num_threads(options.threads)
    lib.manual_seed(0)
    answer = {}
    with lib.no_grad():
        if row == CLIP:
            call = shipped_clip(lib, options.model)
        else:
            call, answer["flop"] = network(lib, models, row)
        call()
        times = []
        for _ in range(3):
            start, start_cpu = time.perf_counter(), time.process_time()
            call()
            times.append((time.perf_counter() - start, (time.process_time() - start_cpu) / options.threads))
    answer["wall"], answer["cpu"] = (statistics.median(t) for t in zip(*times))
    print(json.dumps(answer))


def peak_of(bench, dtype, threads):
    """FLOP per second, of the fastest unit that computes the type; 0 without the program."""
    if not bench.exists():
        return 0
    lines = subprocess.run(
        [bench, "--peaks", "--threads", str(threads)], check=True, stdout=subprocess.PIPE
    ).stdout.splitlines()
    units = [p for p in map(json.loads, lines) if dtype in p.get("types", "").split()]
    rates = [unit["operations_per_second"] for unit in units]
    return max(rates, default=0)


def add_options(parser):
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/scaffolding_bench"))
    parser.add_argument(
        "--model", type=pathlib.Path, default=ROOT / "models/emoji-video", help="of the row emoji-video clip"
    )
    parser.add_argument("--row", default="", help="only rows whose name has this in it")


def medians_of(answers):
    return {w: {k: statistics.median(a[k] for a in found) for k in found[0]} for w, found in answers.items()}


def print_network(options, row):
    peaks = []
    answers = turns.take_turns(
        options,
        __file__,
        [row],
        turns.programs(options),
        before=lambda: peaks.append(peak_of(options.bench, row.split()[-1], options.threads)),
    )
    peak, medians = statistics.median(peaks), medians_of(answers)
    for which, m in medians.items():
        line = f"{row:16} {which:6} wall {m['wall']:.2f} s, cpu {m['cpu']:.2f} s"
        if peak:
            line += f", {m['flop'] / peak:.2f} s at the peak: {100 * m['flop'] / peak / m['wall']:.0f} % of it"
        if which == "ours" and "torch" in medians:
            shares = (f"{100 * m[k] / medians['torch'][k]:.0f} % ({k})" for k in ("wall", "cpu"))
            line += f"; takes {', '.join(shares)} of torch's time"
        print(line, flush=True)


def print_clip(options):
    if not (options.model / "model_index.json").exists():
        print(f"{CLIP:16} skipped: {options.model} has no weights", flush=True)
        return
    ours = {"ours": turns.programs(options)["ours"]}
    model = ["--model", options.model.resolve()]
    m = medians_of(turns.take_turns(options, __file__, [CLIP], ours, model))["ours"]
    print(f"{CLIP:16} ours   wall {m['wall']:.2f} s, cpu {m['cpu']:.2f} s; the goal is {GOAL} s", flush=True)


def main():
    options = turns.options_of(__doc__, 3, add_options)
    if options.child:
        return child(*options.child, options)
    for row in (r for r in ROWS if options.row in r):
        print_network(options, row)
    if options.row in CLIP:
        print_clip(options)


if __name__ == "__main__":
    main()
