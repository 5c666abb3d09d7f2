"""Parts of a step: training that ends in the same bits for any number of processes.

A step has a fixed number of parts, a power of two, of which every process does as many, neighbours in one process.
Gradients of the parts are added in one binary tree: the lower levels inside a process, the upper ones by all_reduce,
whose sums are a tree over the ranks. Each part has its own stream of random numbers; buffers are those of part 0.
"""

from ... import _core
from ..._random import default_generator, initial_seed
from ...autograd.grad_mode import no_grad

_WIDE = {_core.float16: _core.float32, _core.bfloat16: _core.float32}


def _is_power_of_two(n):
    return n > 0 and n & (n - 1) == 0


class Parts:
    """The parts of the steps of one DistributedDataParallel."""

    def __init__(self, ddp, count):
        size = ddp.process_group.size()
        if not isinstance(count, int) or not _is_power_of_two(count):
            raise ValueError(f"DistributedDataParallel.parts: count must be a power of two, got {count!r}")
        if not _is_power_of_two(size) or count % size:
            raise ValueError(
                f"DistributedDataParallel.parts: {count} parts need 1, 2, 4, ... {count} processes, got {size}"
            )
        self.ddp, self.count = ddp, count
        self.own = count // size
        self.first = ddp.process_group.rank() * self.own
        ddp.process_group._set_deterministic(True)  # on GPUs too, sums are those of the tree
        seed = _core.tensor([initial_seed() & (2**62 - 1)])
        ddp._broadcast([seed])
        # Some kernels' sums depend on the number of threads (oneDNN's gradients of a convolution's weights).
        self.threads = _core.get_num_threads()
        ranks_threads = _core.tensor([self.threads])
        ddp._broadcast([ranks_threads])
        if int(ranks_threads) != self.threads:
            raise RuntimeError(
                f"DistributedDataParallel.parts: every process must have as many threads, rank 0 has "
                f"{int(ranks_threads)}, this one {self.threads}; call set_num_threads in all"
            )
        self.states = {}
        now = default_generator.get_state()
        for part in range(self.first, self.first + self.own):
            default_generator.manual_seed((int(seed) + 0x9E3779B97F4A7C15 * (part + 1)) % 2**63)
            self.states[part] = default_generator.get_state()
        default_generator.set_state(now)
        self.held = {}  # bucket: {level of the tree: sum that waits for its other half}
        self.last = False  # the part under way is the last of this process

    def step(self):
        """Yields the numbers of this process's parts; gradients are there when it is exhausted."""
        ddp = self.ddp
        buffers = [b for b in ddp.module.buffers()]
        at_start = [b.detach().clone() for b in buffers]
        after_first = None
        self.held = {bucket: {} for bucket in ddp._buckets}
        for bucket in ddp._buckets:
            bucket.begin(whole=True)
        for i in range(self.own):
            part = self.first + i
            self.last = i + 1 == self.own
            for p in ddp._trained.values():
                p.grad = None
            outside = default_generator.get_state()
            default_generator.set_state(self.states[part])
            try:
                yield part
            finally:
                self.states[part] = default_generator.get_state()
                default_generator.set_state(outside)
            if part == 0:
                after_first = [b.detach().clone() for b in buffers]
            self._put(buffers, at_start)
            if not self.last:
                for bucket in ddp._buckets:
                    for name, p in bucket.members:
                        bucket.take(name, p)
                    self._carry(bucket)
        if not ddp._many:
            self._finish_alone()
        elif ddp._next < len(ddp._buckets):
            ddp._check_all_came()
            raise RuntimeError("DistributedDataParallel.parts: a part has had no backward")
        if after_first is not None:
            self._put(buffers, after_first)
        ddp._broadcast(buffers)

    @staticmethod
    @no_grad()
    def _put(tensors, values):
        for t, v in zip(tensors, values):
            t.detach().copy_(v)

    @no_grad()
    def _carry(self, bucket):
        levels, level = self.held[bucket], 0
        total = bucket.flat.to(_WIDE.get(bucket.flat.dtype, bucket.flat.dtype), copy=True)
        while level in levels:
            total = levels.pop(level) + total
            level += 1
        levels[level] = total

    @no_grad()
    def summed(self, bucket):
        """The tree's sum of this process's parts, of which the last one's gradients are in the bucket."""
        self._carry(bucket)
        ((level, total),) = self.held[bucket].items()
        self.held[bucket] = {}
        return total

    def _finish_alone(self):
        for bucket in self.ddp._buckets:
            for name, p in bucket.members:
                bucket.take(name, p)
            self.settle(bucket, self.summed(bucket))
            bucket.give((), self.ddp.gradient_as_bucket_view, bucket.names)

    @no_grad()
    def settle(self, bucket, total):
        """The mean over the parts, into the bucket."""
        bucket.flat.copy_(total / self.count)

    def state_dict(self):
        """What a checkpoint keeps: count, and the random state of every part, in every process."""
        from ...distributed._objects import all_gather_object

        group = self.ddp.process_group
        everyones = [None] * group.size()
        if group.size() > 1:
            all_gather_object(everyones, self.states, group)
        else:
            everyones = [self.states]
        return {
            "count": self.count,
            "threads": self.threads,
            "random": {part: s for states in everyones for part, s in states.items()},
        }

    def load_state_dict(self, state):
        """Goes on from state_dict(), in any number of processes that divides the parts."""
        if state["count"] != self.count:
            raise ValueError(
                f"DistributedDataParallel.parts: the checkpoint has {state['count']} parts, this training {self.count}"
            )
        if state["threads"] != self.threads:
            raise ValueError(
                f"DistributedDataParallel.parts: the checkpoint is of processes with {state['threads']} threads, this "
                f"one has {self.threads}: set_num_threads({state['threads']}) goes on in the same bits"
            )
        self.states = {part: state["random"][part].clone() for part in self.states}
