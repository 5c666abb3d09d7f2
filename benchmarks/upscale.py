"""A picture enlarged by four with Real-ESRGAN's network (RRDBNet, 23 blocks): time and peak memory, beside PyTorch
where it is installed.

    PYTHONPATH=build/python python benchmarks/upscale.py [--torch-python PYTHON] [--rounds N] [--threads N]
    [--dtype f32] [--size 512] [--tile 0]

Each measurement is in a process of its own, in turn, and the rounds' median counts. PyTorch's network is written as
Real-ESRGAN's, channels last, with activations in place. "cpu" is processor time over threads, which other programs
disturb less than time on the clock. "peak" is the largest resident memory above that before the call, which holds the
weights. "floor" is what the multiplications would take at the machine's peak, without Winograd's savings; it is
measured by benchmarks/table.py's loop, or given by --gflops. "of peak" is the floor's share of the time: above 1 where
Winograd saves more than is lost. --tile: ours in tiles of this size, as the program has it."""

import gc
import json
import pathlib
import statistics
import time

import turns
from vae import status

BLOCKS, FEATURES, GROW = 23, 64, 32


def gflop(size):
    """Multiplications and additions of one picture of size^2."""
    convs = [(FEATURES + k * GROW, GROW) for k in range(4)] + [(FEATURES + 4 * GROW, FEATURES)]
    per_pixel = 3 * BLOCKS * sum(a * b for a, b in convs) + 3 * FEATURES + FEATURES**2
    per_pixel += 4 * FEATURES**2 + 16 * (2 * FEATURES**2 + 3 * FEATURES)
    return 2 * 9 * per_pixel * size**2 / 1e9


def of_torch(torch):
    from torch import nn
    from torch.nn import functional as F

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            for k in range(5):
                setattr(self, f"conv{k + 1}", nn.Conv2d(FEATURES + k * GROW, FEATURES if k == 4 else GROW, 3, 1, 1))
            self.lrelu = nn.LeakyReLU(0.2, inplace=True)

        def forward(self, x):
            x1 = self.lrelu(self.conv1(x))
            x2 = self.lrelu(self.conv2(torch.cat((x, x1), 1)))
            x3 = self.lrelu(self.conv3(torch.cat((x, x1, x2), 1)))
            x4 = self.lrelu(self.conv4(torch.cat((x, x1, x2, x3), 1)))
            return self.conv5(torch.cat((x, x1, x2, x3, x4), 1)) * 0.2 + x

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.rdb1, self.rdb2, self.rdb3 = Dense(), Dense(), Dense()

        def forward(self, x):
            return self.rdb3(self.rdb2(self.rdb1(x))) * 0.2 + x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv_first = nn.Conv2d(3, FEATURES, 3, 1, 1)
            self.body = nn.Sequential(*[Block() for _ in range(BLOCKS)])
            for name in ("conv_body", "conv_up1", "conv_up2", "conv_hr"):
                setattr(self, name, nn.Conv2d(FEATURES, FEATURES, 3, 1, 1))
            self.conv_last = nn.Conv2d(FEATURES, 3, 3, 1, 1)
            self.lrelu = nn.LeakyReLU(0.2, inplace=True)

        def forward(self, x):
            x = self.conv_first(x)
            x = x + self.conv_body(self.body(x))
            for conv in (self.conv_up1, self.conv_up2):
                x = self.lrelu(conv(F.interpolate(x, scale_factor=2, mode="nearest")))
            return self.conv_last(self.lrelu(self.conv_hr(x)))

    return Net().eval().to(memory_format=torch.channels_last)


def child(which, options):
    """One program's picture; answers as JSON."""
    if which == "ours":
        import scaffolding as lib

        model = lib.models.RRDBNet().eval()
    else:
        import torch as lib

        model = of_torch(lib)
    lib.set_num_threads(options.threads)
    lib.manual_seed(0)
    dtype = {"f32": lib.float32, "bf16": lib.bfloat16}[options.dtype]
    model = model.to(dtype)
    x = lib.rand(1, 3, options.size, options.size)
    if which == "ours":
        call = (lambda x: lib.models.upscale(model, x, tile=options.tile)) if options.tile else model
    else:
        x = x.contiguous(memory_format=lib.channels_last)
        call = model
    x = x.to(dtype)
    with lib.no_grad():
        call(x[:, :, :64, :64])
        gc.collect()
        best = {}
        for _ in range(options.repeats):
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
            before, start, start_cpu = status("VmRSS"), time.perf_counter(), time.process_time()
            picture = call(x)
            now = {
                "wall": time.perf_counter() - start,
                "cpu": (time.process_time() - start_cpu) / options.threads,
                "peak": status("VmHWM") - before,
            }
            best = {k: max(v, best.get(k, 0)) if k == "peak" else min(v, best.get(k, v)) for k, v in now.items()}
            del picture
    print(json.dumps(best))


def add_options(parser):
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--size", type=int, default=512, help="pixels on a side of the picture")
    parser.add_argument("--tile", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1, help="calls in one process")
    parser.add_argument("--gflops", type=float, default=235, help="the machine's peak for float32, of all threads")


def main():
    options = turns.options_of(__doc__, 2, add_options)
    if options.child:
        return child(options.child[0], options)
    arguments = ["--size", options.size, "--dtype", options.dtype, "--tile", options.tile, "--repeats", options.repeats]
    found = {
        name: {key: [a[key] for a in answers] for key in answers[0]}
        for name, answers in turns.take_turns(
            options, __file__, [], turns.programs(options), [str(a) for a in arguments]
        ).items()
    }
    floor = gflop(options.size) / options.gflops / (2 if options.dtype == "bf16" else 1)
    size, work = options.size, gflop(options.size)
    print(f"{size}x{size} by 4, {work:.0f} GFLOP, {options.dtype}, {options.threads} threads")
    print(f"{'':8}{'wall s':>9}{'cpu s':>9}{'peak MB':>9}{'of peak':>9}")
    for name, f in found.items():
        cpu = statistics.median(f["cpu"])
        print(f"{name:8}{statistics.median(f['wall']):9.2f}{cpu:9.2f}{max(f['peak']) / 1e6:9.0f}{floor / cpu:9.2f}")
    print(f"{'floor':8}{floor:9.2f}{floor:9.2f}")
    if "torch" in found:
        ours, torch = found["ours"], found["torch"]
        print(
            f"ours / torch: wall {statistics.median(ours['wall']) / statistics.median(torch['wall']):.2f}, cpu "
            f"{statistics.median(ours['cpu']) / statistics.median(torch['cpu']):.2f}"
        )


if __name__ == "__main__":
    main()
