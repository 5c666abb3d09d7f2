"""Transformers of pictures beside diffusers' where that is installed: FLUX's, Stable Diffusion 3.5 large's and
Z-Image's at their published widths, with one block of each kind, for a picture of 512x512; and LTX-2.3's of clips.

    PYTHONPATH=build/python python benchmarks/picture_transformers.py [--torch-python PYTHON]
    [--bench build/scaffolding_bench] [--rounds N] [--threads N] [--row TEXT]

Rows: "flux" is one double and one single block, 1024 patches and 512 tokens of text; "sd35" one joint block, 1024
patches and 333 tokens; "z-image" one layer of each of its three lists, 1024 patches and 128 tokens; "ltx2" one block
for 25 frames of 512x512, 1024 tokens of the video, 26 of its sound and 1024 of text. Weights are random.
The programs take turns, each measurement in a process of its own, and medians of the rounds are printed. "of peak" is
the rate of the linear layers' and attention's multiplications and additions over what scaffolding_bench's loop of the
fastest unit reaches.
"""

import json
import pathlib
import statistics
import time

import turns
from video import medians_of, peak_of

PATCHES = 1024
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
MODELS = ("flux", "sd35", "z-image", "ltx2")


def flux(lib, models, numbers):
    model = models.FluxTransformer2DModel(num_layers=1, num_single_layers=1, guidance_embeds=True)
    words = 512
    call = {
        "hidden_states": numbers(1, PATCHES, 64),
        "encoder_hidden_states": numbers(1, words, 4096),
        "pooled_projections": numbers(1, 768),
        "timestep": lib.tensor([0.5]),
        "img_ids": lib.zeros(PATCHES, 3),
        "txt_ids": lib.zeros(words, 3),
        "guidance": lib.tensor([3.5]),
    }
    return model, lambda: model(**call), 2 * 4 * (PATCHES + words) ** 2 * 3072


def sd35(lib, models, numbers):
    model = models.SD3Transformer2DModel(
        sample_size=128, num_layers=1, num_attention_heads=38, caption_projection_dim=2432, pos_embed_max_size=192,
        out_channels=16, qk_norm="rms_norm",
    )  # fmt: skip
    words = 333
    call = {
        "hidden_states": numbers(1, 16, 64, 64),
        "encoder_hidden_states": numbers(1, words, 4096),
        "pooled_projections": numbers(1, 2048),
        "timestep": lib.tensor([500.0]),
    }
    return model, lambda: model(**call), 4 * (PATCHES + words) ** 2 * 2432


def z_image(lib, models, numbers):
    model = models.ZImageTransformer2DModel(n_layers=1, n_refiner_layers=1)
    words = 128
    picture, caption = numbers(16, 1, 64, 64), numbers(words, 2560)
    attended = (PATCHES + words) ** 2 + PATCHES**2 + words**2
    return model, lambda: model([picture], lib.tensor([0.5]), [caption]), 4 * attended * 3840


def ltx2(lib, models, numbers):
    model = models.LTX2VideoTransformer3DModel(
        num_layers=1, rope_type="split", gated_attn=True, cross_attn_mod=True, audio_gated_attn=True,
        audio_cross_attn_mod=True, use_prompt_embeddings=False, perturbed_attn=True,
    )  # fmt: skip
    words, heard = 1024, 26
    call = {
        "hidden_states": numbers(1, PATCHES, 128),
        "audio_hidden_states": numbers(1, heard, 128),
        "encoder_hidden_states": numbers(1, words, 4096),
        "audio_encoder_hidden_states": numbers(1, words, 2048),
        "timestep": lib.tensor([500.0]),
        "sigma": lib.tensor([500.0]),
        "num_frames": 4,
        "height": 16,
        "width": 16,
        "audio_num_frames": heard,
    }
    video = PATCHES * (PATCHES + words) * 4096
    sound = heard * (heard + words + 2 * PATCHES) * 2048  # both streams attend to each other in the sound's width
    return model, lambda: model(**call), 4 * (video + sound)


def child(which, row, options):
    lib, models = turns.library(which)
    lib.set_num_threads(options.threads)
    lib.manual_seed(0)
    name, dtype = row.rsplit(" ", 1)
    dtype = getattr(lib, DTYPES[dtype])
    make = {"flux": flux, "sd35": sd35, "z-image": z_image, "ltx2": ltx2}[name]
    model, call, flop = make(lib, models, lambda *shape: lib.randn(*shape).to(dtype))
    model = model.eval().to(dtype)

    def count(module, _, output):
        nonlocal flop
        flop += 2 * output.numel() * module.in_features

    with lib.no_grad():
        hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, lib.nn.Linear)]
        call()
        for hook in hooks:
            hook.remove()
        call()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    print(json.dumps({"wall": statistics.median(times), "flop": flop}))


def main():
    options = turns.options_of(__doc__, 3, add_options)
    if options.child:
        return child(*options.child, options)
    for row in (f"{name} {dtype}" for name in MODELS for dtype in DTYPES):
        if options.row not in row:
            continue
        peak = peak_of(options.bench, row.split()[-1], options.threads)
        medians = medians_of(turns.take_turns(options, __file__, [row], turns.programs(options)))
        for which, m in medians.items():
            line = f"{row:12} {which:6} {m['wall']:.3f} s"
            if peak:
                line += f", {m['flop'] / 1e9:.0f} GFLOP: {100 * m['flop'] / peak / m['wall']:.0f} % of peak"
            if which == "ours" and "torch" in medians:
                line += f"; takes {100 * m['wall'] / medians['torch']['wall']:.0f} % of torch's time"
            print(line, flush=True)


def add_options(parser):
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/scaffolding_bench"))
    parser.add_argument("--row", default="", help="only rows whose name has this in it")


if __name__ == "__main__":
    main()
