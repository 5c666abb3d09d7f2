"""Averages of a model's weights over training, with torch.optim.swa_utils' names. EMAModel is diffusers' form of it.

>>> averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.999))
>>> averaged.update_parameters(model)          # after each optimizer.step()
>>> swa_utils.update_bn(loader, averaged)      # in the end, for batch norms
"""

import math
from copy import deepcopy

from .. import _core, nn
from .._documents import add_to
from ..autograd.grad_mode import no_grad
from .scheduler_base import LRScheduler, _number, _per_group

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _move(averages, values, weight):
    """average += weight * (value - average), the floating ones in one pass."""
    floating = [i for i, a in enumerate(averages) if a.is_floating_point()]
    if floating:
        _core._ema_lerp([averages[i] for i in floating], [values[i] for i in floating], weight)
    for i in set(range(len(averages))) - set(floating):
        averages[i].copy_(averages[i] + (values[i] - averages[i]) * weight)


def get_ema_multi_avg_fn(decay=0.999):
    """For multi_avg_fn: exponential moving averages, decay * average + (1 - decay) * value."""
    _check_decay(decay)

    def ema_update(ema_param_list, current_param_list, _):
        _move(ema_param_list, current_param_list, 1 - decay)

    return ema_update


def get_swa_multi_avg_fn():
    """For multi_avg_fn: the mean of all values so far."""

    def swa_update(averaged_param_list, current_param_list, num_averaged):
        _move(averaged_param_list, current_param_list, 1 / (float(num_averaged) + 1))

    return swa_update


def get_ema_avg_fn(decay=0.999):
    """For avg_fn: exponential moving averages, decay * average + (1 - decay) * value.

    >>> optim.swa_utils.get_ema_avg_fn(0.9)(sf.tensor(1.), sf.tensor(2.), 3)
    tensor(1.1000)
    """
    _check_decay(decay)

    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """For avg_fn: the mean of all values so far.

    >>> optim.swa_utils.get_swa_avg_fn()(sf.tensor(1.), sf.tensor(5.), 3)
    tensor(2.)
    """

    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are averages of the model's: their mean, or what avg_fn(average, value, count)
    returns for one tensor, or multi_avg_fn(averages, values, count) writes for all. use_buffers: buffers are averaged
    too; else they are the model's. Calls go to the copy, which is .module; n_averaged counts the updates.

    >>> net = nn.Linear(2, 1)
    >>> averaged = optim.swa_utils.AveragedModel(net)
    >>> averaged.update_parameters(net)  # after each optimizer.step()
    >>> averaged(sf.ones(1, 2)).shape
    scaffolding.Size([1, 1])
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: give avg_fn or multi_avg_fn, not both")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _core.tensor(0, dtype=_core.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model):
        """Takes the model's parameters into the averages; the first time they are copied."""
        pairs = [(a.detach(), v) for a, v in zip(self.module.parameters(), model.parameters(), strict=True)]
        buffers = [(a.detach(), v) for a, v in zip(self.module.buffers(), model.buffers(), strict=True)]
        if self.use_buffers:
            pairs += buffers
        averages = [a for a, _ in pairs]
        values = [v.detach().to(a.device) for a, v in pairs]
        count = self.n_averaged
        if count.item() == 0:
            for average, value in zip(averages, values):
                average.copy_(value)
        elif self.avg_fn is not None:
            for average, value in zip(averages, values):
                average.copy_(self.avg_fn(average, value, count.to(average.device)))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            kinds = {}
            for average, value in zip(averages, values):
                of_kind = kinds.setdefault((str(average.device), average.dtype), ([], []))
                of_kind[0].append(average)
                of_kind[1].append(value)
            for of_kind in kinds.values():
                update(*of_kind, count)
        if not self.use_buffers:
            for mine, value in buffers:
                mine.copy_(value.detach().to(mine.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader, model, device=None):
    """Computes the running statistics of a model's batch norms anew from the batches of a loader: tensors, or tuples
    that begin with one. device: where they go first.

    >>> average = optim.swa_utils.AveragedModel(nn.BatchNorm1d(2))
    >>> optim.swa_utils.update_bn([sf.tensor([[0., 2.], [4., 6.]])], average)
    >>> average.module.running_mean
    tensor([2., 4.])
    """
    norms = [m for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))]
    if not norms:
        return
    momenta, was_training = [m.momentum for m in norms], model.training
    for norm in norms:
        norm.reset_running_stats()
    model.train()
    try:
        for norm in norms:
            norm.momentum = None  # the mean of all batches
        for batch in loader:
            batch = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(batch if device is None else batch.to(device))
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Goes from each group's rate to swa_lr within anneal_epochs, in the shape of a cosine ("cos") or a line
    ("linear"), and stays there.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.swa_utils.SWALR(optimizer, swa_lr=0.1, anneal_epochs=4)
    >>> for epoch in range(4): optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        for rate, group in zip(_per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = rate
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step):
        """How far the rates are, from 0 to 1."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now, rates = self._share(step - 1), self._share(step), []
        for group in self.optimizer.param_groups:
            lr, end = _number(group["lr"]), group["swa_lr"]
            # Where it began, which another schedule may have moved since.
            first = end if before == 1 else (lr - before * end) / (1 - before)
            rates.append(end * now + first * (1 - now))
        return rates


add_to(AveragedModel, "optim")
