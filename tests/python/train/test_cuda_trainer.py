"""Trainer with cuda_graph=True: the numbers of the plain loop,
on a GPU or the emulator of tests/cuda_emulator (SF_CUDA_LIBRARY).
"""

import json
import math
import pathlib
import signal

import pytest

import scaffolding as sf
from scaffolding import cuda, nn
from scaffolding.train import Trainer
from scaffolding.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")

OPTIMIZERS = {
    "AdamW": lambda p: sf.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "SGD": lambda p: sf.optim.SGD(p, lr=0.05, momentum=0.9),
    "AdamW8bit": lambda p: sf.optim.AdamW8bit(p, lr=0.02, min_8bit_size=10),
}


class Run:
    """A small network with dropout on `device`, trained on 22 samples by batches of 4 (the last of an epoch has 2)."""

    def __init__(self, device="cuda", optimizer="AdamW", scheduled=True, averaged=True, dropout=0.2):
        sf.manual_seed(1)
        self.device = device
        self.model = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 1)).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        x = sf.randn(22, 3)
        self.loader = DataLoader(TensorDataset(x, x @ sf.tensor([[1.0], [-2.0], [0.5]])), batch_size=4, shuffle=True)
        self.schedule = (
            sf.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.05, total_steps=40) if scheduled else None
        )
        self.averages = sf.optim.EMAModel(self.model.parameters()) if averaged else None

    def step(self, batch):
        x, y = (t.to(self.device) for t in batch)
        return nn.functional.mse_loss(self.model(x), y)

    def trainer(self, output_dir=None, **options):
        options = {
            "max_steps": 14,
            "quiet": True,
            "tensorboard": False,
            "seed": 3,
            "max_grad_norm": 0.5,
            "logging_steps": 4,
        } | options
        step = options.pop("step", self.step)
        return Trainer(
            self.model,
            self.optimizer,
            self.loader,
            step,
            output_dir,
            scheduler=self.schedule,
            ema=self.averages,
            **options,
        )

    def weights(self):
        tensors = [*self.model.parameters(), *(self.averages.shadow_params if self.averages else ())]
        return [t.detach().cpu().tolist() for t in tensors]


def lines(folder):
    rows = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "samples_per_second"} for row in rows]


@pytest.mark.parametrize(
    ("optimizer", "accumulate", "precision"),
    [
        ("AdamW", 1, "no"),
        ("SGD", 3, "no"),
        ("AdamW8bit", 1, "bf16"),
        ("AdamW", 3, "bf16"),
        ("AdamW", 1, "fp16"),
        ("SGD", 3, "fp16"),
    ],
)
def test_captured_runs_are_the_plain_ones_bit_for_bit(tmp_path, optimizer, accumulate, precision):
    results = []
    for captured in (False, True):
        run = Run(optimizer=optimizer)
        folder = tmp_path / str(captured)
        end = run.trainer(
            folder, cuda_graph=captured, gradient_accumulation_steps=accumulate, mixed_precision=precision
        ).fit()
        results.append(
            (
                run.weights(),
                lines(folder),
                end.loss,
                run.optimizer.param_groups[0]["lr"],
                run.averages.optimization_step,
            )
        )
    assert results[1] == results[0]
    assert len(results[0][1]) == 4  # steps 4, 8, 12 and 14


def test_a_captured_run_is_the_cpus_within_rounding():
    results = []
    for device, captured in (("cpu", False), ("cuda", True)):
        run = Run(device, dropout=0.0)
        run.trainer(cuda_graph=captured).fit()
        results.append(run.weights())
    for cpu, gpu in zip(*results):
        for a, b in zip(sf.tensor(cpu).flatten().tolist(), sf.tensor(gpu).flatten().tolist()):
            assert a == pytest.approx(b, rel=1e-4, abs=1e-5)


def test_each_shape_is_captured_once():
    run = Run()
    trainer = run.trainer(cuda_graph=True)
    trainer.fit()
    (graph,) = trainer._captured.graphs.values()
    # batches of 4, and of 2 at the end of an epoch
    assert graph.statistics == {"eager": 2, "captures": 2, "replays": 12, "kept": 2}


@pytest.mark.parametrize(
    "captured", [(True, True), (False, True), (True, False)], ids=["captured", "captured later", "captured first"]
)
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, captured):
    whole = Run()
    whole.trainer(cuda_graph=False).fit()
    first = Run()
    first.trainer(tmp_path, cuda_graph=captured[0], max_steps=7).fit()
    second = Run()
    trainer = second.trainer(tmp_path, cuda_graph=captured[1], resume="latest")
    assert trainer.step == 7
    trainer.fit()
    assert second.weights() == whole.weights()


