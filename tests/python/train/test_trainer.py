"""scaffolding.train.Trainer: resuming, stopping, logs, the NaN guard, refusals."""

import json
import math
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.train import Trainer
from scaffolding.utils.data import DataLoader, TensorDataset
from scaffolding.utils.tensorboard import SummaryWriter


class Parts:
    """A linear regression: model, optimizer, loader, and a Trainer of them."""

    def __init__(self, batch_size=4, samples=24, optimizer=None, shuffle=False):
        sf.manual_seed(1)
        self.x = sf.randn(samples, 3)
        self.y = self.x @ sf.tensor([[1.0], [-2.0], [0.5]])
        self.model = nn.Linear(3, 1)
        self.optimizer = (optimizer or (lambda p: sf.optim.SGD(p, lr=0.05)))(self.model.parameters())
        self.loader = DataLoader(TensorDataset(self.x, self.y), batch_size=batch_size, shuffle=shuffle)

    def step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x), y)

    def trainer(self, output_dir=None, **options):
        options = {"max_steps": 10, "quiet": True, "tensorboard": False} | options
        return Trainer(self.model, self.optimizer, self.loader, options.pop("step", self.step), output_dir, **options)

    def weights(self):
        return [p.detach().clone() for p in self.model.parameters()]


def same(a, b):
    return all(sf.equal(x, y) for x, y in zip(a, b, strict=True))


def metrics(folder):
    return [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]


def checkpoints(folder):
    return sorted(p.name for p in pathlib.Path(folder).glob("checkpoint-*"))


# ---- resuming


def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    seed = random.SystemRandom().randrange(1000)
    program = pathlib.Path(__file__).with_name("killed_run.py")
    trials = 10
    done = subprocess.run(
        [sys.executable, program, tmp_path, str(trials), str(seed)], capture_output=True, text=True, timeout=120
    )
    told = f"seed {seed}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    assert len(done.stdout.splitlines()) == trials, told
    assert ".tmp" in done.stdout, f"no run was killed while it wrote a checkpoint\n{told}"

    def facts(folder):
        assert checkpoints(folder) == ["checkpoint-24", "checkpoint-27"], told
        last = folder / "checkpoint-27"
        files = {
            p.name: p.read_bytes() for p in last.iterdir() if p.name not in ("trainer_state.json", "manifest.json")
        }
        state = json.loads((last / "trainer_state.json").read_text())
        del state["config"]
        lines = [{k: v for k, v in line.items() if k != "samples_per_second"} for line in metrics(folder)]
        return files, state, lines

    files, state, lines = facts(tmp_path / "whole")
    assert [line["step"] for line in lines] == list(range(1, 28))
    assert set(files) == {f"{n}.pt" for n in ("optimizer", "scheduler", "dataloader", "random_states", "noise")} | {
        "model.safetensors",
        "ema.safetensors",
    }
    for trial in range(trials):
        files_here, state_here, lines_here = facts(tmp_path / str(trial))
        assert lines_here == lines, told
        assert state_here == state, told
        for name in files:
            assert files_here[name] == files[name], f"trial {trial}: {name} differs\n{told}"


def test_fit_goes_on_where_it_was_stopped():
    whole = Parts(shuffle=True)
    whole.trainer(max_steps=14, seed=2).fit()
    parts = Parts(shuffle=True)
    trainer = parts.trainer(max_steps=14, seed=2, on_step_end=lambda t: t.stop() if t.step in (3, 6) else None)
    assert trainer.fit()[:2] == (True, 3)
    assert trainer.fit()[:2] == (True, 6)
    result = trainer.fit()
    assert not result.stopped and result.step == 14 and result.epoch == 2
    assert same(parts.weights(), whole.weights())
    assert trainer.fit().step == 14


def test_resume_of_a_finished_run_does_nothing_and_more_steps_go_on(tmp_path):
    first = Parts()
    first.trainer(tmp_path, max_steps=4).fit()
    again = Parts()
    trainer = again.trainer(tmp_path, max_steps=4, resume="latest")
    assert trainer.step == 4 and same(again.weights(), first.weights())
    assert trainer.fit().checkpoint == str(tmp_path / "checkpoint-4")
    longer = Parts()
    longer.trainer(tmp_path, max_steps=7, resume=tmp_path / "checkpoint-4").fit()
    whole = Parts()
    whole.trainer(max_steps=7).fit()
    assert same(longer.weights(), whole.weights())


