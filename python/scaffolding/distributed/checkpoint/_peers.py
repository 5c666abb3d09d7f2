"""The processes that save or load one checkpoint: each phase ends with all knowing whether it went well everywhere."""

from ... import _core
from .._groups import ProcessGroup, _group, _is_outside, _World
from .._objects import all_gather_object


class Peers:
    """A process group as a checkpoint needs it; without one, this process alone."""

    def __init__(self, group):
        self.group = group
        self.rank = 0 if group is None else group.rank()
        self.size = 1 if group is None else group.size()
        if self.size > 1 and group.name() == "fake":
            raise ValueError("checkpoint: the backend 'fake' has no processes to share the work with")

    def world_rank(self, rank):
        return rank if self.group is None else self.group._ranks[rank]

    def all_of(self, value):
        """Everyone's value, by rank."""
        values = [value]
        if self.size > 1:
            values = [None] * self.size
            all_gather_object(values, value, self.group)
        return values

    def phase(self, what, work, remedy):
        """work() in every process, and everyone's result. RuntimeError in all where it fails in one, naming its rank.

        An error is told as data: the group stays whole, and goes on to the next checkpoint.
        """
        value, error, cause = None, None, None
        try:
            value = work()
        except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as e:
            cause, error = e, f"{type(e).__name__}: {e}" if not str(e) else str(e)
        outcomes = self.all_of((error, value))
        failed = [(rank, error) for rank, (error, _) in enumerate(outcomes) if error is not None]
        if failed:
            rank, first = failed[0]
            more = f" ({len(failed) - 1} other ranks failed too)" if len(failed) > 1 else ""
            if self.size == 1 and isinstance(cause, (ValueError, TypeError)):
                raise cause
            raise RuntimeError(f"checkpoint: {what}: rank {self.world_rank(rank)}: {first}{more}; {remedy}") from cause
        return [value for _, value in outcomes]


def peers_of(op, process_group):
    """Those of a group, or of the world where one has been made; None for a process outside of the group."""
    if _is_outside(process_group):
        return None
    if process_group is None and _World.group is None:
        return Peers(None)
    return Peers(_group(op, process_group))


def beside(peers):
    """The same processes in a group of their own, for a thread that works while training goes on."""
    if peers.size == 1:
        return peers
    group = peers.group
    label = f"{group.group_name}, checkpoints"
    made = _World.beside.get(label)
    if made is None:
        made = _World.beside[label] = ProcessGroup(
            group.name(), _World.store, group.rank(), group.size(), group._timeout, group._ranks, label
        )
    return Peers(made)


def bytes_of(tensor):
    """The bytes of a tensor as an array of uint8, without a copy where it lies on the CPU in one piece."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(_core.uint8).numpy()
