"""What the tape keeps for backward."""

from .. import _core


class saved_tensors_hooks:
    """Context manager: pack_hook(tensor) is kept instead of each tensor saved for backward; unpack_hook makes the
    tensor of it again.

    Leaves that require a gradient are kept themselves: their owner has them anyway.

    >>> model, x = nn.Linear(4, 2), sf.ones(1, 4)
    >>> with sf.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda h: h.float()):
    ...     loss = model(x)
    """

    def __init__(self, pack_hook, unpack_hook):
        self._hooks = _core._SavedHooks(pack_hook, unpack_hook)

    def __enter__(self):
        self._hooks.enter()

    def __exit__(self, *_):
        self._hooks.exit()


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved for backward wait in host memory. pin_memory: in pinned memory,
    to which and from which the GPU copies without a wait.

    >>> x = sf.ones(2, requires_grad=True)
    >>> with sf.autograd.graph.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(self, pin_memory=False):
        def keep(t):
            return t.device, t.to("cpu", non_blocking=pin_memory)  # between a GPU and the host that result is pinned

        super().__init__(keep, lambda kept: kept[1].to(kept[0], non_blocking=pin_memory))