def test_a_finished_run_goes_on_with_more_epochs(tmp_path):
    first = Parts(shuffle=True)
    assert first.trainer(tmp_path, max_steps=None, max_epochs=1, seed=4).fit()[1:3] == (6, 1)
    longer = Parts(shuffle=True)
    assert longer.trainer(tmp_path, max_steps=None, max_epochs=3, seed=4, resume="latest").fit()[1:3] == (18, 3)
    whole = Parts(shuffle=True)
    whole.trainer(max_steps=None, max_epochs=3, seed=4).fit()
    assert same(longer.weights(), whole.weights())


def test_resume_latest_begins_anew_where_there_is_nothing(tmp_path):
    (tmp_path / "checkpoint-3.tmp").mkdir()
    (tmp_path / "checkpoint-3.tmp" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 5.0}\n{"step": 2, "lo')
    assert Parts().trainer(tmp_path, max_steps=2, logging_steps=1, resume="latest").fit().step == 2
    assert checkpoints(tmp_path) == ["checkpoint-2"]
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2]


def test_keeps_the_last_checkpoints(tmp_path):
    seen = []
    Parts().trainer(
        tmp_path,
        checkpointing_steps=2,
        checkpoints_total_limit=3,
        on_checkpoint=lambda t, folder: seen.append((t.step, folder)),
    ).fit()
    assert checkpoints(tmp_path) == ["checkpoint-10", "checkpoint-6", "checkpoint-8"]
    assert seen == [(n, str(tmp_path / f"checkpoint-{n}")) for n in (2, 4, 6, 8, 10)]
    saved = sf.safetensors.load_file(tmp_path / "checkpoint-10" / "model.safetensors")
    assert set(saved) == {"weight", "bias"}


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "no manifest", "bad manifest"])
def test_damaged_checkpoints_are_refused_by_name_and_passed_over(tmp_path, damage):
    Parts().trainer(tmp_path, max_steps=6, checkpointing_steps=2).fit()
    folder = tmp_path / "checkpoint-6"
    file = folder / ("manifest.json" if "manifest" in damage else "optimizer.pt")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "flip":
        file.write_bytes(data)
    elif damage in ("cut", "bad manifest"):
        file.write_bytes(data[: len(data) // 2])
    else:
        file.unlink()
    with pytest.raises(ValueError, match=file.name):
        Parts().trainer(tmp_path, resume=folder)
    with pytest.warns(UserWarning, match=file.name):
        trainer = Parts().trainer(
            tmp_path, max_steps=8, checkpointing_steps=2, checkpoints_total_limit=1, resume="latest"
        )
    assert trainer.step == 4
    trainer.fit()
    assert checkpoints(tmp_path) == ["checkpoint-8"]


def test_where_no_checkpoint_is_whole_latest_is_refused(tmp_path):
    Parts().trainer(tmp_path, max_steps=2).fit()
    (tmp_path / "checkpoint-2" / "dataloader.pt").unlink()
    with pytest.raises(ValueError, match="no checkpoint in .* is whole.*dataloader.pt: is missing"):
        Parts().trainer(tmp_path, resume="latest")


def test_a_folder_with_another_run_is_refused(tmp_path):
    Parts().trainer(tmp_path / "a", max_steps=4, checkpointing_steps=2).fit()
    with pytest.raises(ValueError, match="holds checkpoint-4 already; pass resume"):
        Parts().trainer(tmp_path / "a")
    with pytest.raises(ValueError, match="remove what is newer"):
        Parts().trainer(tmp_path / "a", resume="checkpoint-2")
    with pytest.raises(ValueError, match="is of another run"):
        Parts().trainer(tmp_path / "a", resume=Parts().trainer(tmp_path / "b", max_steps=1).fit().checkpoint)
    assert Parts().trainer(tmp_path / "c", resume=tmp_path / "a" / "checkpoint-2").step == 2


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    Parts().trainer(tmp_path, max_steps=2).fit()
    parts = Parts()
    parts.model = nn.Linear(3, 2)
    parts.optimizer = sf.optim.SGD(parts.model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="weight"):
        parts.trainer(tmp_path, resume="latest")
    parts = Parts()
    with pytest.raises(ValueError, match="ema.safetensors is missing: the checkpoint is of a run with other parts"):
        parts.trainer(tmp_path, resume="latest", ema=sf.optim.EMAModel(parts.model.parameters()))


# ---- stopping


def test_ctrl_c_saves_and_ends_cleanly(tmp_path, capsys):
    before = signal.getsignal(signal.SIGINT)
    parts = Parts()
    trainer = parts.trainer(
        tmp_path, quiet=False, on_step_end=lambda t: os.kill(os.getpid(), signal.SIGINT) if t.step == 3 else None
    )
    result = trainer.fit()
    assert result.stopped and result.step == 3 and result.checkpoint == str(tmp_path / "checkpoint-3")
    assert "Ctrl-C again ends at once" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert not trainer.fit().stopped


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def twice(trainer):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

    with pytest.raises(KeyboardInterrupt):
        Parts().trainer(tmp_path, on_step_end=twice).fit()
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoints(tmp_path) == []


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(trainer):
        if trainer.step == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))

    try:
        with pytest.raises(
            RuntimeError,
            match="checkpoint-4 could not be written: .*cannot write.*checkpoint-2 is still there and whole",
        ):
            Parts().trainer(
                tmp_path, checkpointing_steps=2, checkpoints_total_limit=1, logging_steps=100, on_step_end=fill
            ).fit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoints(tmp_path) == ["checkpoint-2"]
    parts = Parts()
    parts.trainer(tmp_path, resume="latest").fit()
    whole = Parts()
    whole.trainer().fit()
    assert same(parts.weights(), whole.weights())


