"""Training steps through modules and optimizer objects in Python: the same text for the package and for PyTorch. See
serve.py.

`rows(torch)` takes either module. Peak memory is what a fresh interpreter's resident memory grew to over that after the
imports, in three steps."""

import importlib
import pathlib
import re
import subprocess
import sys
import types

from serve import main

RESNET = pathlib.Path(__file__).resolve().parent.parent / "tests" / "conformance" / "resnet.py"
BATCH, PIXELS = 64, 32


def resnet_of(torch):
    """tests/conformance/resnet.py, written against `torch`."""
    source = re.sub(r"^import torch(.*)$", rf"import {torch.__name__}\1", RESNET.read_text(), flags=re.MULTILINE)
    source = re.sub(r"^import scaffolding$", "import scaffolding as torch", source, flags=re.MULTILINE)
    module = types.ModuleType("resnet")
    exec(compile(source, str(RESNET), "exec"), vars(module))
    return module


def mlp_step(torch):
    class MLP(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = torch.nn.Linear(256, 512)
            self.fc2 = torch.nn.Linear(512, 10)

        def forward(self, x):
            return self.fc2(torch.nn.functional.silu(self.fc1(x)))

    model = MLP()
    return step_of(
        torch, model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01), torch.randn(32, 256)
    )


def resnet_step(torch, small_images):
    model = resnet_of(torch).ResNet(small_images=small_images)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    return step_of(torch, model, optimizer, torch.randn(BATCH, 3, PIXELS, PIXELS))


def step_of(torch, model, optimizer, x):
    target = torch.randint(0, 10, (x.shape[0],))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step


def resident(field):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(field))


def memory_of_resnet(torch, small_images):
    text = f"import training; training.report_memory({torch.__name__!r}, {small_images})"
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=pathlib.Path(__file__).parent
    )
    return {"bytes": int(result.stdout)}


def report_memory(name, small_images):
    torch = importlib.import_module(name)
    importlib.import_module(name + ".optim")
    torch.set_num_threads(2)
    before = resident("VmRSS")
    step = resnet_step(torch, small_images)
    for _ in range(3):
        step()
    print(resident("VmHWM") - before)


def rows(torch):
    faster, smaller = {"goal": "speedup", "goal_value": 1 / 0.6}, {"goal": "peer_bytes"}
    return {
        "train step 256-512-10 batch 32, modules in Python": (lambda: mlp_step(torch), {**faster, "threads": 1}),
        "train step ResNet-18 32x32 batch 64": (lambda: resnet_step(torch, False), faster),
        "train step ResNet-18 32x32 batch 64, 3x3 stem": (lambda: resnet_step(torch, True), faster),
        "memory of ResNet-18 32x32 batch 64": (lambda: memory_of_resnet(torch, False), smaller),
        "memory of ResNet-18 32x32 batch 64, 3x3 stem": (lambda: memory_of_resnet(torch, True), smaller),
    }


if __name__ == "__main__":
    import scaffolding

    main(rows(scaffolding), lambda n: scaffolding.set_num_threads(n) if n else None)
