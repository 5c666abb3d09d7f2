"""Trainer: the loop around a step function. Its parts (options, checkpoint folders, logs, NaN guard) are scaffolding/train/ in C++."""

import contextlib
import math
import operator
import os
import sys
import typing
import warnings

from .. import _core
from .._core import Generator, Tensor
from ..amp import GradScaler, autocast
from ..autograd.grad_mode import no_grad
from ..nn.module import Module
from ..optim import EMAModel, Optimizer
from ..safetensors import _checked, load_file
from ..serialization import load
from . import random_states
from .captured import CapturedSteps
from .interrupt import StopOnInterrupt

_train = _core._train
_clip_grad = _core._clip_grad
_DTYPES = {"bf16": _core.bfloat16, "fp16": _core.float16}
_OWN_FILES = {"model", "optimizer", "scheduler", "scaler", "ema", "dataloader", "random_states", "trainer_state", "manifest"}


class FitResult(typing.NamedTuple):
    """How fit() ended. stopped: by Ctrl-C or stop(). loss: of the last step. checkpoint: the newest folder, or None."""

    stopped: bool
    step: int
    epoch: int
    loss: float
    checkpoint: str | None


# What writes a checkpoint's files; CheckpointFolders.commit syncs them.
_write_torch = _train.write_torch


def _write_tensors(tensors, path):
    _train.write_safetensors(_checked(tensors, None)[0], path)


def _count(name, value):
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"Trainer: {name} must be an integer, got {value!r}") from None


def _required(name, value):
    if value is None:
        raise TypeError(f"Trainer: {name} must be an integer, got None")
    return _count(name, value)


def _length(loader):
    try:
        return len(loader)
    except TypeError:  # a stream
        return None


def _samples(batch):
    """How many samples a batch holds: the first size of the first tensor in it; 1 where there is none."""
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch.shape[0] if isinstance(batch, Tensor) and batch.dim() > 0 else 1


