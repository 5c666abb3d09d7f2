"""A pass of Stable Diffusion 1.5's UNet at its full size with weights in few bits, and pictures in little memory,
beside diffusers with bitsandbytes and stable-diffusion.cpp where they are given.

    PYTHONPATH=build/python python benchmarks/quantized_sd15.py [--torch-python PYTHON] [--peer sd-cli] [--rounds N]
    [--threads N] [--row TEXT] [--program scaffolding]

Rows of passes are of one sample at --size pixels, each in a process of its own, in turn; the rounds' median counts
(--row takes several texts, by commas). A pass of stable-diffusion.cpp is what it says that its sampling took, without
guidance, over its steps; its program is built as server_peer.py says, with the target sd-cli. Rows "picture" are a
picture by the program, by its command line, with TAESD's decoder: peak of resident memory, in which a mapped file
counts for as much of it as was read. Rows "load" are the UNet of the checkpoint, quantised while it is read: the peak
of resident memory once all of its weights were touched, those included that stay in the mapped file. bitsandbytes has
a product of 4 bits of its own on CPUs where its package `kernels` can load it from the network; else it widens. Weights
are random."""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import turns

PASSES = {"bf16": ("", "bfloat16"), "int8-dynamic": ("int8-dynamic", "bfloat16"), "nf4": ("nf4", "bfloat16"),
          "q8_0": ("q8_0", "bfloat16"), "q8_0-dynamic": ("q8_0-dynamic", "bfloat16"), "q4_K": ("q4_K", "bfloat16"),
          "f32": ("", "float32"), "int8-dynamic f32": ("int8-dynamic", "float32")}  # fmt: skip
