"""A training step of a LoRA beside Stable Diffusion 1.5's UNet, beside diffusers' with PEFT where those are installed.

    PYTHONPATH=build/python python benchmarks/lora_training.py [--torch-python PYTHON] [--rounds N] [--threads N]
    [--row TEXT] [--side 32] [--tiny]

A step is one sample of --side latents: forward, mean squared error, backward, AdamW. The LoRA has rank 16 on
attention's projections, in float32; the base is frozen, in float32, bfloat16 or NF4 (bitsandbytes' for the peer).
"checkpointing" computes each block again. Weights are random. Each measurement is in a process of its own, in turn;
numbers are medians of all rounds' steps; "cpu" is processor time over all threads, "held" the most memory of the
process. The least work is counted: a pass and the gradients of its inputs, twice a pass's multiply-adds. "ratio" is
ours over the peer's, on the clock. OMP_WAIT_POLICY is passive for both.
"""

import json
import resource
import statistics
import time

import turns
from lora import RANK, SD, TINY, multiply_adds

ROWS = {
    "float32": ("float32", False, False),
    "bfloat16": ("bfloat16", False, False),
    "bfloat16 checkpointing": ("bfloat16", False, True),
    "nf4": ("float32", True, False),
}
TARGETS = ["to_q", "to_k", "to_v", "to_out.0"]


def child(which, row, threads, side, tiny, steps=4):
    dtype, quantised, checkpointing = ROWS[row]
    config = SD | (TINY if tiny else {})
    lib, models = turns.library(which)
    if which == "ours":
        LoraConfig = models.LoraConfig
    else:
        from peft import LoraConfig
    lib.set_num_threads(threads)
    lib.manual_seed(0)
    unet = models.UNet2DConditionModel(**config).to(getattr(lib, dtype)).requires_grad_(False).train()
    if quantised and which == "ours":
        lib.nn.quantize_(unet, "nf4")
    elif quantised:
        quantise(lib, unet)
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS))
    lora = [p for p in unet.parameters() if p.requires_grad]
    if which != "ours":
        for p in lora:
            p.data = p.data.float()
    if checkpointing:
        unet.enable_gradient_checkpointing()
    optimizer = lib.optim.AdamW(lora, lr=1e-4)
    x, text = lib.randn(1, 4, side, side), lib.randn(1, 77, config["cross_attention_dim"])
    target, timestep = lib.randn(1, 4, side, side), lib.tensor([500])
    x, text = (t.to(getattr(lib, dtype)) for t in (x, text))

    def step():
        if which != "ours" and dtype != "float32":  # PEFT's factors are float32: its scripts run under autocast
            with lib.autocast("cpu", getattr(lib, dtype)):
                y = unet(x, timestep, text).sample
        else:
            y = unet(x, timestep, text).sample
        loss = lib.nn.functional.mse_loss(y.float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    step()
    walls, cpus = [], []
    for _ in range(steps):
        start, start_cpu = time.perf_counter(), time.process_time()
        step()
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - start_cpu)
    return {"wall": walls, "cpu": cpus, "held": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3]}


def quantise(torch, unet):
    """bitsandbytes' layers in the place of the linear ones."""
    import bitsandbytes as bnb

    for name, module in list(unet.named_modules()):
        if isinstance(module, torch.nn.Linear):
            new = bnb.nn.Linear4bit(
                module.in_features, module.out_features, module.bias is not None, torch.float32, quant_type="nf4"
            )
            new.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
            new.bias = module.bias
            parent, _, leaf = name.rpartition(".")
            setattr(unet.get_submodule(parent), leaf, new.to("cpu"))


def arguments(parser):
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--row", default="", help="only rows whose name has this in it")
    parser.add_argument("--tiny", action="store_true", help="a network of a few channels, to try the program out")


def main():
    o = turns.options_of(__doc__, 2, arguments)
    if o.child:
        return print(json.dumps(child(*o.child, o.threads, o.side, o.tiny)))
    work = 4 * multiply_adds(SD | (TINY if o.tiny else {}), o.side)
    peers, told = turns.programs(o), ["--side", str(o.side), *(["--tiny"] if o.tiny else [])]
    for row in (r for r in ROWS if o.row in r):
        median = {
            which: {name: statistics.median(sum((a[name] for a in answers), [])) for name in answers[0]}
            for which, answers in turns.take_turns(o, __file__, [row], peers, told).items()
        }
        for which, m in median.items():
            print(
                f"{row:22} {which:5} {m['wall']:6.3g} s, cpu {m['cpu']:6.3g} s, {work / m['wall'] / 1e9:5.0f} GFLOP/s "
                f"of the least work, held {m['held']:5.0f} MB"
            )
        if len(median) == 2:
            print(f"{row:22} ratio {median['ours']['wall'] / median['torch']['wall']:.2f}", flush=True)


if __name__ == "__main__":
    main()
