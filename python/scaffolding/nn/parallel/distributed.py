"""DistributedDataParallel: one module in several processes, each with its part of the batch."""

import contextlib

from ... import _core, distributed
from ...autograd.grad_mode import no_grad
from ...distributed._calls import ReduceOp
from ...distributed._futures import future_of
from ...distributed._objects import all_gather_object
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ..module import Module
from ._buckets import IN_PLACE_BYTES, GradBucket, in_buckets
from ._parts import Parts

_FIRST_BUCKET_BYTES = 1 << 20
_SYNC_BYTES = 250 << 20  # of parameters and buffers that are broadcast at once


class DistributedDataParallel(Module, Joinable):
    """Calls module, and gives its parameters, in backward, the mean of all processes' gradients: they stay the same
    everywhere, bit for bit.

    Every process makes one from the same architecture; parameters and buffers become rank 0's, buffers again before
    each forward in training (broadcast_buffers). The loss should be a mean over the process's samples, and all should
    have as many, or use Join. Gradients travel while backward goes on, in buckets of bucket_cap_mb, in the order in
    which those of rank 0's first backward came. A parameter that gets no gradient in a backward is an error at the next
    forward, unless find_unused_parameters looks for such ones in each forward, or static_graph says that they are
    always the same. gradient_as_bucket_view: gradients are parts of the buckets, which saves a copy of them; without
    it that holds on CPUs for those that were None before, whose bucket is then theirs alone, and others are written to
    where they are.
    Keys of the state dict begin with "module.".

    Args:
        device_ids, output_device, dim, check_reduction: change nothing
        init_sync: whether parameters and buffers become rank 0's
        process_group: the processes; None: all
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
        bucket_cap_mb=None,
        find_unused_parameters=False,
        check_reduction=False,
        gradient_as_bucket_view=False,
        static_graph=False,
    ):
        super().__init__()
        if not isinstance(module, Module):
            raise TypeError(f"DistributedDataParallel: module must be an nn.Module, got {type(module).__name__}")
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb must be positive, got {bucket_cap_mb}")
        self.process_group = distributed._group("DistributedDataParallel", process_group)
        self.module = module
        self.dim, self.device_ids, self.output_device = dim, device_ids, output_device
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        self._many = self.process_group.size() > 1
        self._check_same_parameters()
        if init_sync:
            self._broadcast([*module.parameters(), *module.buffers()])
        self._cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 2**20)
        self._first_cap = min(_FIRST_BUCKET_BYTES, self._cap)
        self._trained = dict(trained)
        # The reverse of the order of registration, which is about the order in which gradients come.
        self._set_buckets(list(reversed(trained)))
        self._arrived = []  # names, of the first backward, until the buckets are in its order
        self._ordered = False
        self._comm_hook, self._hook = None, None  # registered, and that of this backward
        self._armed = False  # a forward has been, whose backward is to be reduced
        self._finishing = False  # the end of this backward has been asked for
        self._unused = set()  # that a forward has not used
        self._fresh = set()  # that had no gradient before this backward
        self._here = []  # whose gradient is there and is to travel from where it lies, once all have seen it
        self._counts = {}  # how often a gradient came in this backward
        self._static_counts = None  # of a static graph's first backward
        self._shadow_divisor = None
        self._parts, self._in_parts = None, False
        if self._many:
            for name, p in trained:
                p.register_post_accumulate_grad_hook(lambda _, name=name: self._came(name))

    def _set_buckets(self, parameters):
        in_place_from = None if self.gradient_as_bucket_view else IN_PLACE_BYTES
        self._buckets = in_buckets(parameters, self._cap, self._first_cap, in_place_from)
        self._bucket_of = {name: bucket for bucket in self._buckets for name in bucket.names}
        # of the buckets, in their order, the first that is not under way; all are: no backward is
        self._next = len(self._buckets)

    def _check_same_parameters(self):
        if not self._many or self.process_group.name() == "fake":
            return
        mine = [(name, list(p.shape), str(p.dtype), p.requires_grad) for name, p in self.module.named_parameters()]
        everyones = [None] * self.process_group.size()
        all_gather_object(everyones, mine, self.process_group)
        for rank, theirs in enumerate(everyones):
            if theirs == everyones[0]:
                continue
            pairs = zip(everyones[0] + [None] * len(theirs), theirs + [None] * len(everyones[0]))
            first, other = next((a, b) for a, b in pairs if a != b)
            raise RuntimeError(
                "DistributedDataParallel: every process must have the same parameters: rank "
                f"{self.process_group._ranks[0]} has {first}, rank {self.process_group._ranks[rank]} has {other}"
            )

    @no_grad()
    def _broadcast(self, tensors, source=0):
        """Source's values, those of a dtype in few pieces."""
        if not self._many:
            return
        kinds = {}
        for t in tensors:
            kinds.setdefault((t.dtype, t.device), []).append(t)
        for together in kinds.values():
            piece, size = [], 0
            for t in [*together, None]:
                if t is not None and size + t.numel() * t.element_size() <= _SYNC_BYTES:
                    piece.append(t)
                    size += t.numel() * t.element_size()
                    continue
                if piece:
                    flat = _core.cat([p.detach().reshape(-1) for p in piece], 0)
                    self.process_group._broadcast(flat, source, False)
                    at = 0
                    for p in piece:
                        p.detach().copy_(flat[at : at + p.numel()].reshape(p.shape))
                        at += p.numel()
                piece, size = ([t], t.numel() * t.element_size()) if t is not None else ([], 0)

    # A backward, in the order in which this happens.

    def forward(self, *inputs, **kwargs):
        if self._many:
            self._before_forward()
        output = self.module(*inputs, **kwargs)
        if self._armed and self.find_unused_parameters and not self.static_graph:
            self._mark_unused(self._not_in_graph_of(output))
        return output

    def _before_forward(self):
        grads = _core.is_grad_enabled()
        if self._in_parts:
            self._armed = False
            if grads and self._parts.last:
                self._begin()
            return
        join = self._joining()
        if join is not None and grads:
            join.announce(self)
        syncs = self.require_backward_grad_sync
        if join is not None and grads:
            join.announce_sync(syncs)
        if not syncs:
            self._armed = False
            return
        if self.training and self.broadcast_buffers:
            self._sync_buffers(join)
        if grads:
            self._check_all_came()
            if self._arrived and not self._ordered:
                self._reorder()
            self._begin()

    def _sync_buffers(self, join=None, goes_on=True):
        buffers = list(self.module.buffers())
        if buffers:
            self._broadcast(buffers, 0 if join is None else join.highest_of(goes_on))

    def _check_all_came(self):
        begun = self._armed and any(self._counts.values())
        if begun and self._next < len(self._buckets):
            missing = sorted(name for b in self._buckets for name in b.waiting)
            raise RuntimeError(
                "DistributedDataParallel: expected to have finished reduction in the prior iteration before starting a "
                f"new one: {missing[0]!r} and {len(missing) - 1} more got no gradient; requires_grad_(False) what is "
                "not used, pass find_unused_parameters=True, or call backward within no_sync()"
            )

    def _begin(self):
        self._hook = self._comm_hook
        for bucket in self._buckets:
            bucket.begin(whole=self._in_parts or self._hook is not None)
        self._here = []
        self._next = 0
        self._armed, self._finishing = True, False
        self._unused = set()
        self._fresh = set()
        if not self.gradient_as_bucket_view:
            self._fresh.update(*(bucket.without_gradients() for bucket in self._buckets))
        self._counts = {}
        if self.static_graph and self._static_counts is not None:
            self._mark_unused({name for name in self._trained if name not in self._static_counts})

    def _not_in_graph_of(self, output):
        reached, seen, stack = set(), set(), [t.grad_fn for t in _tensors(output) if t.grad_fn is not None]
        ids = {id(p): name for name, p in self._trained.items()}
        by_pointer = {p.data_ptr(): name for name, p in self._trained.items()}
        for t in _tensors(output):
            if id(t) in ids:  # a parameter that is the output
                reached.add(ids[id(t)])
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.name() == "AccumulateGrad":
                variable = node.variable
                name = ids.get(id(variable)) or by_pointer.get(variable.data_ptr())
                reached.add(name)
            stack.extend(n for n, _ in node.next_functions if n is not None)
        return set(self._trained) - reached

    def _mark_unused(self, names):
        self._unused = names
        for bucket in self._buckets:
            for name in bucket.names:
                if name in names:
                    bucket.take(name, self._trained[name])
                    bucket.waiting.discard(name)
        self._launch()

    def _came(self, name):
        """A parameter's gradient is there."""
        if not self._armed or not self.require_backward_grad_sync:
            return
        self._counts[name] = count = self._counts.get(name, 0) + 1
        if not self._finishing:
            self._finishing = True
            _core._queue_callback(self._finish)
        if not self._ordered:
            self._arrived.append(name)
        if self.static_graph:
            if self._static_counts is None or count < self._static_counts.get(name, 0):
                return  # the first backward shows how often it comes
        elif count > 1 or name in self._unused:
            raise RuntimeError(
                f"DistributedDataParallel: {name!r} was marked ready twice: its gradient came a second time in one "
                "backward, or after another backward of the same forward; static_graph=True allows the former"
            )
        self._send_off()
        bucket = self._bucket_of[name]
        if bucket.is_in_place(name):
            self._here.append(name)  # hooks that come after this one may look at it still
            return
        bucket.take(name, self._trained[name])
        bucket.waiting.discard(name)
        self._launch()

    def _send_off(self):
        for name in self._here:
            bucket = self._bucket_of[name]
            bucket.borrow(name, self._trained[name])
            bucket.waiting.discard(name)
        self._here = []
        self._launch()

    def _launch(self):
        # In one order everywhere, whatever the order in which gradients come.
        while self._next < len(self._buckets) and not self._buckets[self._next].waiting:
            bucket = self._buckets[self._next]
            self._next += 1
            self._reduce(bucket, self._next - 1)

    def _reduce(self, bucket, index):
        if self._in_parts:
            total = self._parts.summed(bucket)
            bucket.future = future_of(self.process_group._all_reduce(total, ReduceOp.SUM, True), total)
        elif self._hook is not None:
            state, hook = self._hook
            bucket.future = hook(state, GradBucket(bucket, index, index + 1 == len(self._buckets)))
        else:
            op = ReduceOp.AVG if self._shadow_divisor is None else ReduceOp.SUM
            bucket.future = future_of(self.process_group._all_reduce_coalesced(bucket.tensors(), op, True), None)

    @no_grad()
    def _finish(self):
        """At the end of a backward: the means become the gradients."""
        self._send_off()
        first_of_static = self.static_graph and self._static_counts is None
        if first_of_static:
            self._static_counts = dict(self._counts)
            self._unused = {name for name in self._trained if name not in self._counts}
            for bucket in self._buckets:
                for name, p in bucket.members:
                    bucket.take(name, p)
                bucket.waiting = set()
            self._launch()
        if self._next < len(self._buckets):
            return  # the next forward names what is missing
        unused = set()
        if self.find_unused_parameters or self.static_graph:
            unused = self._unused_everywhere()
        for bucket in self._buckets:
            self._settle(bucket)
            bucket.give(unused, self.gradient_as_bucket_view, self._fresh)
        self._finishing = False  # _armed stays: a second backward of this forward is an error, which _came tells

    def _settle(self, bucket):
        result = bucket.future.wait()
        bucket.future = None
        result = result[0] if isinstance(result, list) else result
        if self._in_parts:
            self._parts.settle(bucket, result)
        elif self._hook is not None:
            if result is not None and result.data_ptr() != bucket.flat.data_ptr():
                bucket.flat.copy_(result.reshape(bucket.flat.shape))
        elif self._shadow_divisor is not None:
            for t in bucket.tensors():
                t.div_(self._shadow_divisor)

    def _unused_everywhere(self):
        names = list(self._trained)
        used = _core.tensor([int(name not in self._unused) for name in names], dtype=_core.int32)
        self.process_group._all_reduce(used, ReduceOp.MAX, False)
        return {name for name, u in zip(names, used.tolist()) if not u}

    def _reorder(self):
        """The buckets in the order in which gradients came in rank 0's first backward."""
        index = {name: i for i, name in enumerate(self._trained)}
        order = [index[name] for name in dict.fromkeys(self._arrived)]
        order += [i for i in index.values() if i not in set(order)]
        ranks_order = _core.tensor(order, dtype=_core.int32)
        self.process_group._broadcast(ranks_order, 0, False)
        names = list(self._trained)
        kept = {name: p.grad.clone() for name, p in self._trained.items() if p.grad is not None}
        self._set_buckets([(names[i], self._trained[names[i]]) for i in ranks_order.tolist()])
        if self.gradient_as_bucket_view:
            for name, grad in kept.items():
                self._bucket_of[name].views[name].copy_(grad)
                self._trained[name].grad = self._bucket_of[name].views[name]
        self._ordered = True

    # What users set.

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

    def parts(self, count):
        """Yields the numbers of this process's parts of a step: a forward and a backward for each, then the optimizer.

            for part in model.parts(8):
                loss(model(x[part]), y[part]).backward()

        Gradients are then the mean over the count parts, a power of two that the number of processes divides, in the
        same bits for any number of them: sums are those of one binary tree, each part has random numbers of its own
        (dropout), buffers are part 0's. Gradients of 16 bits are added as float32. Every process must have as many
        threads (set_num_threads), since the sums of some kernels depend on it.
        parts_state_dict() is for the checkpoint.
        """
        parts = self._parts_of(count)
        if self._comm_hook is not None or self._joining() is not None:
            raise RuntimeError("DistributedDataParallel.parts: goes with neither a communication hook nor Join")
        self._in_parts = True
        try:
            yield from parts.step()
        finally:
            self._in_parts = False

    def _parts_of(self, count):
        if self._parts is None or self._parts.count != count:
            self._parts = Parts(self, count)
        return self._parts

    def parts_state_dict(self):
        """The number of parts and the state of each one's random numbers, the same in every process."""
        if self._parts is None:
            raise RuntimeError("DistributedDataParallel.parts_state_dict: no step has had parts")
        return self._parts.state_dict()

    def load_parts_state_dict(self, state):
        """Goes on from state, the parts_state_dict() of any number of processes."""
        self._parts_of(state["count"]).load_state_dict(state)

    def register_comm_hook(self, state, hook):
        """hook(state, bucket) takes the place of the mean: it gives a Future of the bucket's gradients.

        Once for a module. distributed.algorithms.ddp_comm_hooks has some.
        """
        if not callable(hook):
            raise TypeError(f"register_comm_hook: hook must be callable, got {type(hook).__name__}")
        if self._comm_hook is not None:
            raise RuntimeError("register_comm_hook: a module has one hook, and it has been registered")
        self._comm_hook = (state, hook)

    def _set_static_graph(self):
        self.static_graph = True

    # Uneven ends.

    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """Within it, processes may have different numbers of batches. divide_by_initial_world_size, enable and
        throw_on_early_termination are Join's."""
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def _joining(self):
        return getattr(self, "_join", None)

    def join_hook(self, **kwargs):
        return _ShadowOfTraining(self)

    @property
    def join_device(self):
        return next(self.module.parameters()).device

    @property
    def join_process_group(self):
        return self.process_group


