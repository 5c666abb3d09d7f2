"""LoRA beside diffusers' with PEFT where those are installed: what adapters cost a pass of Stable Diffusion 1.5's UNet,
and how long it takes to load, swap and fuse one of SDXL's.

    PYTHONPATH=build/python python benchmarks/lora.py [--torch-python PYTHON] [--peer-only] [--rounds N] [--threads N]
    [--row TEXT] [--tiny]

"pass" is one sample at 64x64 latents, without an adapter, with one of rank 16 on attention's projections and with four.
"load", "swap" and "fuse" take such an adapter of SDXL's UNet in bfloat16: 93 MB in float32, written here and in the
page cache. "swap" puts a second file in the place of the first (hotswap=True), "switch" turns to another that is
loaded (set_adapters). --tiny: networks of a few channels, to try the program out.


Weights are random. Each measurement is in a process of its own, in turn; numbers are medians of all rounds' calls, and
"cpu" is processor time over all threads. "ratio" is ours over the peer's, on the clock. A floor is counted: of a pass
the adapters' share of its multiply-adds, of the others their bytes at the speed of a copy of 256 MB in the same
process. OMP_WAIT_POLICY is passive for both.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

RANK, ADAPTERS = 16, 4
SD = {"cross_attention_dim": 768, "sample_size": 64}
XL = {
    "sample_size": 128,
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "attention_head_dim": [5, 10, 20],
    "transformer_layers_per_block": [1, 2, 10],
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
TINY = {
    "sample_size": 16,
    "block_out_channels": [32, 32, 32, 32],
    "norm_num_groups": 8,
    "attention_head_dim": 4,
    "cross_attention_dim": 16,
}
TINY_XL = {
    "block_out_channels": [32, 32, 32],
    "norm_num_groups": 8,
    "attention_head_dim": 4,
    "transformer_layers_per_block": [1, 2, 2],
    "cross_attention_dim": 16,
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 40,
}
PASSES = {"pass f32": "float32", "pass bf16": "bfloat16"}
ROWS = [*PASSES, "load", "swap", "switch", "fuse"]


def config_of(row, tiny):
    return {**SD, **(TINY if tiny else {})} if row in PASSES else {**XL, **(TINY_XL if tiny else {})}


# ---- what there is to do


def blocks_of(config):
    """(name, whether it attends, channels in of each resnet, channels out, transformer layers, side over the latents')
    of each block of a UNet of two resnets per block."""
    out = config.get("block_out_channels", [320, 640, 1280, 1280])
    last = len(out) - 1
    down = config.get("down_block_types", ["CrossAttnDownBlock2D"] * last + ["DownBlock2D"])
    up = config.get("up_block_types", ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * last)
    depth = config.get("transformer_layers_per_block", [1] * len(out))
    skips = [out[0]]
    for i, c in enumerate(out):
        previous = out[max(i - 1, 0)]
        yield f"down_blocks.{i}", "Attn" in down[i], [previous, c], c, depth[i], 2.0**-i
        skips += [c, c] + ([c] if i < last else [])
    yield "mid_block", True, [out[-1], out[-1]], out[-1], depth[-1], 2.0**-last
    now = out[-1]
    for i in range(len(out)):
        c, taken = out[last - i], []
        for _ in range(3):
            taken.append(now + skips.pop())
            now = c
        yield f"up_blocks.{i}", "Attn" in up[i], taken, c, depth[last - i], 2.0 ** -(last - i)


def attention_layers(config, side, text=77):
    """{module: (inputs, outputs, rows)} of attention's projections in a pass of one sample."""
    context, layers = config["cross_attention_dim"], {}
    for name, attends, resnets, c, depth, scale in blocks_of(config):
        rows = round(side * scale) ** 2
        for a in range(1 if name == "mid_block" else len(resnets) if attends else 0):
            for t in range(depth):
                head = f"{name}.attentions.{a}.transformer_blocks.{t}"
                for part in ("to_q", "to_k", "to_v", "to_out.0"):
                    layers[f"{head}.attn1.{part}"] = (c, c, rows)
                    of_text = part in ("to_k", "to_v")
                    layers[f"{head}.attn2.{part}"] = (context, c, text) if of_text else (c, c, rows)
    return layers


def multiply_adds(config, side, text=77):
    """Of a pass of one sample without an adapter."""
    out = config.get("block_out_channels", [320, 640, 1280, 1280])
    total = 2 * 4 * out[0] * 9 * side**2  # conv_in, conv_out
    for name, attends, resnets, c, depth, scale in blocks_of(config):
        rows = round(side * scale) ** 2
        for before in resnets:
            total += rows * c * (9 * (before + c) + (before if before != c else 0)) + 4 * out[0] * c
        transformers = 1 if name == "mid_block" else len(resnets) if attends else 0
        scores = 2 * rows * c * (rows + text)
        total += transformers * (2 * rows * c * c + depth * (12 * rows * c * c + scores))
        number = int(name[-1]) if name[-1].isdigit() else len(out)
        if name.startswith("down") and number < len(out) - 1:
            total += rows // 4 * 9 * c * c
        if name.startswith("up") and number < len(out) - 1:
            total += rows * 4 * 9 * c * c
    return total + sum(i * o * r for i, o, r in attention_layers(config, side, text).values())


def side_multiply_adds(config, side):
    return sum(RANK * (i + o) * rows for i, o, rows in attention_layers(config, side).values())


def write_adapter(path, config, seed):
    """A LoRA of rank 16 of attention's projections in diffusers' kind, float32: its bytes."""
    random, header, tensors, at = np.random.default_rng(seed), {}, [], 0
    for module, (inputs, outputs, _) in attention_layers(config, 64).items():
        for side, shape in (("A", (RANK, inputs)), ("B", (outputs, RANK))):
            tensors.append(random.standard_normal(shape, np.float32) * np.float32(0.02))
            offsets = [at, at := at + tensors[-1].nbytes]
            entry = {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}
            header[f"unet.{module}.lora_{side}.weight"] = entry
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in tensors:
            file.write(t.tobytes())
    return path.stat().st_size


# ---- one measurement


def timed(call, times=3, before=lambda: None):
    """Times of calls on the clock and of the processor."""
    walls, cpus = [], []
    for _ in range(times):
        before()
        start, start_cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - start_cpu)
    return {"wall": walls, "cpu": cpus}


