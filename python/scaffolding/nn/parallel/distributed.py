"""DistributedDataParallel: one module in several processes, each with its part of the batch."""

import contextlib

from ... import _core, distributed
from ...autograd.grad_mode import no_grad
from ..module import Module


class _Bucket:
    """Parameters whose gradients travel together."""

    def __init__(self, members):
        self.members = members  # (name, parameter)
        self.waiting = set()  # names whose gradient has not come in this backward

    @no_grad()
    def reduce(self, group):
        grads = [p.grad for _, p in self.members]
        flat = grads[0].reshape(-1) if len(grads) == 1 else _core.cat([g.reshape(-1) for g in grads])
        group.all_reduce(flat, distributed.ReduceOp.AVG)
        at = 0
        for g in grads:
            part = flat[at : at + g.numel()]
            at += g.numel()
            g.copy_(part.reshape(g.shape))


class DistributedDataParallel(Module):
    """Calls module, and gives its parameters, in backward, the mean of all processes' gradients: they stay the same
    everywhere.

    Every process makes one from the same architecture; parameters and buffers become rank 0's, buffers again before
    each forward in training (broadcast_buffers). The loss should be a mean over the process's samples, and all should
    have as many. Gradients travel while backward goes on, in buckets of bucket_cap_mb. A parameter that gets no
    gradient in a backward is an error at the next forward: take it out of training by requires_grad_(False). Keys of
    the state dict begin with "module.".
    """

    def __init__(
        self,
        module,
        device_ids=None,
        output_device=None,
        dim=0,
        broadcast_buffers=True,
        init_sync=True,
        process_group=None,
        bucket_cap_mb=25,
        find_unused_parameters=False,
        check_reduction=False,
        gradient_as_bucket_view=False,
        static_graph=False,
    ):
        super().__init__()
        if not isinstance(module, Module):
            raise TypeError(f"DistributedDataParallel: module must be an nn.Module, got {type(module).__name__}")
        if find_unused_parameters:
            raise NotImplementedError(
                "DistributedDataParallel: find_unused_parameters=True is not supported; requires_grad_(False) what is "
                "not used"
            )
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb must be positive, got {bucket_cap_mb}")
        self.process_group = distributed._group("DistributedDataParallel", process_group)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        if init_sync:
            self._broadcast([*module.parameters(), *module.buffers()])
        self._buckets = self._in_buckets(trained, (25 if bucket_cap_mb is None else bucket_cap_mb) * 2**20)
        # of the buckets, in their order, the first that has not been reduced; all have: no backward is under way
        self._next = len(self._buckets)
        if self.process_group.size() > 1:
            for bucket in self._buckets:
                for name, p in bucket.members:
                    p.register_post_accumulate_grad_hook(
                        lambda _, bucket=bucket, name=name: self._arrived(bucket, name)
                    )

    @staticmethod
    def _in_buckets(trained, cap):
        """In the reverse of the order of registration, which is about the order in which gradients come;
        one dtype and device each.
        """
        buckets, size = [], 0
        for name, p in reversed(trained):
            n = p.numel() * p.element_size()
            last = buckets[-1][0][1] if buckets else None
            if last is None or size + n > cap or (last.dtype, last.device) != (p.dtype, p.device):
                buckets.append([])
                size = 0
            buckets[-1].append((name, p))
            size += n
        return [_Bucket(b) for b in buckets]

    @no_grad()
    def _broadcast(self, tensors):
        for t in tensors:
            self.process_group.broadcast(t, 0)

    def _arrived(self, bucket, name):
        if not self.require_backward_grad_sync:
            return
        bucket.waiting.discard(name)
        # In one order everywhere, whatever the order in which gradients come.
        while self._next < len(self._buckets) and not self._buckets[self._next].waiting:
            self._buckets[self._next].reduce(self.process_group)
            self._next += 1

    def _expect_gradients(self):
        begun = any(len(b.waiting) < len(b.members) for b in self._buckets)
        if begun and self._next < len(self._buckets):
            missing = sorted(name for b in self._buckets for name in b.waiting)
            raise RuntimeError(
                "DistributedDataParallel: expected to have finished reduction in the prior iteration before starting a "
                f"new one: {missing[0]!r} "
                f"and {len(missing) - 1} more got no gradient; requires_grad_(False) what is not used, or call "
                "backward within no_sync()"
            )
        for b in self._buckets:
            b.waiting = {name for name, _ in b.members}
        self._next = 0

    def forward(self, *inputs, **kwargs):
        if self.process_group.size() > 1 and self.require_backward_grad_sync:
            if self.training and self.broadcast_buffers:
                self._broadcast(list(self.module.buffers()))
            if _core.is_grad_enabled():
                self._expect_gradients()
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of forwards and backwards within are added up here only;
        those of the next backward outside take them along.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before
