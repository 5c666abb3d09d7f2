"""A Trainer in several processes: one log, checkpoints by all, the same bits for any number of them."""

import json
import os

import pytest
from processes import together

from scaffolding import safetensors
from scaffolding.distributed import checkpoint

TRAINING = """
import hashlib, signal, sys
from scaffolding import data, train
from scaffolding.utils.data import BatchSampler, DataLoader, PartsSampler, RandomSampler, TensorDataset

dist.init_process_group(timeout=60)
folder, upto, resume = os.environ["FOLDER"], int(os.environ["UPTO"]), os.environ.get("RESUME") or None
sf.manual_seed(4)
x, y = sf.randn(96, 6), sf.randint(0, 3, (96,))
sf.manual_seed(3)
module = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3))
model = DistributedDataParallel(module)
optimizer = sf.optim.AdamW(model.parameters(), lr=0.01)
scheduler = sf.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
ema = sf.optim.EMAModel(model.parameters(), decay=0.9)
dataset = TensorDataset(x, y)
order = BatchSampler(RandomSampler(dataset, generator=sf.Generator().manual_seed(1)), 6, drop_last=True)
loader = DataLoader(dataset, batch_sampler=PartsSampler(order, 8))
options = dict(scheduler=scheduler, ema=ema, seed=7, max_grad_norm=0.5, checkpointing_steps=3, logging_steps=1,
               tensorboard=False, quiet=True, parts=8)
options |= json.loads(os.environ.get("OPTIONS", "{}")) if (json := __import__("json")) else {}
step = lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])


def trainer(**more):
    return train.Trainer(model, optimizer, loader, step, folder, max_steps=upto, resume=resume, **options | more)


def digest():
    values = [*module.state_dict().values(), *ema.shadow_params]
    return hashlib.sha256(b"".join(v.float().numpy().tobytes() for v in values)).hexdigest()
"""
FIT = TRAINING + "t = trainer()\nresult = t.fit()\nprint(result.step, result.epoch, digest())\n"


def run(program, folder, size, upto=8, resume="", **variables):
    return together(program, size=size, timeout=240, FOLDER=str(folder), UPTO=str(upto), RESUME=resume, **variables)


def test_any_number_of_processes_goes_on_in_the_same_bits(tmp_path):
    wanted = run(FIT, tmp_path / "alone", 1)
    assert wanted[0].startswith("8 3 ")
    for upto, size in [(3, 2), (5, 4), (8, 1)]:  # 5: within an epoch, and between two checkpoints of the whole run
        outputs = run(FIT, tmp_path / "several", size, upto=upto, resume="latest")
        assert len(set(outputs)) == 1
    assert outputs == wanted
    assert run(FIT, tmp_path / "four", 4) == wanted * 4

    def losses(name):
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [(line["step"], round(line["loss"], 5)) for line in lines]

    assert losses("several") == losses("alone") == losses("four") and len(losses("four")) == 8
    names = sorted(n for n in os.listdir(tmp_path / "several"))
    assert names == ["checkpoint-3", "checkpoint-5", "checkpoint-6", "checkpoint-8", "metrics.jsonl"]
    weights = safetensors.load_file(tmp_path / "several" / "checkpoint-8" / "model.safetensors")
    assert "0.weight" in weights and "1.running_mean" in weights
    assert checkpoint.load_state_dict(tmp_path / "four" / "checkpoint-8", keys=["trainer"])["trainer"]["processes"] == 4


def test_a_stop_in_one_stops_all_after_the_same_step(tmp_path):
    stop = "t = trainer(on_step_end=lambda t: t.stop() if dist.get_rank() == 1 and t.step == 4 else None)\n"
    outputs = run(TRAINING + stop + "r = t.fit()\nprint(r.stopped, r.step)\n", tmp_path / "run", 2, upto=20)
    assert outputs[0] == outputs[1] and outputs[0] in ("True 4", "True 5")
    assert f"checkpoint-{outputs[0].split()[1]}" in os.listdir(tmp_path / "run")


def test_damage_and_limits(tmp_path):
    folder = tmp_path / "run"
    run(FIT, folder, 2, upto=6, OPTIONS='{"checkpoints_total_limit": 2}')
    assert sorted(os.listdir(folder)) == ["checkpoint-3", "checkpoint-6", "metrics.jsonl"]
    (folder / "checkpoint-9.18c-7.tmp").mkdir()
    file = folder / "checkpoint-6" / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 16
    file.write_bytes(content)
    program = FIT.replace(
        "t = trainer()", "import warnings\nwarnings.simplefilter('ignore')\nt = trainer()\nprint(t.step)"
    )
    outputs = run(program, folder, 2, upto=6, resume="latest")
    assert outputs[0].split()[0] == "3" and outputs[0].split()[1:] == run(FIT, tmp_path / "whole", 1, upto=6)[0].split()
    assert not (folder / "checkpoint-9.18c-7.tmp").exists()
    for resume, text in [("", 'pass resume="latest"'), ("checkpoint-3", "is not the newest checkpoint")]:
        program = TRAINING + "try:\n    trainer()\nexcept ValueError as e:\n    print(e)\n"
        assert all(text in out for out in run(program, folder, 2, resume=resume))


def test_a_disk_that_is_full_in_one_process(tmp_path):
    program = TRAINING.replace("nn.Linear(6, 16)", "nn.Linear(6, 300_000)").replace("(16)", "(300_000)")
    program = program.replace("nn.Linear(16, 3)", "nn.Linear(300_000, 3)")
    program += """
import resource
if dist.get_rank() == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, -1))
try:
    trainer(parts=None).fit()
except RuntimeError as e:
    print(e)
"""
    for out in run(program, tmp_path / "run", 2, upto=2):
        assert "Trainer: checkpoint-2 could not be written: " in out and "rank 1: " in out and "too large" in out, out
    assert [n for n in os.listdir(tmp_path / "run") if n.startswith("checkpoint")] == []


def test_accumulation_travels_once(tmp_path):
    program = (
        TRAINING
        + """
trainer(parts=None, gradient_accumulation_steps=4).fit()
calls = dist.group.WORLD._counts()[0]
trainer(parts=None, gradient_accumulation_steps=4).fit()
print(dist.group.WORLD._counts()[0] - calls)
"""
    )
    program = program.replace("folder, max_steps", "None, max_steps").replace(
        "module = ", "module = nn.Linear(6, 3)\nnone = "
    )
    for out in run(program, tmp_path / "run", 2, upto=5):
        assert int(out) <= 5 * 3, out  # a bucket, and the losses, for each step


def test_what_a_trainer_refuses():
    import scaffolding as sf
    from scaffolding import train
    from scaffolding.utils.data import DataLoader, PartsSampler, TensorDataset

    net = sf.nn.Linear(2, 2)
    loader = DataLoader(TensorDataset(sf.ones(4, 2)))
    with pytest.raises(ValueError, match="parts needs a model that is a nn.parallel.DistributedDataParallel"):
        train.Trainer(net, sf.optim.SGD(net.parameters(), lr=1.0), loader, lambda b: net(b).sum(), max_steps=1, parts=2)
    with pytest.raises(ValueError, match="6 parts cannot be divided among 4 processes"):
        PartsSampler([[0]] * 12, 6, num_replicas=4, rank=0)
    with pytest.raises(ValueError, match="3 batches are no step of 4 parts"):
        PartsSampler([[0]] * 3, 4, num_replicas=2, rank=0)
    batches = [list(PartsSampler(list(range(10)), 4, 2, rank)) for rank in (0, 1)]
    assert batches == [[0, 1, 4, 5], [2, 3, 6, 7]]
