"""Trainings by DistributedDataParallel in two processes, written once for torch and for scaffolding: `lib` is either.

What is measured: the first gradients, and the loss of every step, of which each process sees half the samples.
"""

import numpy as np
from hashed_weights import hashed, hashed_weight

STEPS = 200
CASES = {
    "plain": {},
    "small_buckets": {"ddp": {"bucket_cap_mb": 0.001}},
    "views": {"ddp": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.002}},
    "batch_norm": {"norm": "batch"},
    "unused": {"ddp": {"find_unused_parameters": True}, "alternates": True},
    "static": {"ddp": {"static_graph": True}, "never_used": True},
    "accumulated": {"accumulate": 2},
    "float16_hook": {"hook": "fp16_compress_hook"},
    "adamw": {"optimizer": "adamw"},
}


def network(lib, case):
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            # a bias before a batch norm has no gradient but rounding
            self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=case.get("norm") != "batch")
            self.norm = nn.BatchNorm2d(8) if case.get("norm") == "batch" else nn.GroupNorm(2, 8)
            self.one = nn.Linear(8 * 16, 24)
            self.other = nn.Linear(8 * 16, 24)
            self.never = nn.Linear(4, 4) if case.get("never_used") else nn.Identity()
            self.out = nn.Linear(24, 5)
            self.calls = 0

        def forward(self, x):
            h = nn.functional.silu(self.norm(self.conv(x))).flatten(1)
            self.calls += 1
            branch = self.other if case.get("alternates") and self.calls % 2 == 0 else self.one
            h = branch(h) if case.get("alternates") else self.one(h) + self.other(h)
            return self.out(nn.functional.silu(h))

    net = Net()
    with lib.no_grad():
        for name, p in net.named_parameters():
            p.copy_(lib.from_numpy(np.ascontiguousarray(hashed_weight(name, tuple(p.shape)))))
    return net


def train(lib, DDP, hooks, rank, name):
    case = CASES[name]
    ddp = DDP(network(lib, case), **case.get("ddp", {}))
    if "hook" in case:
        ddp.register_comm_hook(None, getattr(hooks, case["hook"]))
    if case.get("optimizer") == "adamw":
        optimizer = lib.optim.AdamW(ddp.parameters(), lr=2e-4)
    else:
        optimizer = lib.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.5)
    parts = case.get("accumulate", 1)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(parts):
            batch = step % 16 * parts + part
            x = lib.from_numpy(hashed(f"x{batch}", (8, 3, 4, 4))[rank * 4 : rank * 4 + 4])
            y = lib.from_numpy((hashed(f"y{batch}", (8,)) * 2.5 + 2.5).astype(np.int64)[rank * 4 : rank * 4 + 4])

            def one():
                loss = lib.nn.functional.cross_entropy(ddp(x), y)
                loss.backward()
                return loss.item()

            if part + 1 < parts:
                with ddp.no_sync():
                    one()
            else:
                losses.append(one())
        if step == 0:
            for key, p in ddp.named_parameters():
                grad = p.grad
                gradients[key] = [] if grad is None else grad.reshape(-1)[:6].tolist()
        optimizer.step()
    return {"losses": losses, "gradients": gradients}