def copy_speed():
    """Bytes that are read and written in a second."""
    there = np.ones(64 << 20, np.float32)
    here = np.empty_like(there)
    np.copyto(here, there)
    return [2 * there.nbytes / t for t in timed(lambda: np.copyto(here, there))["wall"]]


def pipeline(which, row, config, threads):
    """(library, pipeline of a UNet alone)"""
    if which == "ours":
        import scaffolding as lib
        from scaffolding.diffusion import DDIMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
        from scaffolding.models import UNet2DConditionModel

        others = {}
    else:
        import diffusers
        import torch as lib
        from diffusers import DDIMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline, UNet2DConditionModel

        diffusers.logging.set_verbosity_error()
        others = dict.fromkeys(("vae", "text_encoder", "tokenizer"))
        if row in PASSES:
            others |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        else:
            others |= {"text_encoder_2": None, "tokenizer_2": None, "add_watermarker": False}
    lib.set_num_threads(threads)
    lib.manual_seed(0)
    lib.set_default_dtype(getattr(lib, PASSES.get(row, "bfloat16")))
    unet = UNet2DConditionModel(**config).eval()
    lib.set_default_dtype(lib.float32)
    cls = StableDiffusionPipeline if row in PASSES else StableDiffusionXLPipeline
    return lib, cls(unet=unet, scheduler=DDIMScheduler(clip_sample=False, steps_offset=1), **others)


def child(which, row, threads, folder, tiny):
    config, files = config_of(row, tiny), sorted(pathlib.Path(folder).glob("*.safetensors"))
    lib, pipe = pipeline(which, row, config, threads)
    if row in PASSES:
        x, side = pipe.unet.conv_in.weight.dtype, config["sample_size"]
        x, text = lib.randn(1, 4, side, side).to(x), lib.randn(1, 77, config["cross_attention_dim"]).to(x)

        def call():
            with lib.no_grad():
                return pipe.unet(x, 500, text).sample

        names = [str(i) for i in range(len(files))]
        for name, file in zip(names, files):
            pipe.load_lora_weights(str(file), adapter_name=name)
        kinds = {"bare": [], "one": names[:1], "four": names}
        answers = {kind: {"wall": [], "cpu": []} for kind in kinds}
        for turn in range(6):  # in turn: a machine's speed drifts more than adapters cost
            for kind, on in kinds.items():
                pipe.set_adapters(on or names[:1], [0.5] * max(len(on), 1))
                (pipe.enable_lora if on else pipe.disable_lora)()
                took = timed(call, times=1)
                if turn:
                    answers[kind] = {k: v + took[k] for k, v in answers[kind].items()}
        return answers

    def load(file, name, **more):
        pipe.load_lora_weights(str(file), adapter_name=name, **more)

    for file in files:
        file.read_bytes()  # into the page cache
    answers = {"copy": copy_speed()}
    if row == "load":
        return answers | {"load": timed(lambda: load(files[0], "a"), before=pipe.unload_lora_weights)}
    if row == "swap" and which == "torch":
        pipe.enable_lora_hotswap(target_rank=RANK)
    load(files[0], "a")
    if row == "swap":
        turn = iter([*files[1::-1]] * 3)
        return answers | {"swap": timed(lambda: load(next(turn), "a", hotswap=True))}
    if row == "switch":
        load(files[1], "b")
        turn = iter("ba" * 3)
        return answers | {"switch": timed(lambda: pipe.set_adapters(next(turn)))}
    undo = []
    answers["fuse"] = timed(
        lambda: undo.append(pipe.fuse_lora(components=["unet"], lora_scale=1.0)),
        before=lambda: pipe.unfuse_lora(components=["unet"]) if undo else None,
    )
    answers["unfuse"] = timed(lambda: pipe.unfuse_lora(components=["unet"]), times=1)
    return answers


