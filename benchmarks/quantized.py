"""Products and networks with weights in few bits, beside PyTorch's with bitsandbytes, torchao and diffusers' GGUF
layers: every process by itself, best of several, with the peak of its memory.

Usage: python benchmarks/quantized.py --torch-python PYTHON [--threads 2] [--quick] [--json]
PYTHON: one that has torch, diffusers, bitsandbytes, gguf and torchao; without it ours alone.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

N = 4096  # of the square products
UNET = dict(
    sample_size=32,
    block_out_channels=(320, 640, 1280),
    cross_attention_dim=768,
    attention_head_dim=8,
    down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    layers_per_block=1,
)  # fmt: skip  SD 1.5's widths, fewer layers


def best(call, seconds):
    call()
    times, began = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def ours(what, rows, seconds):
    import scaffolding as sf

    if what.startswith("unet"):
        from scaffolding.models import UNet2DConditionModel

        unet = UNet2DConditionModel(**{k: list(v) if isinstance(v, tuple) else v for k, v in UNET.items()}).eval()
        kind = what.removeprefix("unet ")
        if kind != "float32":
            sf.nn.quantize_(unet, kind.removesuffix(" dynamic"), **({"dynamic": True} if "dynamic" in kind else {}))
        x, text = sf.randn(2, 4, 32, 32), sf.randn(2, 77, 768)

        def step():
            with sf.no_grad():
                unet(x, sf.tensor([500]), text).sample.sum().item()

        return best(step, seconds)
    net, x = sf.nn.Sequential(sf.nn.Linear(N, N)), sf.randn(rows, N)
    if what != "float32":
        dynamic = what.endswith(" dynamic")
        sf.nn.quantize_(net, what.removesuffix(" dynamic"), **({"dynamic": True} if dynamic else {}))

    def call():
        with sf.no_grad():
            net(x)

    return best(call, seconds)


def torch_layer(kind):
    import torch

    dense = torch.nn.Linear(N, N)
    if kind == "float32":
        return dense
    return replaced(torch.nn.Sequential(dense), kind)[0]


def replaced(model, kind):
    """Linear layers of a model by the peers' of that kind."""
    import torch

    if kind in ("int8", "int8 dynamic", "float8_e4m3fn"):
        from torchao import quantization as ao

        config = {
            "int8": ao.Int8WeightOnlyConfig, "int8 dynamic": ao.Int8DynamicActivationInt8WeightConfig,
            "float8_e4m3fn": ao.Float8WeightOnlyConfig,
        }[kind]()  # fmt: skip
        ao.quantize_(model, config)
        return model
    for name, layer in list(model.named_modules()):
        if type(layer) is not torch.nn.Linear or "time_embedding" in name:
            continue
        parent = model.get_submodule(name.rpartition(".")[0])
        has_bias = layer.bias is not None
        if kind in ("nf4", "fp4"):
            import bitsandbytes as bnb

            new = bnb.nn.Linear4bit(layer.in_features, layer.out_features, has_bias, quant_type=kind)
            new.weight = bnb.nn.Params4bit(layer.weight.data, requires_grad=False, quant_type=kind)
            new = new.to("cpu")
        else:
            import gguf
            from diffusers.quantizers.gguf.utils import GGUFLinear, GGUFParameter

            if layer.in_features % 256 and kind.endswith("_K"):
                continue
            type_ = gguf.GGMLQuantizationType[kind.upper()]
            blocks = torch.from_numpy(gguf.quantize(layer.weight.data.numpy(), type_))
            new = GGUFLinear(layer.in_features, layer.out_features, has_bias, compute_dtype=torch.float32)
            new.weight = GGUFParameter(blocks, quant_type=type_)
        if has_bias:
            new.bias = layer.bias
        setattr(parent, name.rpartition(".")[2], new)
    return model


def peer(what, rows, seconds):
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if what.startswith("unet"):
        from diffusers import UNet2DConditionModel

        unet, kind = UNet2DConditionModel(**UNET).eval(), what.removeprefix("unet ")
        if kind != "float32":
            unet = replaced(unet, kind)
        x, text = torch.randn(2, 4, 32, 32), torch.randn(2, 77, 768)
        return best(lambda: unet(x, 500, text), seconds)
    layer, x = torch_layer(what), torch.randn(rows, N)
    return best(lambda: layer(x), seconds)


ROWS = [
    *((f"{kind}", rows) for rows in (1024, 4) for kind in
      ("float32", "nf4", "int8", "int8 dynamic", "float8_e4m3fn", "q8_0", "q8_0 dynamic", "q4_0", "q4_0 dynamic",
       "q4_K", "q4_K dynamic", "q6_K", "q6_K dynamic")),
    *((f"unet {kind}", 0) for kind in ("float32", "nf4", "int8", "int8 dynamic", "q8_0")),
]  # fmt: skip


def measured(python, side, what, rows, seconds, threads):
    run = subprocess.run(
        [python, __file__, "--worker", side, what, str(rows), str(seconds)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    if run.returncode:
        return {"refused": (run.stderr.strip().splitlines() or ["?"])[-1][:120]}
    return json.loads(run.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--torch-python")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--worker", nargs=4)
    a = p.parse_args()
    if a.worker:
        side, what, rows, seconds = a.worker
        took = (ours if side == "ours" else peer)(what, int(rows), float(seconds))
        print(json.dumps({"ms": 1000 * took, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}))
        return
    table = []
    for what, rows in ROWS:
        name = what if not rows else f"linear {rows} x {N} {what}"
        if a.only not in name:
            continue
        row = {"name": name, "ours": measured(sys.executable, "ours", what, rows, 0.3 if a.quick else 2, a.threads)}
        if a.torch_python and not (what.startswith("q") and what.endswith(" dynamic")):  # none that runs on a CPU
            row["peer"] = measured(a.torch_python, "peer", what, rows, 0.3 if a.quick else 2, a.threads)
        table.append(row)
        if not a.json:
            show = lambda r: f"{r['ms']:9.1f} ms {r['peak_mb']:6d} MB" if "ms" in r else r["refused"]  # noqa: E731
            print(f"{name:36} {show(row['ours'])}   {show(row['peer']) if 'peer' in row else ''}", flush=True)
    if a.json:
        print(json.dumps(table, indent=2))


if __name__ == "__main__":
    main()