class _ShadowOfTraining(JoinHook):
    """What a process that has no more batches does in each iteration of the others."""

    def __init__(self, ddp):
        self.ddp = ddp

    def main_hook(self):
        ddp = self.ddp
        join = ddp._joining()
        if not join.others_sync():
            return
        if ddp.training and ddp.broadcast_buffers:
            ddp._sync_buffers(join, goes_on=False)
        if ddp._arrived and not ddp._ordered:
            ddp._reorder()
        ddp._begin()
        ddp._unused = set(ddp._trained)
        for bucket in ddp._buckets:
            bucket.take_zeros()
        ddp._launch()
        if ddp.find_unused_parameters or ddp.static_graph:
            ddp._unused_everywhere()
        for bucket in ddp._buckets:
            ddp._settle(bucket)
        ddp._armed = False

    def post_hook(self, is_last_joiner):
        ddp = self.ddp
        source = ddp._joining().highest_of(is_last_joiner)
        ddp._broadcast([*ddp.module.parameters(), *ddp.module.buffers()], source)


def _tensors(value):
    if isinstance(value, _core.Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif hasattr(value, "__dataclass_fields__") or hasattr(value, "__dict__"):
        for v in vars(value).values() if hasattr(value, "__dict__") else ():
            if isinstance(v, (_core.Tensor, list, tuple, dict)):
                yield from _tensors(v)
