"""Trainer: the loop around a step function. The loop itself is TrainingLoop, in scaffolding/train/;
_core._train.TrainingRun is one over Python's objects.
"""

import operator
import os
import sys
import types
import typing

from .. import _core
from .._core import Generator
from ..amp import GradScaler
from ..backends import cpu as _cpu
from ..nn.module import Module
from ..optim import EMAModel, Optimizer
from ..optim.capturable import CapturableOptimizer
from ..safetensors import _checked
from .interrupt import StopOnInterrupt
from .peers import peers_of

_train = _core._train
_OWN_FILES = {
    "model",
    "optimizer",
    "scheduler",
    "scaler",
    "ema",
    "dataloader",
    "random_states",
    "trainer_state",
    "manifest",
}


class FitResult(typing.NamedTuple):
    """How fit() ended. stopped: by Ctrl-C or stop(). loss: of the last step. checkpoint: the newest folder, or None."""

    stopped: bool
    step: int
    epoch: int
    loss: float
    checkpoint: str | None


# What writes a checkpoint's files, which are synced together.
_write_torch = _train.write_torch


def _write_tensors(tensors, path):
    _train.write_safetensors(_checked(tensors, None)[0], path)


def _count(name, value, required=False):
    if value is None and not required:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"Trainer: {name} must be an integer, got {value!r}") from None


