"""ReduceLROnPlateau."""

from .. import _core
from .scheduler_base import LRScheduler, _check_optimizer, _per_group


class ReduceLROnPlateau(LRScheduler):
    """lr times factor when a metric has not improved for more than `patience` epochs.

    >>> optimizer = optim.SGD([sf.ones(1)], lr=1.0)
    >>> schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    >>> for epoch in range(4): optimizer.step(); schedule.step(1.0)  # a loss that stays
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        _check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer = optimizer
        self.factor = factor
        self.min_lrs = _per_group("min_lr", optimizer, min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.last_epoch = 0
        self._last_lr = self._rates()
        self.best = _core.inf if mode == "min" else -_core.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self):
        """Whether epochs are not counted yet after a reduction."""
        return self.cooldown_counter > 0

    def _is_better(self, value, best):
        if self.threshold_mode == "abs":
            return value < best - self.threshold if self.mode == "min" else value > best + self.threshold
        return value < best * (1.0 - self.threshold) if self.mode == "min" else value > best * (1.0 + self.threshold)

    def step(self, metrics, epoch=None):
        """Notes metrics, the number of an epoch that is watched."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value, self.best):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lr = max(group["lr"] * self.factor, lowest)
                if group["lr"] - lr > self.eps:
                    group["lr"] = lr
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()