# ---- the NaN guard


def test_a_loss_that_is_not_finite_stops_before_the_weights_change():
    parts = Parts()
    seen = []

    def step(batch):
        seen.append(parts.weights())
        return parts.step(batch) * (math.nan if len(seen) == 4 else 1)

    with pytest.raises(
        RuntimeError, match="the loss is nan at step 4; every parameter is finite, the weights are those of step 3"
    ):
        parts.trainer(step=step).fit()
    assert same(parts.weights(), seen[3])
    with sf.no_grad():
        parts.model.bias.fill_(math.inf)
    with pytest.raises(RuntimeError, match="loss is inf at step 1: the parameter 'bias' was inf already"):
        parts.trainer().fit()


def test_a_gradient_that_is_not_finite_is_named():
    parts = Parts()
    before = parts.weights()

    def step(batch):
        loss = parts.step(batch)
        return loss + (sf.sqrt(parts.model.bias * 0) * 0).sum()  # finite, with a gradient of 0 * inf

    with pytest.raises(RuntimeError, match="the gradient of 'bias' is nan at step 1; the weights are those of step 0"):
        parts.trainer(step=step).fit()
    assert same(parts.weights(), before)


# ---- the step


def test_accumulated_batches_are_one_large_batch(tmp_path):
    small, large = Parts(batch_size=2), Parts(batch_size=8)
    small.trainer(tmp_path, max_epochs=2, max_steps=None, gradient_accumulation_steps=4, logging_steps=1).fit()
    result = large.trainer(max_epochs=2, max_steps=None).fit()
    assert result.step == 6
    for a, b in zip(small.weights(), large.weights()):
        sf_close = (a - b).abs().max().item()
        assert sf_close < 1e-6
    assert [line["epoch"] for line in metrics(tmp_path)] == [0, 0, 0, 1, 1, 1]


def test_batches_are_counted_across_epochs():
    parts = Parts(batch_size=8)  # three batches
    assert parts.trainer(max_epochs=3, max_steps=None, gradient_accumulation_steps=2).fit()[1:3] == (4, 3)


def test_gradients_are_clipped_and_their_norm_is_logged(tmp_path):
    parts = Parts(optimizer=lambda p: sf.optim.SGD(p, lr=1.0))
    before = parts.weights()
    parts.trainer(tmp_path, max_steps=1, max_grad_norm=0.01, logging_steps=1).fit()
    moved = math.sqrt(sum(((a - b) ** 2).sum().item() for a, b in zip(before, parts.weights())))
    assert moved == pytest.approx(0.01, rel=1e-3)
    assert metrics(tmp_path)[0]["grad_norm"] > 1