class Trainer:
    """Calls loss = step(batch) for the batches of a DataLoader and does what surrounds it.

    model, optimizer, loader: what is trained, by what, on what. step: gives the loss, a tensor of one element.
    output_dir: where checkpoints, metrics.jsonl and TensorBoard's files (logs/, with tensorboard) go; without one
    nothing is written.
    max_steps, max_epochs: the run ends at whichever comes first. A step is one step of the optimizer.
    gradient_accumulation_steps: batches for one step, counted across epochs; what is left at the very end is not used.
    max_grad_norm: gradients are scaled down to that norm. mixed_precision: "no", "bf16" or "fp16" (with a GradScaler).
    scheduler: stepped after each step of the optimizer. ema: an EMAModel of model.parameters().
    seed: of the default generators, when a run begins anew. Seed before the model is made too, for its initial weights.
    checkpointing_steps: between checkpoints; None: only one at the end. checkpoints_total_limit: how many are kept.
    resume: "latest" (begins anew where there is none), or a checkpoint folder. The run then goes on bit for bit as if
    it had never ended: weights, optimizer, schedule, ema, scaler, default generators, Python's and NumPy's,
    position in the data.
    stateful: {name: object} of more that a checkpoint should hold: Generators,
    or objects with state_dict and load_state_dict.
    logging_steps: between lines of metrics.jsonl; each has the mean loss since the one before.
    evaluate: called every eval_steps steps in eval mode without gradients,
    with the averaged weights where there is an ema;
    gives a dict of numbers for the metrics. on_step_end(trainer), on_checkpoint(trainer, folder): called after each.
    quiet: no progress line on standard error.
    prepare: what the host does for a step: a function of a batch whose result step gets instead of it (captions as
    tokens, numbers that are drawn there). cuda_graph: on CUDA, a step (all of its batches, to the averages) is captured
    once for each shape and replayed, with the same numbers. Batches, or what prepare gives, are tensors in lists,
    tuples and dicts, which are moved to the GPU; step must do the same for every batch, since replays run without
    Python. The optimizer becomes capturable. Nothing waits for the GPU but every logging_steps, before an evaluation, a
    checkpoint and the end (with fp16, a schedule or averages: every step). That is where a loss that is NaN is found;
    from its step on, no weight has changed. Reading `loss` waits.
    model may be a DistributedDataParallel: every process makes a Trainer with the same arguments and its own part of
    the data. Process 0 logs, the loss being the mean of all; checkpoints are written by all into the one output_dir
    (distributed.checkpoint), any number of processes goes on from them, and a stop in one stops all. parts: a step has
    that many (DistributedDataParallel.parts), each process as many, of batches from a utils.data.PartsSampler: the run
    ends in the same bits for any number of processes.

    Raises ValueError or TypeError for arguments that are impossible or contradict each other,
    and for damaged checkpoints.

    >>> data = sf.utils.data.TensorDataset(sf.randn(16, 4), sf.randn(16, 1))
    >>> model = nn.Linear(4, 1)
    >>> trainer = sf.train.Trainer(
    ...     model, optim.AdamW(model.parameters(), lr=1e-2), sf.utils.data.DataLoader(data, batch_size=4),
    ...     lambda batch: F.mse_loss(model(batch[0]), batch[1]), max_epochs=2, quiet=True)
    >>> trainer.fit().step
    8
    """

    def __init__(
        self,
        model,
        optimizer,
        loader,
        step,
        output_dir=None,
        *,
        max_steps=None,
        max_epochs=None,
        gradient_accumulation_steps=1,
        max_grad_norm=None,
        mixed_precision="no",
        scheduler=None,
        ema=None,
        seed=None,
        checkpointing_steps=500,
        checkpoints_total_limit=None,
        resume=None,
        stateful=None,
        logging_steps=10,
        evaluate=None,
        eval_steps=None,
        on_step_end=None,
        on_checkpoint=None,
        tensorboard=True,
        quiet=False,
        prepare=None,
        cuda_graph=False,
        parts=None,
    ):
        if not isinstance(model, Module):
            raise TypeError(f"Trainer: model must be an nn.Module, got {type(model).__name__}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"Trainer: optimizer must be an optim.Optimizer, got {type(optimizer).__name__}")
        if not all(hasattr(loader, name) for name in ("__iter__", "epoch", "state_dict", "load_state_dict")):
            raise TypeError(
                "Trainer: loader must be a utils.data.DataLoader, which knows where in the data it is, got "
                f"{type(loader).__name__}"
            )
        if not callable(step):
            raise TypeError(
                f"Trainer: step must be a function of a batch that returns the loss, got {type(step).__name__}"
            )
        if prepare is not None and not callable(prepare):
            raise TypeError(f"Trainer: prepare must be a function of a batch, got {type(prepare).__name__}")
        if scheduler is not None and getattr(scheduler, "optimizer", None) is not optimizer:
            raise ValueError("Trainer: the scheduler must be one of this optimizer")
        if ema is not None and not isinstance(ema, EMAModel):
            raise TypeError(f"Trainer: ema must be an optim.EMAModel, got {type(ema).__name__}")
        for name, part in (stateful or {}).items():
            if not str(name).isidentifier() or name in _OWN_FILES:
                raise ValueError(
                    f"Trainer: a name in stateful must be an identifier and none of {sorted(_OWN_FILES)}, got {name!r}"
                )
            if not isinstance(part, Generator) and not (
                hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
            ):
                raise TypeError(
                    f"Trainer: stateful[{name!r}] must have state_dict and load_state_dict, got {type(part).__name__}"
                )
        self._peers = peers_of(self, model, parts)
        if parts is not None:
            if gradient_accumulation_steps != 1:
                raise ValueError(
                    "Trainer: parts says how many batches a step has; leave gradient_accumulation_steps out"
                )
            gradient_accumulation_steps = self._peers.own_parts
        options = _train.RunOptions()
        options.output_dir = "" if output_dir is None else os.fspath(output_dir)
        options.max_steps = _count("max_steps", max_steps)
        options.max_epochs = _count("max_epochs", max_epochs)
        options.gradient_accumulation_steps = _count(
            "gradient_accumulation_steps", gradient_accumulation_steps, required=True
        )
        options.max_grad_norm = None if max_grad_norm is None else float(max_grad_norm)
        options.mixed_precision = str(mixed_precision or "no")
        options.checkpointing_steps = _count("checkpointing_steps", checkpointing_steps)
        options.checkpoints_total_limit = _count("checkpoints_total_limit", checkpoints_total_limit)
        options.logging_steps = _count("logging_steps", logging_steps, required=True)
        options.eval_steps = _count("eval_steps", eval_steps)
        options.tensorboard = bool(tensorboard)
        # What the run looks up, and calls.
        self.model, self.optimizer, self.loader, self.scheduler, self.ema = model, optimizer, loader, scheduler, ema
        self._step_function, self._prepare, self._evaluate = step, prepare, evaluate
        self._on_step_end, self._on_checkpoint, self._quiet = on_step_end, on_checkpoint, quiet
        self._stateful = dict(stateful or {})
        self._parameters = list(model.parameters())
        self._device = self._parameters[0].device if self._parameters else _core.device("cpu")
        self._scaler = (
            GradScaler(self._device.type, capturable=bool(cuda_graph)) if options.mixed_precision == "fp16" else None
        )
        if options.mixed_precision == "bf16" and self._device.type == "cpu":
            _cpu._warn_if_bf16_is_emulated()
        seed = None if seed is None else int(seed) & 0xFFFFFFFFFFFFFFFF
        self._run = _train.TrainingRun(
            self, options, seed, "" if resume is None else os.fspath(resume), bool(cuda_graph)
        )

    def _make_capturable(self):
        if not isinstance(self.optimizer, CapturableOptimizer):
            raise ValueError(
                "Trainer: cuda_graph=True needs an optimizer that can be captured (Adam, AdamW, AdamW8bit, SGD), got "
                f"{type(self.optimizer).__name__}, "
                "whose steps are computed on the host"
            )
        for group in self.optimizer.param_groups:
            group["capturable"] = True
            self.optimizer._check_group(group)

    @property
    def _captured(self):
        """The graphs of a run with cuda_graph, by the order of their batches' forms."""
        return types.SimpleNamespace(
            graphs={i: types.SimpleNamespace(statistics=s) for i, s in enumerate(self._run.graphs())}
        )

    @property
    def step(self):
        """Steps taken, those that a GradScaler skipped included."""
        return self._run.step

    @property
    def epoch(self):
        """Epochs finished."""
        return self._run.epoch

    @property
    def loss(self):
        """Of the last step. With cuda_graph: waits for it."""
        return self._run.loss()

    @property
    def best(self):
        """{name: {"lowest": value, "lowest_step": step, "highest": ..., "highest_step": ...}} of what evaluate gave."""
        return self._run.best

    @property
    def tensorboard(self):
        """During fit(): a utils.tensorboard.SummaryWriter on the run's event file, or None."""
        from ..utils.tensorboard import SummaryWriter

        file = self._run.tensorboard
        return SummaryWriter._of(file) if file else None

    def save(self):
        """Writes a checkpoint now, between steps (in on_step_end, or outside of fit), and returns its folder.

        RuntimeError where that fails; the checkpoints before it are whole then."""
        return self._run.save()

    def stop(self):
        """Ends fit() after the step under way, with a checkpoint; for callbacks."""
        self._run.stop()

    def fit(self):
        """Trains to the end of the run; called again, goes on. Returns a FitResult.

        The first Ctrl-C ends it after the step under way, with a checkpoint; a second one at once. RuntimeError for a
        loss or gradient that is not finite, before it reaches the weights,
        and for a checkpoint that could not be written."""
        with StopOnInterrupt(self._interrupted):
            return FitResult(*self._run.fit())

    def _interrupted(self):
        self._run.stop()
        if not self._quiet:
            sys.stderr.write("\nTrainer: stopping after this step; Ctrl-C again ends at once\n")
            sys.stderr.flush()