class Trainer:
    """Calls loss = step(batch) for the batches of a DataLoader and does what surrounds it.

    model, optimizer, loader: what is trained, by what, on what. step: gives the loss, a tensor of one element.
    output_dir: where checkpoints, metrics.jsonl and TensorBoard's files (logs/) go; without one nothing is written.
    max_steps, max_epochs: the run ends at whichever comes first. A step is one step of the optimizer.
    gradient_accumulation_steps: batches for one step, counted across epochs; what is left at the very end is not used.
    max_grad_norm: gradients are scaled down to that norm. mixed_precision: "no", "bf16" or "fp16" (with a GradScaler).
    scheduler: stepped after each step of the optimizer. ema: an EMAModel of model.parameters().
    seed: of the default generators, when a run begins anew. Seed before the model is made too, for its initial weights.
    checkpointing_steps: between checkpoints; None: only one at the end. checkpoints_total_limit: how many are kept.
    resume: "latest" (begins anew where there is none), or a checkpoint folder. The run then goes on bit for bit as if it had
    never ended: weights, optimizer, schedule, ema, scaler, default generators, Python's and NumPy's, position in the data.
    stateful: {name: object} of more that a checkpoint should hold: Generators, or objects with state_dict and load_state_dict.
    logging_steps: between lines of metrics.jsonl; each has the mean loss since the one before.
    evaluate: called every eval_steps steps in eval mode without gradients, with the averaged weights where there is an ema;
    gives a dict of numbers for the metrics. on_step_end(trainer), on_checkpoint(trainer, folder): called after each.
    quiet: no progress line on standard error.
    prepare: what the host does for a step: a function of a batch whose result step gets instead of it (captions as tokens, numbers that are drawn there).
    cuda_graph: on CUDA, a step (all of its batches, to the averages) is captured once for each shape and replayed, with the same numbers. Batches, or what
    prepare gives, are tensors in lists, tuples and dicts, which are moved to the GPU; step must do the same for every batch, since replays run without
    Python. The optimizer becomes capturable. Nothing waits for the GPU but every logging_steps, before an evaluation, a checkpoint and the end (with fp16, a
    schedule or averages: every step). That is where a loss that is NaN is found; from its step on, no weight has changed. Reading `loss` waits.

    Raises ValueError or TypeError for arguments that are impossible or contradict each other, and for damaged checkpoints.
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
    ):
        if not isinstance(model, Module):
            raise TypeError(f"Trainer: model must be an nn.Module, got {type(model).__name__}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"Trainer: optimizer must be an optim.Optimizer, got {type(optimizer).__name__}")
        if not all(hasattr(loader, name) for name in ("__iter__", "epoch", "state_dict", "load_state_dict")):
            raise TypeError(f"Trainer: loader must be a utils.data.DataLoader, which knows where in the data it is, got {type(loader).__name__}")
        if not callable(step):
            raise TypeError(f"Trainer: step must be a function of a batch that returns the loss, got {type(step).__name__}")
        if prepare is not None and not callable(prepare):
            raise TypeError(f"Trainer: prepare must be a function of a batch, got {type(prepare).__name__}")
        options = self._options = _train.RunOptions()
        options.output_dir = "" if output_dir is None else os.fspath(output_dir)
        options.max_steps = _count("max_steps", max_steps)
        options.max_epochs = _count("max_epochs", max_epochs)
        options.gradient_accumulation_steps = _required("gradient_accumulation_steps", gradient_accumulation_steps)
        options.max_grad_norm = None if max_grad_norm is None else float(max_grad_norm)
        options.mixed_precision = str(mixed_precision or "no")
        options.checkpointing_steps = _count("checkpointing_steps", checkpointing_steps)
        options.checkpoints_total_limit = _count("checkpoints_total_limit", checkpoints_total_limit)
        options.logging_steps = _required("logging_steps", logging_steps)
        options.eval_steps = _count("eval_steps", eval_steps)
        options.tensorboard = bool(tensorboard)
        options.check(_length(loader))
        if scheduler is not None and getattr(scheduler, "optimizer", None) is not optimizer:
            raise ValueError("Trainer: the scheduler must be one of this optimizer")
        if (evaluate is None) != (eval_steps is None):
            raise ValueError("Trainer: evaluate and eval_steps must be given together")
        if resume is not None and output_dir is None:
            raise ValueError("Trainer: resume needs an output_dir")
        named = dict(model.named_parameters())
        self._names, self._parameters = list(named), list(named.values())
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]
        known = {id(p) for p in self._parameters}
        for p in self._trained:
            if id(p) not in known:
                raise ValueError(f"Trainer: the optimizer has a parameter of shape {list(p.shape)} that the model does not have; a checkpoint would miss it")
        if ema is not None and not isinstance(ema, EMAModel):
            raise TypeError(f"Trainer: ema must be an optim.EMAModel, got {type(ema).__name__}")
        if ema is not None and len(ema.shadow_params) != len(self._parameters):
            raise ValueError(f"Trainer: ema must be made from the model's {len(self._parameters)} parameters, it has {len(ema.shadow_params)}")
        self._stateful = dict(stateful or {})
        for name, part in self._stateful.items():
            if not str(name).isidentifier() or name in _OWN_FILES:
                raise ValueError(f"Trainer: a name in stateful must be an identifier and none of {sorted(_OWN_FILES)}, got {name!r}")
            if not isinstance(part, Generator) and not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise TypeError(f"Trainer: stateful[{name!r}] must have state_dict and load_state_dict, got {type(part).__name__}")
        self.model, self.optimizer, self.loader, self.scheduler, self.ema = model, optimizer, loader, scheduler, ema
        self._loss_now = math.nan
        self._step_function, self._prepare, self._evaluate = step, prepare, evaluate
        self._on_step_end, self._on_checkpoint = on_step_end, on_checkpoint
        self._seed, self._quiet = seed, quiet
        self._device = self._parameters[0].device if self._parameters else _core.device("cpu")
        self._scaler = GradScaler(self._device.type, capturable=bool(cuda_graph)) if options.mixed_precision == "fp16" else None
        self._state = _train.RunState()
        self._random_states = self._checkpoints = self._newest = self._saved_step = self._log = None
        self._begun = self._stop = False
        self._captured = CapturedSteps(self) if cuda_graph else None
        if output_dir is not None:
            self._open(options, resume)
        self._epochs_before = loader.epoch - self._state.epoch

    def _open(self, options, resume):
        self._checkpoints = _train.CheckpointFolders(options.output_dir, options.checkpoints_total_limit)
        found = self._checkpoints.find("" if resume is None else os.fspath(resume))
        self._checkpoints.clean()
        if found is None:
            return
        folder, damaged = found
        for reason in damaged:
            warnings.warn(f"Trainer: passed over a damaged checkpoint: {reason}", stacklevel=3)
        self._load(folder)

    # ---- where the run is

    @property
    def step(self):
        """Steps taken, those that a GradScaler skipped included."""
        return self._state.step

    @property
    def epoch(self):
        """Epochs finished."""
        return self._state.epoch

    @property
    def loss(self):
        """Of the last step. With cuda_graph: waits for it."""
        self._settle()
        return self._loss_now

    @property
    def best(self):
        """{name: {"lowest": value, "lowest_step": step, "highest": ..., "highest_step": ...}} of what evaluate gave."""
        return self._state.best

    @property
    def tensorboard(self):
        """During fit(): a utils.tensorboard.SummaryWriter on the run's event file, or None."""
        from ..utils.tensorboard import SummaryWriter

        file = self._log and self._log.tensorboard
        return SummaryWriter._of(file) if file else None

    # ---- checkpoints

    def _write(self, folder):
        def path(name):
            return os.path.join(folder, name)

        _write_tensors(self.model.state_dict(), path("model.safetensors"))
        _write_torch(self.optimizer.state_dict(), path("optimizer.pt"))
        if self.scheduler is not None:
            _write_torch(self.scheduler.state_dict(), path("scheduler.pt"))
        if self._scaler is not None:
            _write_torch(self._scaler.state_dict(), path("scaler.pt"))
        if self.ema is not None:
            _write_tensors(dict(zip(self._names, self.ema.shadow_params)), path("ema.safetensors"))
            self._state.ema_step = self.ema.optimization_step
        for name, part in self._stateful.items():
            _write_torch(part.get_state() if isinstance(part, Generator) else part.state_dict(), path(f"{name}.pt"))
        _write_torch(self.loader.state_dict(), path("dataloader.pt"))
        _write_torch(random_states.get(self._device), path("random_states.pt"))
        _train.save_run_state(self._state, self._options, path("trainer_state.json"))

    def save(self):
        """Writes a checkpoint now, between steps (in on_step_end, or outside of fit), and returns its folder.

        RuntimeError where that fails; the checkpoints before it are whole then."""
        if self._checkpoints is None:
            raise ValueError("Trainer: save needs an output_dir")
        self._settle()
        step = self.step
        if self._saved_step == step:
            return self._newest
        try:
            if self._log is not None:
                self._log.sync()
            self._write(self._checkpoints.begin(step))
            newest = self._checkpoints.commit(step)
        except BaseException as e:
            self._checkpoints.abandon(step)
            if isinstance(e, (RuntimeError, OSError)):
                raise RuntimeError(self._checkpoints.failure(step, str(e))) from e
            raise
        self._newest, self._saved_step = newest, step
        if self._on_checkpoint is not None:
            self._on_checkpoint(self, newest)
        return newest

    def _load(self, folder):
        def path(name):
            file = os.path.join(folder, name)
            if not os.path.exists(file):
                raise ValueError(f"Trainer: {file} is missing: the checkpoint is of a run with other parts")
            return file

        state = _train.load_run_state(path("trainer_state.json"))
        self.model.load_state_dict(load_file(path("model.safetensors")))
        self.optimizer.load_state_dict(load(path("optimizer.pt")))
        if self.scheduler is not None:
            self.scheduler.load_state_dict(load(path("scheduler.pt")))
        if self._scaler is not None:
            self._scaler.load_state_dict(load(path("scaler.pt")))
        if self.ema is not None:
            averages = load_file(path("ema.safetensors"))
            missing = [name for name in self._names if name not in averages]
            if missing:
                raise ValueError(f"Trainer: {path('ema.safetensors')} has no {missing[0]!r}")
            shadow = [averages[name].to(now.device) for name, now in zip(self._names, self.ema.shadow_params)]
            self.ema.load_state_dict({"optimization_step": state.ema_step, "shadow_params": shadow})
        for name, part in self._stateful.items():
            saved = load(path(f"{name}.pt"))
            part.set_state(saved) if isinstance(part, Generator) else part.load_state_dict(saved)
        self.loader.load_state_dict(load(path("dataloader.pt")))
        self._random_states = load(path("random_states.pt"))
        self._state, self._newest, self._saved_step = state, folder, state.step

    # ---- the loop

    def stop(self):
        """Ends fit() after the step under way, with a checkpoint; for callbacks."""
        self._stop = True

    def fit(self):
        """Trains to the end of the run; called again, goes on. Returns a FitResult.

        The first Ctrl-C ends it after the step under way, with a checkpoint; a second one at once. RuntimeError for a loss or
        gradient that is not finite, before it reaches the weights, and for a checkpoint that could not be written."""
        self._begin()
        batches = self._batches()
        stopped = False
        with StopOnInterrupt(lambda: self._show("\nTrainer: stopping after this step; Ctrl-C again ends at once\n")) as interrupt:
            try:
                while not stopped and not self._finished() and self._train_step(batches):
                    checkpointing = self._options.checkpointing_steps
                    if self._on_step_end is not None:
                        self._on_step_end(self)
                    if self._checkpoints is not None and checkpointing is not None and self.step % checkpointing == 0:
                        self.save()
                    stopped = self._stop or interrupt.asked
                self._settle()
                self.optimizer.zero_grad()
            finally:
                position = self.loader.state_dict()
                batches.close()
                self.loader.load_state_dict(position)  # where fit() would go on
                self._show(self._log.finish())
            if self._checkpoints is not None and self.step > 0:
                self.save()
        self._log = None
        return FitResult(stopped, self.step, self.epoch, self.loss, self._newest)

    def _begin(self):
        if self._random_states is not None:
            random_states.set(self._random_states, self._device)
            self._random_states = None
        elif self._seed is not None and not self._begun and self.step == 0:
            _core._manual_seed(int(self._seed) & 0xFFFFFFFFFFFFFFFF)
        self._begun, self._stop = True, False
        kinds = _train.Progress
        progress = kinds.Quiet if self._quiet else kinds.Terminal if sys.stderr.isatty() else kinds.Lines
        self._log = _train.RunLog(self._options, self._state, self._options.total_steps(_length(self.loader)), progress)

    def _show(self, text):
        if text and not self._quiet:
            sys.stderr.write(text)
            sys.stderr.flush()

    def _epochs(self):
        return self.loader.epoch - self._epochs_before

    def _finished(self):
        steps, epochs = self._options.max_steps, self._options.max_epochs
        return (steps is not None and self.step >= steps) or (epochs is not None and self._epochs() >= epochs)

    def _batches(self):
        epochs = self._options.max_epochs
        barren = 0  # epochs in a row without a batch; the first may be what was left of one
        while barren < 2 and (epochs is None or self._epochs() < epochs):
            barren += 1
            for batch in self.loader:
                barren = 0
                yield batch
        if barren == 2:
            raise RuntimeError("Trainer: the loader gives no batches")

    def _train_step(self, batches):
        """One step of the optimizer; False where the data ended before it."""
        if self._captured is None:
            self.optimizer.zero_grad()
        loss = samples = 0
        kept = []
        for _ in range(self._options.gradient_accumulation_steps):
            try:
                batch = next(batches)
            except StopIteration:
                self._state.epoch = self._epochs()
                return False
            samples += _samples(batch)
            if self._prepare is not None:
                batch = self._prepare(batch)
            if self._captured is None:
                loss += self._micro_step(batch)
            else:
                kept.append(batch)
        state, lr = self._state, self.optimizer.param_groups[0]["lr"]
        if self._captured is not None:
            return self._captured_step(kept, samples, lr.detach().clone() if isinstance(lr, Tensor) else lr)
        grad_norm = self._update()
        self._loss_now = loss
        state.step += 1
        state.epoch = self._epochs()
        due = self._evaluate is not None and state.step % self._options.eval_steps == 0
        self._show(self._log.record(state, loss, float(lr), grad_norm, samples, self._evaluation() if due else {}))
        return True

    def _captured_step(self, batches, samples, lr):
        captured, state, options = self._captured, self._state, self._options
        results = captured(batches)
        if not captured.waits or math.isfinite(results[-1].item()):
            if self.scheduler is not None:
                self.scheduler.step()
            if captured.waits and self.ema is not None:
                self.ema.step(self._parameters)
        state.step += 1
        state.epoch = self._epochs()
        captured.pending.append((state.step, state.epoch, lr, samples, results))
        if self._evaluate is not None and state.step % options.eval_steps == 0:
            self._settle(self._evaluation)
        elif state.step % options.logging_steps == 0:
            self._settle()
        return True

    def _settle(self, evaluate=dict):
        """Logs the captured steps that the host has not heard of, the last one with what evaluate gives."""
        if self._captured is None:
            return
        settled, state = self._captured.settle(), self._state
        where = state.step, state.epoch
        for i, (step, epoch, lr, samples, loss, norm) in enumerate(settled):
            self._loss_now, state.step, state.epoch = loss, step, epoch
            self._show(self._log.record(state, loss, lr, norm, samples, evaluate() if i + 1 == len(settled) else {}))
        state.step, state.epoch = where

    def _loss(self, batch):
        dtype = _DTYPES.get(self._options.mixed_precision)
        with contextlib.nullcontext() if dtype is None else autocast(self._device.type, dtype):
            loss = self._step_function(batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TypeError(f"Trainer: step must return the loss, a tensor of one element that requires a gradient, got {got}")
        return loss

    def _backward(self, loss):
        n = self._options.gradient_accumulation_steps
        if n > 1:
            loss = loss / n
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def _micro_step(self, batch):
        """A batch's share of the loss, whose gradient is added."""
        loss = self._loss(batch)
        value = loss.item()
        if not math.isfinite(value):
            _train.check_loss(value, self.step + 1, self._names, self._parameters)
        self._backward(loss)
        return value / self._options.gradient_accumulation_steps

    def _gradients(self):
        grads = [g for g in (p.grad for p in self._trained) if g is not None]
        if not grads:
            raise RuntimeError("Trainer: no parameter of the optimizer got a gradient; the loss does not depend on them")
        return grads

    def _update(self):
        """The optimizer's step; returns the norm of the gradients."""
        scaler, options = self._scaler, self._options
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        norm = _clip_grad.get_total_norm(self._gradients(), 2.0, False)
        value = norm.item()
        finite = math.isfinite(value)
        # A scaled loss may overflow: the scaler skips the step and lowers the scale. Where it is below 1 already, that is not why.
        if not finite and (scaler is None or scaler.get_scale() < 1):
            _train.check_gradients(value, self.step + 1, self._names, self._parameters)
        if options.max_grad_norm is not None and finite:
            _clip_grad.clip_grads_with_norm_(self._trained, options.max_grad_norm, norm)
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()
        if finite:
            if self.scheduler is not None:
                self.scheduler.step()
            if self.ema is not None:
                self.ema.step(self._parameters)
        return value

    @no_grad()
    def _evaluation(self):
        modes = [(module, module.training) for module in self.model.modules()]
        if self.ema is not None:
            self.ema.store(self._parameters)
            self.ema.copy_to(self._parameters)
        self.model.eval()
        try:
            result = self._evaluate()
        finally:
            for module, training in modes:
                module.training = training
            if self.ema is not None:
                self.ema.restore(self._parameters)
        if not isinstance(result, dict):
            raise TypeError(f"Trainer: evaluate must return a dict of numbers, got {type(result).__name__}")
        return {str(name): float(value) for name, value in result.items()}
