"""What test_kills.py runs and kills: a training in eight parts that goes on from its last checkpoint.

training_under_kills.py FOLDER: reads FOLDER/end (the last step), writes FOLDER/log, FOLDER/checkpoint, FOLDER/final
"""

import hashlib
import os
import sys
import time

import scaffolding as sf
from scaffolding import distributed as dist
from scaffolding import nn
from scaffolding.distributed import checkpoint

PARTS, EVERY = 8, 4
folder = sys.argv[1]
sf.set_num_threads(1)
dist.init_process_group(timeout=30)
rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]


def log(*words):
    with open(os.path.join(folder, "log"), "a", 1) as file:  # a line is one write
        file.write(" ".join(map(str, [*words, time.time()])) + "\n")


log("process", attempt, rank, os.getpid())
sf.manual_seed(5)
net = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8))
model = nn.parallel.DistributedDataParallel(net)
ema = sf.optim.swa_utils.AveragedModel(net, multi_avg_fn=sf.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer = sf.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
path = os.path.join(folder, "checkpoint")
if os.path.isdir(path):
    state = checkpoint.load_state_dict(path)
    net.load_state_dict(state["model"])
    ema.load_state_dict(state["ema"])
    optimizer.load_state_dict(state["optimizer"])
    model.load_parts_state_dict(state["parts"])
    step = state["step"]
if rank == 0:
    log("begin", attempt, dist.get_world_size(), step)
pending = None


def settle():
    global pending
    if pending is not None:
        pending[1].result()
        if rank == 0:
            log("saved", pending[0])
    pending = None


while True:
    end = sf.tensor([0])
    if rank == 0:
        with open(os.path.join(folder, "end")) as file:
            end.fill_(int(file.read()))
    dist.broadcast(end, 0)
    if step >= end.item():
        break
    for part in model.parts(PARTS):
        g = sf.Generator().manual_seed(step * PARTS + part)
        x, y = sf.randn(16, 32, generator=g), sf.randint(0, 8, (16,), generator=g)
        nn.functional.cross_entropy(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    ema.update_parameters(net)
    step += 1
    if rank == 0:
        log("step", attempt, step)
    if step % EVERY == 0:
        settle()
        state = {
            "model": net.state_dict(),
            "ema": ema.state_dict(),
            "optimizer": optimizer.state_dict(),
            "parts": model.parts_state_dict(),
            "step": step,
        }
        if step // EVERY % 2:
            pending = step, checkpoint.async_save(state, path)
        else:
            checkpoint.save(state, path)
            if rank == 0:
                log("saved", step)
settle()
if rank == 0:
    values = [*net.state_dict().values(), *ema.state_dict().values()]
    digest = hashlib.sha256(b"".join(v.float().numpy().tobytes() for v in values)).hexdigest()
    with open(os.path.join(folder, "final"), "w") as file:
        file.write(digest)
dist.barrier()
dist.destroy_process_group()
