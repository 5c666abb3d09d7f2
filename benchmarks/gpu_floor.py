"""How many launches, bytes and operations a pass of a network asks a GPU for, and how long an H200 takes at least.

    SF_CUDA_EMULATOR_DRY=1 SF_CUDA_LIBRARY=build/cuda_emulator/libscaffolding_cuda.so PYTHONPATH=build/python \\
        python benchmarks/gpu_floor.py [--row TEXT] [--operands KERNEL] [--warpgroups] [--dependent] [--estimate]

Nothing is computed where the emulator (tests/cuda_emulator) is dry, so that this needs neither a GPU nor memory. `roof`
is the sum over calls of the larger of operations / 785 TFLOP/s and bytes / 4.25 TB/s, each operand touched once; a node
of a graph is 1.3 us: what kernels without waste would take. What a prompt's text alone decides (keys and values of
cross-attention) is computed once per prompt and listed apart. --estimate prints what a model expects (gpu_estimate.py).
"""

import argparse
import ctypes
import os
import re
import statistics
import time
from collections import Counter

import gpu_estimate
from gpu_estimate import BANDWIDTH, FLOAT8_FLOPS, FLOPS, attention_by_warpgroups, by_warpgroups

import scaffolding as sf
from scaffolding import cuda
from scaffolding.models import AutoencoderKL, UNet2DConditionModel

NODE = 1.3e-6  # of a graph, on one H200: measured
SD21 = dict(cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True)
SDXL = dict(
    block_out_channels=[320, 640, 1280],
    down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    transformer_layers_per_block=[1, 2, 10],
    attention_head_dim=[5, 10, 20],
    cross_attention_dim=2048,
    use_linear_projection=True,
    addition_embed_type="text_time",
    addition_time_embed_dim=256,
    projection_class_embeddings_input_dim=2816,
)
VAE = dict(
    block_out_channels=[128, 256, 512, 512],
    down_block_types=["DownEncoderBlock2D"] * 4,
    up_block_types=["UpDecoderBlock2D"] * 4,
    layers_per_block=2,
)
KINDS = ("kernels", "libraries", "copies", "fills")
# A node that starts while the one in front of it drains, where both are kernels of ours and SF_CUDA_PDL=on. Assumed,
# not measured: llama.cpp's authors publish 332 and 376 tokens a second without and with (an RTX PRO 6000, 24 layers),
# 0.35 ms of a token less, which is 0.7 us for each of some 20 kernels a layer.
DEPENDENT_NODE = 0.6e-6


def on_gpu(make, dtype=sf.bfloat16):
    with sf.device("meta"):
        model = make()
    return model.to(dtype).to_empty(device="cuda").to(memory_format=sf.channels_last)


def random(*size):
    return sf.empty(size, device="cuda", dtype=sf.bfloat16)


def unet(config, batch, pixels, float8=False):
    model = on_gpu(lambda: UNet2DConditionModel(**config)).eval()
    if float8:
        model.quantize_fp8()
    model.fuse_qkv_projections()  # as pipelines do
    x, text, time = (
        random(batch, 4, pixels, pixels),
        random(batch, 77, config["cross_attention_dim"]),
        sf.full((), 500, device="cuda"),
    )
    more = {}
    if "addition_embed_type" in config:
        more["added_cond_kwargs"] = {"text_embeds": random(batch, 1280), "time_ids": random(batch, 6)}

    def call():
        with sf.no_grad():
            model(x, time, text, **more)

    return call


