"""SyncBatchNorm."""

from .. import _core, distributed
from .._documents import add_to
from ..autograd import Function
from ..autograd.grad_mode import no_grad
from . import functional
from .module import Module
from .parameter import Buffer, Parameter


class _SumOfProcesses(Function):
    """The sum of every process's tensor; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        total = x.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, dy):
        total = dy.clone()
        distributed.all_reduce(total, group=ctx.group)
        return total, None


class SyncBatchNorm(Module):
    """BatchNorm of x[N, C, ...] whose statistics in training are of the batches of all processes, on CPUs too.

    Options, parameters and buffers are BatchNorm's; process_group: None for all processes. Without processes, or in
    one, it is BatchNorm. ValueError for fewer than two dimensions.

    >>> net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(3)))
    >>> net
    Sequential(
      (0): SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    )
    """

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats, self.process_group = affine, track_running_stats, process_group
        kind = {"device": device, "dtype": dtype}
        self.weight = Parameter(_core.ones(num_features, **kind)) if affine else None
        self.bias = Parameter(_core.zeros(num_features, **kind)) if affine and bias else None
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = Buffer(_core.zeros(num_features, **kind))
            self.running_var = Buffer(_core.ones(num_features, **kind))
            self.num_batches_tracked = Buffer(_core.tensor(0, dtype=_core.int64, device=device))

    def forward(self, input):
        """input[N, C, ...], normalised."""
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm: needs [N, {self.num_features}, ...] of two dimensions or more, "
                f"got shape {list(input.shape)}"
            )
        rate = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                rate = 1.0 / self.num_batches_tracked.item()
        processes = distributed.is_initialized() and distributed.get_world_size(self.process_group) > 1
        if self.training and processes:
            return self._of_all(input, rate)
        use_batch = self.training or self.running_mean is None
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, use_batch, rate, self.eps
        )

    def _of_all(self, input, rate):
        x = input.float() if input.dtype in (_core.bfloat16, _core.float16) else input
        dims = [i for i in range(x.dim()) if i != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        own = _core.full((1,), x.numel() // x.shape[1], dtype=x.dtype, device=x.device)
        sums = _SumOfProcesses.apply(_core.cat([_core.sum(x, dims), own], 0), self.process_group)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = x - mean.reshape(shape)
        squares = _SumOfProcesses.apply(_core.sum(centred * centred, dims), self.process_group)
        if self.running_mean is not None:
            with no_grad():
                self.running_mean.lerp_(mean.detach().to(self.running_mean.dtype), rate)
                self.running_var.lerp_((squares.detach() / (count - 1)).to(self.running_var.dtype), rate)
        y = centred * _core.rsqrt(squares / count + self.eps).reshape(shape)
        if self.weight is not None:
            y = y * self.weight.reshape(shape)
        if self.bias is not None:
            y = y + self.bias.reshape(shape)
        return y.to(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """The module with every BatchNorm1d, 2d and 3d in it replaced by a SyncBatchNorm of the same tensors; a
        BatchNorm itself becomes a new one. process_group: whose statistics are put together; None: all processes."""
        from . import BatchNorm1d, BatchNorm2d, BatchNorm3d

        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            made = cls(module.num_features, module.eps, module.momentum, affine=False, track_running_stats=False)
            made.affine, made.track_running_stats = module.weight is not None, module.running_mean is not None
            made.weight, made.bias = module.weight, module.bias
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                buffer = getattr(module, name)
                setattr(made, name, None if buffer is None else Buffer(buffer))
            made.process_group = process_group
            return made.train(module.training)
        for name, child in list(module.named_children()):
            converted = cls.convert_sync_batchnorm(child, process_group)
            if converted is not child:
                setattr(module, name, converted)
        return module

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


add_to(SyncBatchNorm, "nn")