def test_an_interrupt_ends_a_captured_run_with_a_checkpoint(tmp_path):
    def interrupt(trainer):
        if trainer.step == 6:
            signal.raise_signal(signal.SIGINT)

    run = Run()
    end = run.trainer(tmp_path, cuda_graph=True, on_step_end=interrupt).fit()
    assert end.stopped and end.step == 6 and pathlib.Path(end.checkpoint).name == "checkpoint-6"
    plain = Run()
    plain.trainer(max_steps=6).fit()
    assert run.weights() == plain.weights()


def test_evaluation_and_loss_are_those_of_the_step(tmp_path):
    results = []
    for captured in (False, True):
        run, seen = Run(), []
        trainer = run.trainer(
            tmp_path / str(captured),
            cuda_graph=captured,
            eval_steps=5,
            evaluate=lambda: {"weight": next(run.model.parameters()).sum().item()},
            on_step_end=lambda t: seen.append(t.loss) if t.step in (3, 9) else None,
        )
        trainer.fit()
        results.append((lines(tmp_path / str(captured)), seen, trainer.best))
    assert results[1] == results[0] and len(results[0][1]) == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_weight_changes_from_the_step_on_whose_loss_is_not_finite(bad):
    run = Run(scheduled=False, averaged=False)
    clean, step = [], [0]

    def spoilt(batch):
        step[0] += 1
        if step[0] == 8:
            clean.extend(run.weights())
            batch = [batch[0] * bad, batch[1]]
        return batch

    with pytest.raises(RuntimeError, match="the loss is (nan|inf) at step 8"):
        run.trainer(cuda_graph=True, prepare=spoilt, logging_steps=12).fit()
    assert step[0] == 12 and run.weights() == clean


def test_a_gradient_that_is_not_finite_is_found():
    run = Run(scheduled=False, averaged=False)

    def step(batch):
        return (
            nn.functional.mse_loss(run.model(batch[0]), batch[1])
            + batch[2].sqrt().mul(next(run.model.parameters()).sum() * 0 + 1).mean() * 0
        )

    def prepare(batch):
        extra = sf.full((1,), 1.0)
        prepare.calls += 1
        return [*batch, extra * (math.inf if prepare.calls == 6 else 1)]

    prepare.calls = 0
    with pytest.raises(RuntimeError, match="at step 6"):
        run.trainer(cuda_graph=True, prepare=prepare, step=step).fit()


def waits():
    import ctypes

    return ctypes.CDLL(cuda_library()).sf_cuda_emulator_count(0)


def cuda_library():
    import os

    return os.environ.get("SF_CUDA_LIBRARY", "")


@pytest.mark.skipif("emulator" not in cuda_library(), reason="the emulator counts waits")
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_nothing_waits_for_the_device_between_lines_of_the_log(precision):
    run, counts = Run(), []
    run.loader = DataLoader(run.loader.dataset, batch_size=11, shuffle=True)
    run.trainer(
        cuda_graph=True,
        mixed_precision=precision,
        max_steps=18,
        logging_steps=9,
        on_step_end=lambda t: counts.append(waits()),
    ).fit()
    assert counts[2] == counts[7]  # steps 3 to 8 are replays; the ninth is logged
    assert counts[8] > counts[7]
    assert counts[8] == counts[16] and counts[17] > counts[16]


def test_what_cannot_be_captured_is_refused():
    run = Run("cpu")
    with pytest.raises(ValueError, match="needs a model on CUDA, got one on cpu"):
        run.trainer(cuda_graph=True)
    run = Run()
    run.optimizer, run.schedule = sf.optim.Adafactor(run.model.parameters()), None
    with pytest.raises(ValueError, match="got Adafactor, whose steps are computed on the host"):
        run.trainer(cuda_graph=True)
    run = Run()
    with pytest.raises(TypeError, match=r"got str in the batch\['text'\]: make tensors of it in `prepare`"):
        run.trainer(cuda_graph=True, prepare=lambda b: {"x": b[0], "text": "a cat"}).fit()
    with pytest.raises(TypeError, match="prepare must be a function"):
        run.trainer(prepare=3)
    run = Run()
    host = run.trainer(cuda_graph=True, step=lambda b: run.step(b) * (2.0 if b[0].sum().item() > 0 else 1.0))
    with pytest.raises(
        RuntimeError, match="a copy from or to host memory is not allowed while a CUDA graph is captured"
    ):
        host.fit()
