"""Join: processes with different numbers of batches in one loop."""

from ... import _core
from .._calls import ReduceOp


class JoinHook:
    """What a process that has no more batches does for one Joinable."""

    def main_hook(self):
        """In each iteration of the others: the collective calls that they make."""

    def post_hook(self, is_last_joiner):
        """After all have ended; is_last_joiner: whether this process was among the last."""


class Joinable:
    """What can be in a Join: it announces each iteration to the other processes."""

    def join_hook(self, **kwargs):
        raise NotImplementedError

    @property
    def join_device(self):
        raise NotImplementedError

    @property
    def join_process_group(self):
        raise NotImplementedError


class Join:
    """with Join([model]): a loop whose end may come at different times in the processes. joinables: what takes part in
    it. enable=False: changes nothing.

    Who has ended goes on with the collective calls of the others, with gradients of zero, until all have; then every
    process has the model of those who were last. divide_by_initial_world_size: means are over all processes, else over
    those that still have batches. throw_on_early_termination: instead, all raise a RuntimeError when one ends.
    """

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        if not joinables:
            raise ValueError("Join: needs one Joinable or more")
        groups = {id(j.join_process_group): j.join_process_group for j in joinables}
        if len(groups) != 1:
            raise ValueError("Join: all Joinables must be of one process group")
        self._joinables = list(joinables)
        self._group = next(iter(groups.values()))
        self._enabled = enable and self._group.size() > 1
        self._throws = throw_on_early_termination
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        self._hooks = [j.join_hook(**kwargs) for j in self._joinables]

    def __enter__(self):
        if self._enabled:
            for j in self._joinables:
                j._join = self
        return self

    def __exit__(self, kind, error, trace):
        if not self._enabled:
            return
        try:
            if kind is None:
                self._go_along()
        finally:
            for j in self._joinables:
                j._join = None
                j._shadow_divisor = None

    def _count(self, number):
        count = _core.tensor([number], dtype=_core.int64)
        self._group._all_reduce(count, ReduceOp.SUM, False)
        return int(count)

    def _go_along(self):
        is_last = True
        while alive := self._count(0):
            is_last = False
            if self._throws:
                self._raise()
            self._set_divisor(alive)
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last)

    def _raise(self):
        raise RuntimeError("Join: a process has no more batches, and throw_on_early_termination is set")

    def _set_divisor(self, alive):
        for j in self._joinables:
            j._shadow_divisor = None if self._divides_by_all else alive

    # Called by Joinables; those that have ended make the calls too, from _go_along and the hooks.

    def announce(self, joinable):
        """This process begins an iteration of joinable."""
        if joinable is not self._joinables[0]:
            return
        alive = self._count(1)
        if self._throws and alive < self._group.size():
            self._raise()
        self._set_divisor(alive)

    def announce_sync(self, syncs):
        """Whether gradients of this iteration travel (syncs): in all processes that go on alike."""
        self._count(int(syncs))

    def others_sync(self):
        """Whether gradients of the others' iteration travel, for one that has ended."""
        return self._count(0) > 0

    def highest_of(self, here):
        """The highest rank of those that say so (here): of those that go on, or were the last."""
        most = _core.tensor([self._group.rank() if here else -1], dtype=_core.int64)
        self._group._all_reduce(most, ReduceOp.MAX, False)
        return int(most)
