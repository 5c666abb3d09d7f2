"""What Python's objects are to the one training loop: parts that are written in Python, lifetimes, failures."""

import gc
import json
import pathlib
import weakref

import pytest
from test_trainer import Parts, events, metrics, same

import scaffolding as sf
from scaffolding.train import Trainer

# ---- what is written in Python


class SignDescent(sf.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @sf.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                p.sub_(group["lr"] * p.grad.sign())


class Halving(sf.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        return [base * 0.5**self.last_epoch for base in self.base_lrs]


class Stream:
    """The same batches in each epoch, with just what a Trainer asks of a loader."""

    def __init__(self, batches):
        self.batches, self.epoch, self.next = batches, 0, 0

    def __iter__(self):
        while self.next < len(self.batches):
            self.next += 1
            yield self.batches[self.next - 1]
        self.next, self.epoch = 0, self.epoch + 1

    def state_dict(self):
        return {"epoch": self.epoch, "next": self.next}

    def load_state_dict(self, state):
        self.epoch, self.next = state["epoch"], state["next"]


class Counter:
    def __init__(self):
        self.calls = 0

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


class StreamParts(Parts):
    """Parts whose optimizer, schedule and loader are the classes above."""

    def __init__(self):
        super().__init__(optimizer=SignDescent)
        self.loader = Stream([{"x": self.x[i : i + 5], "y": self.y[i : i + 5]} for i in range(0, 20, 5)])
        self.schedule, self.counter = Halving(self.optimizer), Counter()

    def step(self, batch):
        self.counter.calls += 1
        return super().step((batch["x"], batch["y"]))

    def trainer(self, output_dir=None, **options):
        return super().trainer(output_dir, scheduler=self.schedule, stateful={"counter": self.counter}, **options)


def test_optimizers_schedules_and_loaders_written_in_python_take_part_and_resume(tmp_path):
    whole = StreamParts()
    assert whole.trainer(max_steps=None, max_epochs=2, logging_steps=1).fit()[:3] == (False, 8, 2)
    first = StreamParts()
    first.trainer(tmp_path, max_steps=3, logging_steps=1).fit()
    parts = StreamParts()
    trainer = parts.trainer(tmp_path, max_steps=None, max_epochs=2, logging_steps=1, resume="latest")
    assert parts.loader.next == 3 and parts.counter.calls == 3
    trainer.fit()
    assert same(parts.weights(), whole.weights()) and parts.counter.calls == 8
    assert [line["lr"] for line in metrics(tmp_path)] == [0.1 * 0.5**n for n in range(8)]
    assert json.loads((tmp_path / "checkpoint-8" / "trainer_state.json").read_text())["samples"] == 40
    assert {s["count"] for s in parts.optimizer.state.values()} == {8}


def test_a_loader_without_batches_is_refused():
    parts = StreamParts()
    parts.loader = Stream([])
    with pytest.raises(RuntimeError, match="the loader gives no batches"):
        parts.trainer().fit()
    parts.loader.epoch = 0
    with pytest.raises(RuntimeError, match="the loader gives no batches"):
        parts.trainer(max_steps=None, max_epochs=5).fit()


def test_a_subclass_may_add_to_save(tmp_path):
    saved = []

    class Copying(Trainer):
        def save(self):
            saved.append(super().save())
            return saved[-1]

    parts = Parts()
    Copying(
        parts.model,
        parts.optimizer,
        parts.loader,
        parts.step,
        tmp_path,
        max_steps=4,
        checkpointing_steps=2,
        quiet=True,
        tensorboard=False,
    ).fit()
    assert [pathlib.Path(folder).name for folder in saved] == ["checkpoint-2", "checkpoint-4", "checkpoint-4"]


def test_a_trainer_goes_with_its_last_user():
    class Cyclic(Parts):  # its step, which the run calls, is its own method
        def __init__(self):
            super().__init__()
            self.kept = self.trainer(max_steps=2, on_step_end=lambda t: None)

    parts = Parts()
    trainer = parts.trainer(max_steps=2)
    trainer.fit()
    gone = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        assert gone() is None
    finally:
        gc.enable()
    cyclic = Cyclic()
    cyclic.kept.fit()
    gone = weakref.ref(cyclic)
    del cyclic
    gc.collect()
    assert gone() is None


def test_a_checkpoint_without_a_part_changes_nothing(tmp_path):
    Parts().trainer(tmp_path, max_steps=3).fit()
    parts = Parts()
    before = parts.weights()
    with pytest.raises(ValueError, match="counter.pt is missing"):
        parts.trainer(tmp_path, resume="latest", stateful={"counter": Counter()})
    assert same(parts.weights(), before)


@pytest.mark.parametrize("error, raised", [(RuntimeError, RuntimeError), (OSError, RuntimeError), (KeyError, KeyError)])
def test_a_part_that_cannot_be_saved_leaves_no_half_of_a_checkpoint(tmp_path, error, raised):
    class Broken(Counter):
        def state_dict(self):
            raise error("no such state")

    with pytest.raises(raised, match="no such state") as caught:
        Parts().trainer(tmp_path, max_steps=2, stateful={"broken": Broken()}).fit()
    if raised is not error or error is RuntimeError:
        assert "checkpoint-2 could not be written: no such state; there is no earlier one" in str(caught.value)
        assert isinstance(caught.value.__cause__, error)
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []


def test_an_error_in_a_callback_comes_out_as_it_is_and_the_run_goes_on():
    parts = Parts(shuffle=True)

    def stumble(trainer):
        if trainer.step == 3 and not seen:
            seen.append(trainer)
            raise LookupError("mine")

    seen = []
    trainer = parts.trainer(max_steps=9, seed=2, on_step_end=stumble)
    with pytest.raises(LookupError, match="mine"):
        trainer.fit()
    assert trainer.step == 3 and seen[0] is trainer
    trainer.fit()
    whole = Parts(shuffle=True)
    whole.trainer(max_steps=9, seed=2).fit()
    assert same(parts.weights(), whole.weights())


def test_the_event_file_that_was_taken_outlives_the_run(tmp_path):
    writers = []
    Parts().trainer(tmp_path, max_steps=2, tensorboard=True, on_step_end=lambda t: writers.append(t.tensorboard)).fit()
    writers[0].add_scalar("late", 1.0, 9)
    found, _ = events(tmp_path / "logs")
    assert (9, {"late": 1.0}) in found