def test_metrics_have_the_mean_loss_since_the_line_before(tmp_path):
    parts, losses = Parts(), []
    schedule = sf.optim.lr_scheduler.StepLR(parts.optimizer, step_size=2)
    parts.trainer(
        tmp_path, max_steps=5, logging_steps=2, scheduler=schedule, on_step_end=lambda t: losses.append(t.loss)
    ).fit()
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [2, 4, 5]
    assert [line["loss"] for line in lines] == [(losses[0] + losses[1]) / 2, (losses[2] + losses[3]) / 2, losses[4]]
    assert [line["lr"] for line in lines] == pytest.approx([0.05, 0.005, 0.0005])
    assert set(lines[0]) == {"step", "epoch", "loss", "lr", "grad_norm", "samples_per_second"}


def test_bf16_runs_the_step_under_autocast():
    parts, dtypes = Parts(), []

    def step(batch):
        dtypes.append(parts.model(batch[0]).dtype)
        return parts.step(batch)

    parts.trainer(step=step, max_steps=2, mixed_precision="bf16").fit()
    assert dtypes == [sf.bfloat16] * 2


def test_fp16_scales_the_loss_skips_overflows_and_resumes_the_scale(tmp_path):
    parts = Parts()
    schedule = sf.optim.lr_scheduler.StepLR(parts.optimizer, step_size=1, gamma=0.99)
    seen = []

    def step(batch):
        seen.append(parts.weights())
        return parts.step(batch) * (1e36 if len(seen) == 10 else 1)  # finite, and past float32 when scaled

    parts.trainer(tmp_path, step=step, max_steps=12, mixed_precision="fp16", scheduler=schedule, logging_steps=1).fit()
    skipped = [line["step"] for line in metrics(tmp_path) if line["grad_norm"] is None]
    assert 10 in skipped and len(skipped) < 8
    for n in range(1, 12):
        assert same(seen[n - 1], seen[n]) == (n in skipped)
    assert schedule.last_epoch == 12 - len(skipped)
    assert sf.load(tmp_path / "checkpoint-12" / "scaler.pt")["scale"] == 2.0 ** (16 - len(skipped))
    parts = Parts()
    schedule = sf.optim.lr_scheduler.StepLR(parts.optimizer, step_size=1)
    trainer = parts.trainer(tmp_path, resume="latest", mixed_precision="fp16", scheduler=schedule)
    assert trainer._scaler.get_scale() == 2.0 ** (16 - len(skipped))


def test_evaluation_sees_the_averages_in_eval_mode(tmp_path):
    parts = Parts()
    parts.model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5))
    parts.model[1].eval()  # stays as it was
    parts.optimizer = sf.optim.SGD(parts.model.parameters(), lr=0.05)
    ema = sf.optim.EMAModel(parts.model.parameters(), decay=0.5)
    calls = []

    def evaluate():
        assert not parts.model.training and not sf.is_grad_enabled()
        calls.append(same(parts.weights(), ema.shadow_params))
        return {"error": [3.0, 1.0, 2.0][len(calls) - 1]}

    trainer = parts.trainer(tmp_path, max_steps=6, logging_steps=4, eval_steps=2, evaluate=evaluate, ema=ema)
    trainer.fit()
    assert calls == [True] * 3
    assert parts.model.training and not parts.model[1].training
    assert not same(parts.weights(), ema.shadow_params)
    assert trainer.best == {"error": {"lowest": 1.0, "lowest_step": 4, "highest": 3.0, "highest_step": 2}}
    assert [(line["step"], line.get("eval/error")) for line in metrics(tmp_path)] == [(2, 3.0), (4, 1.0), (6, 2.0)]
    state = json.loads((tmp_path / "checkpoint-6" / "trainer_state.json").read_text())
    assert state["best"] == trainer.best and state["config"]["eval_steps"] == 2


def test_the_seed_decides():
    def weights(seed):
        parts = Parts(shuffle=True)
        parts.trainer(seed=seed).fit()
        return parts.weights()

    assert same(weights(1), weights(1)) and not same(weights(1), weights(2))