# ---- the table


def told(row, answers, config, size):
    """A line's text behind the names."""
    if row in PASSES:
        share = side_multiply_adds(config, config["sample_size"]) / multiply_adds(config, config["sample_size"])
        text = f"bare {answers['bare']['wall']:.3g} s, cpu {answers['bare']['cpu']:.3g} s"
        for count, name in ((1, "one"), (ADAPTERS, "four")):
            more = {k: 100 * (answers[name][k] / answers["bare"][k] - 1) for k in ("wall", "cpu")}
            text += f"; {name} {more['wall']:+.1f} %, cpu {more['cpu']:+.1f} %, floor {100 * count * share:.1f} %"
        return text
    layers = attention_layers(config, 64)
    weights = sum(i * o for i, o, _ in layers.values())
    moved = {"load": 2 * size, "swap": 2 * size, "switch": 0, "fuse": size + 4 * weights, "unfuse": 4 * weights}
    parts = []
    for name in (n for n in moved if n in answers):
        text = f"{name} {1e3 * answers[name]['wall']:.4g} ms, cpu {1e3 * answers[name]['cpu']:.4g} ms"
        text += f", floor {1e3 * moved[name] / answers['copy']:.3g} ms of {moved[name] / 1e6:.0f} MB"
        if name == "fuse":
            text += f" and {2e-9 * RANK * weights:.3g} GFLOP"
        parts.append(text)
    return "; ".join(parts)


def together(a, b):
    """Two rounds' answers: lists of times, of copies' speeds."""
    if not a:
        return b
    return {k: v + b[k] if k == "copy" else {m: t + b[k][m] for m, t in v.items()} for k, v in a.items()}


def medians(answers):
    middle = statistics.median
    return {k: middle(v) if k == "copy" else {m: middle(t) for m, t in v.items()} for k, v in answers.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--torch-python", default=os.environ.get("TORCH_PYTHON"), help="a Python with diffusers and peft"
    )
    parser.add_argument("--peer-only", action="store_true", help="without Scaffolding")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--row", default="", help="only rows whose name has this in it")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--folder", help="for the files; else a temporary one")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        which, row, folder = options.child
        return print(json.dumps(child(which, row, options.threads, folder, options.tiny)))
    programs = {} if options.peer_only else {"ours": sys.executable}
    programs |= {"torch": options.torch_python} if options.torch_python else {}
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(options.threads)}
    environment |= {"PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error"}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sizes = {}
        for kind, row, count in (("sd", "pass f32", ADAPTERS), ("xl", "load", 2)):
            (pathlib.Path(folder) / kind).mkdir()
            for i in range(count):
                path = pathlib.Path(folder) / kind / f"{i}.safetensors"
                sizes[kind] = write_adapter(path, config_of(row, options.tiny), i)
        for row in (r for r in ROWS if options.row in r):
            found, kind = {}, "sd" if row in PASSES else "xl"
            for _ in range(options.rounds):
                for which, python in programs.items():
                    command = [python, __file__, "--threads", str(options.threads)]
                    command += ["--child", which, row, f"{folder}/{kind}"] + (["--tiny"] if options.tiny else [])
                    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
                    found[which] = together(found.get(which), json.loads(done.stdout.splitlines()[-1]))
            found = {which: medians(answers) for which, answers in found.items()}
            for which, answers in found.items():
                print(f"{row:10} {which:6}", told(row, answers, config_of(row, options.tiny), sizes[kind]), flush=True)
            if len(found) == 2:
                ratios = {n: found["ours"][n]["wall"] / t["wall"] for n, t in found["torch"].items() if n != "copy"}
                print(f"{row:10} ratio ", "; ".join(f"{n} {r:.3g}" for n, r in ratios.items()), flush=True)


if __name__ == "__main__":
    main()
