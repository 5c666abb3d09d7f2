"""Steps of a Trainer as CUDA graphs: what is captured, and what the host learns of it, later."""

import math

from .. import _core
from .._core import Tensor
from ..cuda.graphs import make_graphed_step
from ..optim.capturable import CapturableOptimizer

_train = _core._train
_clip_grad = _core._clip_grad


def flatten(batch, place="the batch"):
    """The tensors of nested lists, tuples and dicts, and a key of the nesting. TypeError for anything else in it."""
    if isinstance(batch, Tensor):
        return [batch], "t"
    if isinstance(batch, dict):
        items, keys = [(f"{place}[{k!r}]", v) for k, v in batch.items()], ("dict", *batch)
    elif isinstance(batch, (list, tuple)):
        items, keys = [(f"{place}[{i}]", v) for i, v in enumerate(batch)], (type(batch),)
    else:
        raise TypeError(
            "Trainer: cuda_graph=True needs batches of tensors in lists, tuples and dicts, since a replay would repeat anything else; "
            f"got {type(batch).__name__} in {place}: make tensors of it in `prepare`"
        )
    tensors, parts = [], []
    for name, value in items:
        some, key = flatten(value, name)
        tensors += some
        parts.append(key)
    return tensors, (keys, tuple(parts))


def rebuild(tensors, key):
    """flatten's inverse; tensors: an iterator."""
    if key == "t":
        return next(tensors)
    (kind, *names), parts = key
    values = [rebuild(tensors, part) for part in parts]
    if kind == "dict":
        return dict(zip(names, values))
    if hasattr(kind, "_fields"):
        return kind(*values)
    return kind(values)


def to_device(tensor, device):
    """The tensor there; a copy from the host does not wait for what the device still does."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class CapturedSteps:
    """The steps of a trainer, forward to averages, as one graph for each shape. Losses and norms stay on the device until settle()."""

    def __init__(self, trainer):
        optimizer = trainer.optimizer
        if trainer._device.type != "cuda":
            raise ValueError(f"Trainer: cuda_graph=True needs a model on CUDA, got one on {trainer._device}")
        if not isinstance(optimizer, CapturableOptimizer):
            raise ValueError(
                f"Trainer: cuda_graph=True needs an optimizer that can be captured (Adam, AdamW, AdamW8bit, SGD), got {type(optimizer).__name__}, whose steps "
                "are computed on the host"
            )
        for group in optimizer.param_groups:
            group["capturable"] = True
            optimizer._check_group(group)
        self.trainer = trainer
        self.bad = _core.zeros((), dtype=_core.float32, device=trainer._device)  # 1 from the first loss or norm on that is not finite
        self.graphs = {}  # by the nesting of batches
        self.pending = []
        # A schedule steps, and averages follow, only where the scaler did not skip: the host has to know at once.
        self.waits = trainer._scaler is not None and (trainer.scheduler is not None or trainer.ema is not None)

    def __call__(self, batches):
        """A step on the batches of an accumulation. Its [n + 1] results: the losses and the norm, float64, on the device."""
        tensors, keys = [], []
        for batch in batches:
            some, key = flatten(batch)
            tensors += [to_device(t, self.trainer._device) for t in some]
            keys.append(key)
        keys = tuple(keys)
        if keys not in self.graphs:
            self.graphs[keys] = make_graphed_step(lambda *inputs: self._step(iter(inputs), keys))
        return self.graphs[keys](*tensors)

    def _step(self, inputs, keys):
        trainer = self.trainer
        optimizer, scaler, options = trainer.optimizer, trainer._scaler, trainer._options
        optimizer.zero_grad()
        losses = []
        for key in keys:
            loss = trainer._loss(rebuild(inputs, key))
            losses.append(loss.detach().reshape(()).to(_core.float64))
            trainer._backward(loss)
        if scaler is not None:
            scaler.unscale_(optimizer)
        norm = _clip_grad.get_total_norm(trainer._gradients(), 2.0, False)
        results = _core.stack([*losses, norm.to(_core.float64)])
        # From the first number on that is not finite, no step changes anything: the host hears of it later.
        _train.note_not_finite(results if scaler is None else results[:-1], self.bad)
        if options.max_grad_norm is not None:
            _clip_grad.clip_grads_with_norm_(trainer._trained, options.max_grad_norm, norm)
        if scaler is None:
            optimizer.found_inf = self.bad
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf
        else:
            scaler._also_skip(optimizer, self.bad)
            scaler.step(optimizer)
            scaler.update()
        if trainer.ema is not None and not self.waits:
            trainer.ema.step(trainer._parameters)
        return results

    def settle(self):
        """(step, epoch, lr, samples, loss, norm) of the steps since the last call: the one place where the host waits. RuntimeError for a loss or a norm that
        is not finite."""
        if not self.pending:
            return []
        trainer, pending, self.pending = self.trainer, self.pending, []
        n = trainer._options.gradient_accumulation_steps
        values = _core.stack([results for *_, results in pending]).cpu().tolist()
        settled = []
        for (step, epoch, lr, samples, _), (*losses, norm) in zip(pending, values):
            for loss in losses:
                if not math.isfinite(loss):
                    _train.check_loss(loss, step, trainer._names, trainer._parameters)
            if not math.isfinite(norm) and (trainer._scaler is None or trainer._scaler.get_scale() < 1):
                _train.check_gradients(norm, step, trainer._names, trainer._parameters)
            settled.append((step, epoch, float(lr), samples, sum(loss / n for loss in losses), norm))
        return settled