# ---- what it shows


def test_progress_is_lines_where_there_is_no_terminal(capsys):
    Parts().trainer(quiet=False).fit()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("step 1/10 (10 %), loss ") and "samples/s" in lines[0] and lines[0].endswith(" left")
    assert lines[-1].startswith("step 10/10 (100 %), loss ")
    Parts().trainer(quiet=True).fit()
    assert capsys.readouterr().err == ""


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """{number: [values]} of a protocol buffer."""

    def varint(i):
        value = shift = 0
        while True:
            value |= (message[i] & 0x7F) << shift
            shift += 7
            i += 1
            if message[i - 1] < 0x80:
                return value, i

    out, i = {}, 0
    while i < len(message):
        key, i = varint(i)
        if key & 7 == 0:
            value, i = varint(i)
        else:
            size, i = {1: (8, i), 5: (4, i)}.get(key & 7) or varint(i)
            value, i = message[i : i + size], i + size
        out.setdefault(key >> 3, []).append(value)
    return out


def events(folder):
    """(step, {tag: value}) of each event with scalars or pictures, and the steps at which a run went on."""
    found, starts = [], []
    for file in sorted(pathlib.Path(folder).glob("events.out.tfevents.*"), key=lambda p: p.stat().st_mtime_ns):
        data, first = file.read_bytes(), True
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            assert struct.unpack("<I", data[8:12])[0] == crc32c(data[:8])
            record = data[12 : 12 + size]
            assert struct.unpack("<I", data[12 + size : 16 + size])[0] == crc32c(record)
            data = data[16 + size :]
            event = fields(record)
            step = event[2][0]
            assert struct.unpack("<d", event[1][0])[0] > 1.6e9
            if first:
                assert event[3] == [b"brain.Event:2"]
            first = False
            if 7 in event:
                starts.append(step)
            if 5 in event:
                values = [fields(v) for v in fields(event[5][0])[1]]
                found.append(
                    (
                        step,
                        {
                            v[1][0].decode(): fields(v[4][0]) if 4 in v else struct.unpack("<f", v[2][0])[0]
                            for v in values
                        },
                    )
                )
    return found, starts


def test_event_files_hold_what_the_metrics_hold(tmp_path):
    Parts().trainer(tmp_path, max_steps=4, logging_steps=1, tensorboard=True).fit()
    Parts().trainer(tmp_path, max_steps=5, logging_steps=1, tensorboard=True, resume="latest").fit()
    found, starts = events(tmp_path / "logs")
    assert [step for step, _ in found] == [1, 2, 3, 4, 5] and starts == [5]
    for (_, values), line in zip(found, metrics(tmp_path)):
        assert values == {
            f"train/{k}": struct.unpack("<f", struct.pack("<f", v))[0] for k, v in line.items() if k != "step"
        }


def test_summary_writer_writes_scalars_and_pictures(tmp_path):
    picture = sf.zeros(3, 2, 4)
    picture[0] = 1.0
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 1.5, 300)
        writer.add_image("red", picture, 2)
        writer.add_image("grey", sf.full((5, 6), 7, dtype=sf.uint8), 3, dataformats="HW")
        writer.flush()
    found, _ = events(tmp_path)
    assert found[0] == (300, {"a": 1.5})
    red = found[1][1]["red"]
    assert (red[1], red[2], red[3]) == ([2], [4], [3])
    (tmp_path / "red.png").write_bytes(red[4][0])
    assert sf.equal(sf.data.read_image(tmp_path / "red.png"), (picture * 255).to(sf.uint8))
    assert found[2][1]["grey"][3] == [1]
    with pytest.raises(RuntimeError, match="is closed"):
        writer.add_scalar("a", 1)
    with pytest.raises(ValueError, match="1 to 4 channels"):
        SummaryWriter(tmp_path).add_image("a", sf.zeros(5, 2, 2))


def test_a_callback_may_write_to_tensorboard(tmp_path):
    Parts().trainer(
        tmp_path,
        max_steps=2,
        logging_steps=9,
        tensorboard=True,
        on_step_end=lambda t: t.tensorboard.add_scalar("mine", t.step, t.step),
    ).fit()
    found, _ = events(tmp_path / "logs")
    assert [values for _, values in found if "mine" in values] == [{"mine": 1.0}, {"mine": 2.0}]