OF_TORCH = ("bf16", "f32", "nf4")
OF_PEER = {"q8_0": "q8_0", "int8-dynamic": "q8_0", "q4_K": "q4_K"}
PICTURES = ("q8_0", "q4_0")
LOADS = {"nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "int8": {"load_in_8bit": True}}
MARGIN = 200  # MB that loading may take beside the quantised model and its largest tensor
PASSES_TIMED, PEER_STEPS = 3, 2


def child(which, row, threads, size):
    word, dtype = PASSES[row]
    lib, models = turns.library(which)
    lib.set_num_threads(threads)
    lib.manual_seed(0)
    dtype = getattr(lib, dtype)
    model = models.UNet2DConditionModel(cross_attention_dim=768).to(dtype).eval()
    if which == "ours" and word:
        kind, _, dynamic = word.partition("-")
        lib.nn.quantize_(model, kind, **({"dynamic": True} if dynamic else {}))
    elif word:
        from quantized import replaced

        replaced(model, word)
    x, text = lib.randn(1, 4, size // 8, size // 8).to(dtype), lib.randn(1, 77, 768).to(dtype)
    times = []
    with lib.no_grad():
        model(x, 500, text)
        for _ in range(PASSES_TIMED):
            start = time.perf_counter()
            model(x, 500, text)
            times.append(time.perf_counter() - start)
    print(json.dumps({"wall": statistics.median(times)}))


def load(kind, model):
    """The UNet of a checkpoint, quantised while it is read; then a byte of each page of its weights is read."""
    import scaffolding as sf

    start = time.perf_counter()
    config = sf.diffusion.BitsAndBytesConfig(**LOADS[kind])
    unet = sf.models.UNet2DConditionModel.from_single_file(model, quantization_config=config, torch_dtype=sf.bfloat16)
    wall = time.perf_counter() - start
    tensors = unet.state_dict().values()
    for tensor in tensors:
        tensor.flatten()[:: 4096 // tensor.element_size()].sum().item()
    peak = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
    sizes = [tensor.numel() * tensor.element_size() / 2**20 for tensor in tensors]
    print(json.dumps({"wall": wall, "peak": peak, "stored": sum(sizes), "largest": max(sizes)}))


def run(command, cwd):
    """What a program said, and the peak of its resident memory in MB: of a child that is waited for alone."""
    script = (
        "import json,resource,subprocess,sys\n"
        "d=subprocess.run(sys.argv[1:],capture_output=True,text=True)\n"
        "peak=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss/1024\n"
        "print(json.dumps([d.returncode,d.stdout+d.stderr,peak]))"
    )
    done = subprocess.run([sys.executable, "-c", script, *map(str, command)], capture_output=True, text=True, cwd=cwd)
    code, said, peak = json.loads(done.stdout)
    if code != 0:
        sys.exit(f"{said[-2000:]}\n{command[0]}: it failed")
    return said, peak


def of_peer(taesd):
    """The file of a tiny autoencoder's folder, whose keys stable-diffusion.cpp knows."""
    return pathlib.Path(taesd) / "diffusion_pytorch_model.safetensors"


def peer_pass(options, model, kind, cwd):
    """Seconds of one step, from what stable-diffusion.cpp says of itself."""
    said, _ = run([options.peer, "-m", model, "-p", "a lighthouse", "--cfg-scale", "1", "--type", kind, "--steps",
                   PEER_STEPS, "-W", options.size, "-H", options.size, "--seed", "1", "-t", options.threads, "-o",
                   "peer.png", "--taesd", of_peer(options.taesd)], cwd)  # fmt: skip
    return float(re.findall(r"sampling completed, taking ([0-9.]+)s", said)[-1]) / PEER_STEPS


def passes(options, model, folder):
    rows = [r for r in PASSES if any(text in f"pass {r}" for text in options.row.split(","))]
    size = ["--size", str(options.size)]
    times = {}
    for _ in range(options.rounds):
        for row in rows:
            done = {"ours": turns.measure(sys.executable, __file__, options, ["ours", row], size)["wall"]}
            if options.torch_python and row in OF_TORCH:
                done["diffusers"] = turns.measure(options.torch_python, __file__, options, ["torch", row], size)["wall"]
            if options.peer and row in OF_PEER:
                done["stable-diffusion.cpp"] = peer_pass(options, model, OF_PEER[row], folder)
            for name, wall in done.items():
                times.setdefault((row, name), []).append(wall)
    middle = {key: statistics.median(walls) for key, walls in times.items()}
    for row in rows:
        ours = middle[row, "ours"]
        line = f"pass {row:18} ours {ours:6.2f} s"
        if (full := middle.get(("bf16", "ours"))) and row != "bf16":
            line += f" ({ours / full:4.0%} of bf16)"
        for name in ("diffusers", "stable-diffusion.cpp"):
            if theirs := middle.get((row, name)):
                line += f"   {name} {theirs:6.2f} s: {ours / theirs:4.0%}"
        print(line, flush=True)


def loads(options, model):
    for kind in (k for k in LOADS if any(text in f"load {k}" for text in options.row.split(","))):
        got = [turns.measure(sys.executable, __file__, options, ["load", kind], ["--model", str(model)])
               for _ in range(options.rounds)]  # fmt: skip
        middle = {name: statistics.median(one[name] for one in got) for name in got[0]}
        most = middle["stored"] + middle["largest"] + MARGIN
        line = f"load {kind:18} {middle['wall']:6.2f} s  peak {middle['peak']:6.0f} MB"
        print(f"{line}  weights {middle['stored']:6.0f} MB + largest {middle['largest']:4.0f} MB + {MARGIN} MB: "
              f"{'within' if middle['peak'] <= most else 'NOT WITHIN'}", flush=True)  # fmt: skip


def pictures(options, model, folder):
    for kind in (k for k in PICTURES if any(text in f"picture {k}" for text in options.row.split(","))):
        common = ["--steps", "1", "--seed", "1"]
        small = [model.with_name(f"{model.stem}-{kind}.gguf")]
        if not small[0].exists():
            run([options.program, "convert", model, small[0], "--type", kind], folder)
        ours, theirs = [], []
        for _ in range(options.rounds):
            words = ["--model", small[0], "--vae", options.taesd, "--width", options.size, "--height", options.size]
            ours.append(run([options.program, "txt2img", "a lighthouse", "--force", *words, *common], folder)[1])
            if options.peer:
                theirs.append(run([options.peer, "-m", model, "--type", kind, "-p", "a lighthouse", "-W", options.size,
                                   "-H", options.size, "-t", options.threads, "--taesd", of_peer(options.taesd), "-o",
                                   "peer.png", *common], folder)[1])  # fmt: skip
        line = f"picture {kind:15} ours {statistics.median(ours):6.0f} MB"
        if theirs:
            line += f"   stable-diffusion.cpp {statistics.median(theirs):6.0f} MB"
        print(line, flush=True)


def more(parser):
    parser.add_argument("--peer", type=pathlib.Path, help="sd-cli of stable-diffusion.cpp")
    parser.add_argument("--program", default="scaffolding", help="ours")
    parser.add_argument("--taesd", help="a folder of an AutoencoderTiny, for rows of pictures and --peer")
    parser.add_argument("--model", type=pathlib.Path, help="a checkpoint; without it random weights are written")
    parser.add_argument("--row", default="", help="only rows with this in their names")
    parser.add_argument("--size", type=int, default=512)


def main():
    options = turns.options_of(__doc__, 3, more)
    if options.child and options.child[0] == "load":
        return load(options.child[1], options.model)
    if options.child:
        return child(*options.child, options.threads, options.size)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if not model and (options.peer or options.taesd or "load" in options.row):
            from random_checkpoint import write_model

            model = pathlib.Path(folder) / "sd15.safetensors"
            write_model(model)
        passes(options, model, folder)
        if model:
            loads(options, model)
        if options.taesd and model:
            pictures(options, model, folder)


if __name__ == "__main__":
    main()