def vae(pixels):
    model = on_gpu(lambda: AutoencoderKL(**VAE)).eval()
    latents = random(1, 4, pixels // 8, pixels // 8)

    def call():
        with sf.no_grad():
            model.decode(latents)

    return call


def training(config, batch, pixels):
    """Weights in bfloat16 with float32 ones behind them; gradients are clipped,
    in passes of which the launches alone are counted.
    """
    model = on_gpu(lambda: UNet2DConditionModel(**config)).train()
    x, noise, text = (
        random(batch, 4, pixels, pixels),
        random(batch, 4, pixels, pixels),
        random(batch, 77, config["cross_attention_dim"]),
    )
    time = sf.full((batch,), 500, device="cuda")
    optimizer = sf.optim.AdamW(model.parameters(), lr=1e-4, master_weights=True)

    def call():
        optimizer.zero_grad()
        sf.nn.functional.mse_loss(model(x, time, text).sample, noise).backward()
        sf.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return call


def group_norm_silu():
    x, weight = random(2, 320, 128, 128).to(memory_format=sf.channels_last), random(320)

    def call():
        with sf.no_grad():
            sf.nn.functional.group_norm_silu(x, 32, weight, weight)

    return call


def small_step():
    """The row of benchmarks/gpu, outside of a graph: float32, nothing but launches."""
    net = sf.nn.Sequential(sf.nn.Linear(256, 512), sf.nn.ReLU(), sf.nn.Linear(512, 10)).to("cuda")
    optimizer = sf.optim.AdamW(net.parameters(), lr=sf.tensor(1e-4, device="cuda"), weight_decay=0.01, capturable=True)
    x, target = sf.randn(32, 256, device="cuda"), sf.zeros(32, dtype=sf.int64, device="cuda")

    def call():
        optimizer.zero_grad()
        sf.nn.functional.cross_entropy(net(x), target).backward()
        optimizer.step()

    return call


ROWS = {
    "UNet SD2.1 b2 64x64": (lambda: unet(SD21, 2, 64), "4.5 ms", 4.5e-3),
    "UNet SDXL b2 128x128": (lambda: unet(SDXL, 2, 128), "26 ms", 26e-3),
    "UNet SD2.1 b2 64x64, float8": (lambda: unet(SD21, 2, 64, float8=True), "3.6 ms", 3.6e-3),
    "UNet SDXL b2 128x128, float8": (lambda: unet(SDXL, 2, 128, float8=True), "16 ms", 16e-3),
    "VAE decode 512": (lambda: vae(512), "5 ms", 5e-3),
    "VAE decode 1024": (lambda: vae(1024), "20 ms", 20e-3),
    "training SD2.1 b16": (lambda: training(SD21, 16, 64), "180 img/s", 16 / 180),
    "group_norm + SiLU [2, 320, 128, 128]": (group_norm_silu, "3 TB/s", 14e-6),
    "train step 256-512-10 batch 32": (small_step, "25 us", 25e-6),
}


def counter():
    """The function that tells what was launched so far, by KINDS: in the emulator; a GPU does not tell."""
    library = ctypes.CDLL(os.environ["SF_CUDA_LIBRARY"]) if "SF_CUDA_LIBRARY" in os.environ else None
    if library is None or not hasattr(library, "sf_cuda_emulator_count"):
        return {}
    library.sf_cuda_emulator_count.restype = ctypes.c_int64
    return {"counter": library.sf_cuda_emulator_count, "which": [*range(3, 3 + len(KINDS)), 20, 21]}


def nodes_of(event):
    return sum(event.counted[: len(KINDS)])


def dependent_launches(events):
    """A line on the nodes that may start early. Those behind a library's kernel, which lets nobody come before its end,
    are taken to spare nothing."""
    kernels, early, behind = (sum(e.counted[i] for e in events) for i in (0, len(KINDS), len(KINDS) + 1))
    nodes = sum(map(nodes_of, events))
    return (
        f"  counted, none of it run on a GPU: {early} of {kernels} kernels of ours may start early, {behind} of "
        f"{nodes} nodes behind one that lets them; if such a node costs {1e6 * DEPENDENT_NODE:.1f} us instead of "
        f"{1e6 * NODE:.1f} (assumed), {1e3 * behind * (NODE - DEPENDENT_NODE):.3f} ms less"
    )


def estimate(name, events):
    """Lines on what gpu_estimate.py expects of a pass, beside what was measured of it."""
    parts = Counter()
    for e in events:
        parts[e.key] += gpu_estimate.seconds(e)
    nodes = NODE * sum(map(nodes_of, events))
    early = sum(e.counted[len(KINDS) + 1] for e in events) * (NODE - DEPENDENT_NODE)
    measured = gpu_estimate.MEASURED.get(name)
    return [
        f"  estimated, a model and no measurement: {1e3 * (sum(parts.values()) + nodes - early):.3f} ms"
        + (f"; measured with everything at its defaults: {measured} ms" if measured else ""),
        f"    nodes {1e3 * (nodes - early):.2f} ms, "
        + ", ".join(f"{key} {1e3 * seconds:.2f}" for key, seconds in parts.most_common(8)),
    ]


def host_time():
    """Seconds of an eager call from Python, everything but the driver: the emulator's launches return at once."""
    x, y = random(8, 8), random(8, 8)
    rounds = []
    with sf.no_grad():
        for _ in range(7):
            begun = time.perf_counter()
            for _ in range(2000):
                sf.add(x, y)
            rounds.append((time.perf_counter() - begun) / 2000)
    return statistics.median(rounds)


def roof(event):
    return max(event.flops / (FLOAT8_FLOPS if event.key == "scaled_product" else FLOPS), event.bytes / BANDWIDTH)


def products_of(events):
    """(m, n, k) of the products with weights as linear layers keep them, and how often each is made."""
    shapes = Counter()
    for e in events:
        sizes = re.findall(r"bfloat16 \[1, (\d+), (\d+)\]( channels-last)?", e.input_shapes)
        if e.key in ("gemm", "linear_add") and len(sizes) > 1 and sizes[1][2]:
            shapes[int(sizes[0][0]), int(sizes[1][1]), int(sizes[0][1]), e.key] += 1
    return shapes


def attentions_of(events):
    """(batch times heads, queries, keys, width) of calls of attention, and how often each is made."""
    shapes = Counter()
    for e in events:
        sizes = re.findall(r"bfloat16 \[(\d+), (\d+), (\d+), (\d+)\]", e.input_shapes)
        if e.key == "attention" and len(sizes) > 1:
            (b, h, queries, width), (_, _, keys, _) = (map(int, s) for s in sizes[:2])
            shapes[b * h, queries, keys, width] += 1
    return shapes


def is_text_alone(event):
    return event.key == "gemm" and ("[1, 154, " in event.input_shapes or "[1, 77, " in event.input_shapes)


def table(events, rows=40):
    kinds = {}
    for e in events:
        kinds.setdefault((e.key, e.provider), []).append(e)
    ordered = sorted(kinds.items(), key=lambda item: -sum(roof(e) + NODE * nodes_of(e) for e in item[1]))
    print(
        f"  {'kernel':32}{'provider':12}{'calls':>6}"
        + "".join(f"{k:>10}" for k in KINDS)
        + f"{'GFLOP':>10}{'MB':>9}{'roof ms':>9}{'+ nodes':>9}"
    )
    for (key, provider), group in ordered[:rows]:
        nodes = [sum(e.counted[i] for e in group) for i in range(min(len(KINDS), len(group[0].counted)))]
        work, size, least = (sum(f(e) for e in group) for f in (lambda e: e.flops, lambda e: e.bytes, roof))
        print(
            f"  {key:32}{provider:12}{len(group):6}"
            + "".join(f"{n:10}" for n in nodes)
            + f"{work / 1e9:10.1f}{size / 1e6:9.1f}{1e3 * least:9.3f}{1e3 * (least + NODE * sum(nodes)):9.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", default="", help="only rows with this text")
    parser.add_argument("--operands", help="also lists the operands of this kernel's calls")
    parser.add_argument(
        "--warpgroups", action="store_true", help="also counts linear layers and attention by our own kernels"
    )
    parser.add_argument("--dependent", action="store_true", help="with SF_CUDA_PDL=on: also counts what starts early")
    parser.add_argument("--estimate", action="store_true", help="also prints what a model expects, and by what")
    a = parser.parse_args()
    if a.dependent:
        os.environ["SF_CUDA_PDL"] = "on"
    if not cuda.is_available():
        return print(f"nothing counted: {cuda.why_not()}")
    if a.estimate:
        print(gpu_estimate.__doc__)
        print(
            f"an eager op from Python: {1e6 * host_time():.1f} us here without the driver's launch, 1.5 to "
            "2.5 us more (goal 3 us in all; 4.1 measured on an H100's machine)\n"
        )
    for name, (make, goal, seconds) in ROWS.items():
        if a.row not in name:
            continue
        call = make()
        call()  # what is prepared once: plans, tables, states
        with sf.profiler.profile(**counter()) as prof:
            call()
        once = [e for e in prof.events() if is_text_alone(e) and "UNet" in name]
        events = [e for e in prof.events() if e not in once]
        nodes, least = sum(map(nodes_of, events)), sum(map(roof, events))
        print(
            f"{name}: {nodes} nodes, {sum(e.flops for e in events) / 1e9:.1f} GFLOP, "
            f"{sum(e.bytes for e in events) / 1e6:.1f} MB"
        )
        print(
            f"  roof {1e3 * least:.3f} ms, with nodes {1e3 * (least + NODE * nodes):.3f} ms; goal {goal}, "
            f"{1e3 * seconds:.2f} ms",
            end="",
        )
        print(f"; for a prompt {len(once)} calls, {1e3 * sum(map(roof, once)):.3f} ms" if once else "")
        if a.dependent:
            print(dependent_launches(events))
        if a.estimate:
            print("\n".join(estimate(name, events)))
        table(events)
        if a.warpgroups:
            print(f"  {'product, in tiles of our own':44}{'calls':>6}{'roof us':>9}{'counted':>9}{'tile, blocks':>15}")
            all_roof = all_counted = 0
            for (m, n, k, key), calls in products_of(events).most_common():
                seconds, tile = by_warpgroups(m, n, k)
                least = max(2 * m * n * k / FLOPS, 2 * (m * k + k * n + m * n) / BANDWIDTH)
                all_roof, all_counted = all_roof + calls * least, all_counted + calls * seconds
                print(f"  {key:12}{f'[{m}, {k}] [{k}, {n}]':32}{calls:6}{1e6 * least:9.1f}{1e6 * seconds:9.1f}"
                      f"{'{} x {}, {}'.format(*tile):>15}")  # fmt: skip
            print(f"  all: roof {1e3 * all_roof:.2f} ms, counted {1e3 * all_counted:.2f} ms")
            all_roof = all_counted = 0
            for (heads, queries, keys, width), calls in attentions_of(events).most_common():
                seconds = attention_by_warpgroups(heads, queries, keys, width)
                least = max(4 * heads * queries * keys * width / FLOPS,
                            4 * heads * (queries + keys) * width / BANDWIDTH)  # fmt: skip
                all_roof, all_counted = all_roof + calls * least, all_counted + calls * seconds
                print(f"  attention   {f'{heads} heads of {width}, {queries} x {keys}':32}{calls:6}{1e6 * least:9.1f}"
                      f"{1e6 * seconds:9.1f}")  # fmt: skip
            if all_roof > 0:
                print(f"  all: roof {1e3 * all_roof:.2f} ms, counted {1e3 * all_counted:.2f} ms")
        if a.operands:
            for (provider, shapes), n in Counter(
                (e.provider, e.input_shapes) for e in events if e.key == a.operands
            ).most_common():
                print(f"    {n:5} {a.operands} {provider}: {shapes}")


if __name__ == "__main__":
    main()