# ---- refusals


@pytest.mark.parametrize(
    "error, message, options",
    [
        (
            ValueError,
            "gradient_accumulation_steps must be a positive number, got 0",
            {"gradient_accumulation_steps": 0},
        ),
        (TypeError, "gradient_accumulation_steps must be an integer, got 1.5", {"gradient_accumulation_steps": 1.5}),
        (ValueError, "max_steps must be a positive number, got -3", {"max_steps": -3}),
        (ValueError, "max_epochs must be a positive number, got 0", {"max_epochs": 0}),
        (ValueError, "one of max_steps and max_epochs", {"max_steps": None}),
        (ValueError, "max_epochs=1 of 6 batches make no step", {"max_epochs": 1, "gradient_accumulation_steps": 7}),
        (ValueError, "max_grad_norm must be positive, got -1", {"max_grad_norm": -1}),
        (ValueError, "mixed_precision must be 'no', 'bf16' or 'fp16', got 'fp8'", {"mixed_precision": "fp8"}),
        (ValueError, "checkpointing_steps must be a positive number", {"checkpointing_steps": 0}),
        (ValueError, "checkpoints_total_limit must be a positive number", {"checkpoints_total_limit": 0}),
        (TypeError, "logging_steps must be an integer, got None", {"logging_steps": None}),
        (ValueError, "evaluate and eval_steps must be given together", {"eval_steps": 3}),
        (ValueError, "resume needs an output_dir", {"resume": "latest"}),
        (TypeError, "ema must be an optim.EMAModel, got int", {"ema": 3}),
        (TypeError, r"stateful\['a'\] must have state_dict", {"stateful": {"a": 3}}),
        (ValueError, "none of .*, got 'model'", {"stateful": {"model": sf.Generator()}}),
        (TypeError, "step must be a function of a batch", {"step": 3}),
    ],
)
def test_impossible_arguments_are_refused(error, message, options):
    with pytest.raises(error, match=message):
        Parts().trainer(**options)


def test_parts_that_do_not_belong_together_are_refused(tmp_path):
    a, b = Parts(), Parts()
    with pytest.raises(ValueError, match="the scheduler must be one of this optimizer"):
        a.trainer(scheduler=sf.optim.lr_scheduler.StepLR(b.optimizer, 1))
    with pytest.raises(ValueError, match=r"a parameter of shape \[1, 3\] that the model does not have"):
        Trainer(a.model, b.optimizer, a.loader, a.step, max_steps=1)
    with pytest.raises(TypeError, match="optimizer must be an optim.Optimizer, got NoneType"):
        Trainer(a.model, None, a.loader, a.step, max_steps=1)
    with pytest.raises(TypeError, match="loader must be a utils.data.DataLoader.*got list"):
        Trainer(a.model, a.optimizer, [], a.step, max_steps=1)
    with pytest.raises(ValueError, match="ema must be made from the model's 2 parameters, it has 1"):
        a.trainer(ema=sf.optim.EMAModel([a.model.bias]))
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="output_dir must be a folder"):
        a.trainer(tmp_path / "file")
    with pytest.raises(RuntimeError, match="output_dir must be"):
        a.trainer("/proc/no_such_folder")
    with pytest.raises(ValueError, match="there is no .*nowhere"):
        a.trainer(tmp_path, resume="nowhere")


@pytest.mark.parametrize(
    "loss, got", [(None, "NoneType"), (sf.ones(2, requires_grad=True), r"shape \[2\]"), (sf.ones(()), r"shape \[\]")]
)
def test_a_step_must_return_a_loss(loss, got):
    with pytest.raises(TypeError, match=f"step must return the loss.*{got}"):
        Parts().trainer(step=lambda batch: loss).fit()


def test_a_loss_that_depends_on_nothing_is_refused():
    other = sf.ones((), requires_grad=True)
    with pytest.raises(RuntimeError, match="no parameter of the optimizer got a gradient"):
        Parts().trainer(step=lambda batch: other * 2).fit()
