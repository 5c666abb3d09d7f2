"""Collective calls, and sends from one process to another."""

from .. import _core
from ._groups import _group, _is_outside, get_group_rank
from ._stores import _seconds

ReduceOp = _core._distributed.ReduceOp
Work = _core._distributed.Work


def _wait_for_work(self, timeout=None):
    """Returns True when the call is done; raises what it raised. timeout: a timedelta or seconds."""
    self._wait(_seconds("Work.wait", timeout, 0.0))
    return True


Work.wait = _wait_for_work


def _given(op, work, async_op):
    return work if async_op else None


def _rank_in(op, what, group, rank, group_rank, otherwise=None):
    """A rank in the group, of one in the world or in the group; where neither is given, of `otherwise` in the world."""
    if rank is None and group_rank is None:
        rank = otherwise
    if (rank is None) == (group_rank is None):
        raise ValueError(f"{op}: needs {what} or group_{what}, one of them")
    return get_group_rank(group, rank) if group_rank is None else group_rank


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Puts the tensors of all processes together, in place: all hold the same bits afterwards.

    Args:
        tensor: on the CPU or a GPU, as the group's backend has it
        op: a ReduceOp: SUM, AVG, PRODUCT, MIN, MAX ...
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for

    >>> loss = sf.tensor([3., 5.])
    >>> sf.distributed.all_reduce(loss, sf.distributed.ReduceOp.AVG)
    >>> loss
    tensor([3., 5.])
    """
    if _is_outside(group):
        return None
    return _given("all_reduce", _group("all_reduce", group)._all_reduce(tensor, op, async_op), async_op)


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """all_reduce of several tensors of one dtype and device, which on CPUs travel together from where they lie.

    Their number and sizes are the same in every process.

    Args:
        op: a ReduceOp
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
    """
    if _is_outside(group):
        return None
    g = _group("all_reduce_coalesced", group)
    return _given("all_reduce_coalesced", g._all_reduce_coalesced(list(tensors), op, async_op), async_op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Puts each process's tensor together in that of dst.

    Args:
        op: a ReduceOp
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
        group_dst: dst as a rank of the group, instead of dst
    """
    if _is_outside(group):
        return None
    g = _group("reduce", group)
    return _given("reduce", g._reduce(tensor, _rank_in("reduce", "dst", g, dst, group_dst), op, async_op), async_op)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The values of process src's tensor, into everyone's.

    Args:
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
        group_src: src as a rank of the group, instead of src

    >>> weight = sf.ones(2)
    >>> sf.distributed.broadcast(weight, src=0)
    """
    if _is_outside(group):
        return None
    g = _group("broadcast", group)
    return _given(
        "broadcast", g._broadcast(tensor, _rank_in("broadcast", "src", g, src, group_src), async_op), async_op
    )


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """tensor_list[i] becomes the tensor of process i; they have its size and dtype.

    Args:
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for

    >>> found = [sf.zeros(2) for _ in range(sf.distributed.get_world_size())]
    >>> sf.distributed.all_gather(found, sf.ones(2))
    >>> found
    [tensor([1., 1.])]
    """
    if _is_outside(group):
        return None
    return _given("all_gather", _group("all_gather", group)._all_gather(list(tensor_list), tensor, async_op), async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all processes one after the other, or stacked: output has as many numbers as all inputs.

    Args:
        output_tensor: of as many numbers as all inputs
        input_tensor: of one size and dtype in all processes
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
    """
    if _is_outside(group):
        return None
    g = _group("all_gather_into_tensor", group)
    return _given("all_gather_into_tensor", g._all_gather_into_tensor(output_tensor, input_tensor, async_op), async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """The sum of all processes' inputs, of which each gets its part.

    Args:
        output: of a part of input's numbers
        input: of a multiple of the processes' number
        op: a ReduceOp
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
    """
    if _is_outside(group):
        return None
    g = _group("reduce_scatter_tensor", group)
    return _given("reduce_scatter_tensor", g._reduce_scatter_tensor(output, input, op, async_op), async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """reduce_scatter_tensor of a list with a tensor for each process.

    Args:
        output: of the size of one of the list
        input_list: a tensor for each process
        op: a ReduceOp
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
    """
    if _is_outside(group):
        return None
    return reduce_scatter_tensor(output, _core.cat([t.reshape(-1) for t in input_list], 0), op, group, async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Rows of input go to every process, rows of output come from each; equal parts without split sizes.

    Args:
        output_split_sizes, input_split_sizes: rows that come from, and go to, each process; None: equal parts
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
    """
    if _is_outside(group):
        return None
    g = _group("all_to_all_single", group)
    work = g._all_to_all_single(output, input, list(output_split_sizes or []), list(input_split_sizes or []), async_op)
    return _given("all_to_all_single", work, async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """input_tensor_list[i] becomes output_tensor_list[this rank] of process i.

    Args:
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
    """
    if _is_outside(group):
        return None
    g = _group("all_to_all", group)
    if len(output_tensor_list) != g.size() or len(input_tensor_list) != g.size():
        raise ValueError(
            f"all_to_all: needs a tensor for each of {g.size()} processes, got {len(output_tensor_list)} and "
            f"{len(input_tensor_list)}"
        )
    own = g.rank()
    output_tensor_list[own].copy_(input_tensor_list[own])
    others = [(own + i) % g.size() for i in range(1, g.size())]
    works = [g._irecv(output_tensor_list[i], i, 0) for i in others]
    works += [g._isend(input_tensor_list[i], i, 0) for i in others]
    works = _Works(works)
    return works if async_op else works.wait() and None


class _Works:
    """Several works as one."""

    def __init__(self, works):
        self._works = works

    def wait(self, timeout=None):
        return all([work.wait(timeout) for work in self._works])

    def is_completed(self):
        return all(work.is_completed() for work in self._works)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """gather_list[i] of process dst becomes the tensor of process i.

    Args:
        gather_list: a tensor for each process, at dst; None elsewhere
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
        group_dst: dst as a rank of the group, instead of dst
    """
    if _is_outside(group):
        return None
    g = _group("gather", group)
    root = _rank_in("gather", "dst", g, dst, group_dst, otherwise=0)
    return _given("gather", g._gather(tensor, list(gather_list or []), root, async_op), async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """tensor becomes scatter_list[this rank] of process src.

    Args:
        scatter_list: a tensor for each process, at src; None elsewhere
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
        group_src: src as a rank of the group, instead of src
    """
    if _is_outside(group):
        return None
    g = _group("scatter", group)
    root = _rank_in("scatter", "src", g, src, group_src, otherwise=0)
    return _given("scatter", g._scatter(tensor, list(scatter_list or []), root, async_op), async_op)


def barrier(group=None, async_op=False, device_ids=None):
    """Returns when every process has called it.

    Args:
        group: the processes that take part; None: all
        async_op: whether it returns at once, with a Work to wait for
        device_ids: changes nothing
    """
    if _is_outside(group):
        return None
    return _given("barrier", _group("barrier", group)._barrier(async_op), async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier that names who has not come: the first of them, or all with wait_all_ranks.

    Args:
        group: the processes that take part; None: all
        timeout: a timedelta or seconds; None: the group's
    """
    if _is_outside(group):
        return
    g = _group("monitored_barrier", group)
    g._monitored_barrier(_seconds("monitored_barrier", timeout, g._timeout), bool(wait_all_ranks))


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Begins to send a tensor to process dst.

    Args:
        group: the processes that take part; None: all
        tag: which irecv it is for
        group_dst: dst as a rank of the group, instead of dst
    """
    if _is_outside(group):
        return None
    g = _group("isend", group)
    return g._isend(tensor, _rank_in("isend", "dst", g, dst, group_dst), tag)


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Begins to receive a tensor from process src.

    Args:
        group: the processes that take part; None: all
        tag: which isend it waits for
        group_src: src as a rank of the group, instead of src
    """
    if _is_outside(group):
        return None
    g = _group("irecv", group)
    return g._irecv(tensor, _rank_in("irecv", "src", g, src, group_src), tag)


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends a tensor to process dst.

    Args:
        group: the processes that take part; None: all
        tag: which recv it is for
        group_dst: dst as a rank of the group, instead of dst
    """
    if work := isend(tensor, dst, group, tag, group_dst):
        work.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives a tensor from process src, whose rank it returns.

    Args:
        group: the processes that take part; None: all
        tag: which send it waits for
        group_src: src as a rank of the group, instead of src
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return src if src is not None else _group("recv", group)._ranks[group_src]


class P2POp:
    """A send or receive of tensor for batch_isend_irecv: op is isend or irecv, peer the other's rank, group_peer its
    rank in group instead; tag: which of the other's it meets."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError(f"P2POp: op must be isend or irecv of scaffolding.distributed, got {op!r}")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list):
    """Begins sends and receives, a p2p_op_list of P2POp, in any order; their works."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv: needs a list of P2POp, one or more")
    # Receives first: what comes finds its place.
    works = {}
    for op in (irecv, isend):
        for i, p in enumerate(p2p_op_list):
            if p.op is op:
                works[i] = op(p.tensor, p.peer, p.group, p.tag, p.group_peer)
    return [works[i] for i in range(len(p2p_op_list)) if works[i] is not None]
