"""Runs that are killed and resumed, for test_trainer.py: killed_run.py <folder> <trials> <seed>.

One process forks each run before any thread exists, so that the package is imported once. Prints a line for each trial;
the last run of each has the same files, byte for byte, as the one in <folder>/whole that nobody interrupted.
"""

import os
import random
import signal
import sys
import time

import scaffolding as sf
from scaffolding import nn
from scaffolding.train import Trainer, trainer
from scaffolding.utils.data import DataLoader, TensorDataset

STEPS = 27


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(6, 16),
            nn.BatchNorm1d(16),
            nn.Dropout(0.3),
            nn.Linear(16, 3),
        )

    def forward(self, x):
        return self.last(self.drop(sf.relu(self.norm(self.first(x)))))


def run(folder, resume, on_step_end):
    sf.manual_seed(3)
    random.seed(4)
    data = TensorDataset(sf.randn(50, 6), sf.randint(0, 3, (50,)))
    net = Net()
    optimizer = sf.optim.AdamW(
        [{"params": net.first.parameters(), "lr": 1e-2}, {"params": [*net.norm.parameters(), *net.last.parameters()]}],
        lr=2e-2,
    )
    generator = sf.Generator().manual_seed(8)

    def step(batch):
        x, y = batch
        noise = sf.randn(x.shape, generator=generator) * random.random()
        return nn.functional.cross_entropy(net(x + 0.1 * noise), y)

    return Trainer(
        net,
        optimizer,
        DataLoader(data, batch_size=8, shuffle=True),
        step,
        folder,
        max_steps=STEPS,
        gradient_accumulation_steps=2,
        max_grad_norm=1.0,
        scheduler=sf.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS),
        ema=sf.optim.EMAModel(net.parameters(), decay=0.95),
        seed=5,
        checkpointing_steps=6,
        checkpoints_total_limit=2,
        logging_steps=1,
        resume=resume,
        stateful={"noise": generator},
        on_step_end=on_step_end,
        tensorboard=False,
        quiet=True,
    ).fit()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_file(number):
    """Patches what writes a checkpoint's files: the process ends with the number-th of them half written."""
    count = 0

    def patched(write):
        def patched_write(what, path):
            nonlocal count
            count += 1
            if count == number:
                with open(path, "wb") as f:
                    f.write(b"half of it")
                die()
            write(what, path)

        return patched_write

    trainer._write_torch, trainer._write_tensors = patched(trainer._write_torch), patched(trainer._write_tensors)


def forked(folder, resume, step=None, file=None, seconds=None):
    """Whether the run came to its end."""
    child = os.fork()
    if child == 0:
        try:
            if file is not None:
                die_at_file(file)
            run(folder, resume, lambda t: die() if t.step == step else None)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed"
    return not os.WIFSIGNALED(status)


def main():
    folder, trials, choose = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    started = time.monotonic()
    assert forked(f"{folder}/whole", None)
    seconds = time.monotonic() - started
    for trial in range(trials):
        kill = [
            {"step": choose.randint(1, STEPS - 1)},
            {"file": choose.randint(1, 7 * 5)},  # seven files in each of five checkpoints
            {"seconds": choose.uniform(0, seconds)},
        ][trial % 3]
        where = f"{folder}/{trial}"
        forked(where, "latest", **kill)
        left = sorted(os.listdir(where)) if os.path.exists(where) else []
        assert forked(where, "latest")
        print(trial, kill, left, flush=True)


if __name__ == "__main__":
    main()
