"""Processes that train one model together, under torch.distributed's names.

The processes are joined by TCP in a ring (scaffolding/distributed/process_group.h);
tensors of a GPU travel through the memory of its host.
"""

import datetime
import os

from .. import _core

ReduceOp = _core._distributed.ReduceOp
ProcessGroup = _core._distributed.ProcessGroup

_world = None


def is_available():
    """True: every build has it."""
    return True


def is_initialized():
    """Whether init_process_group has been called."""
    return _world is not None


def _from_environment(what, names):
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    raise ValueError(
        f"init_process_group: {what} is not given and none of {', '.join(names)} is set; use torchrun, mpirun or srun, "
        "or pass it"
    )


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1):
    """Joins the processes; returns when all have come. To be called once in each, before anything else here.

    backend: "tcp", or "gloo" for scripts that say so. init_method: "env://" takes MASTER_ADDR and MASTER_PORT
    (127.0.0.1 and 29500 where they are not set), "tcp://address:port" says where rank 0 listens. rank, world_size: else
    from RANK and WORLD_SIZE, as torchrun sets them, or mpirun's and srun's. timeout: a timedelta or seconds, for
    joining and for each call (half an hour).
    """
    global _world
    if _world is not None:
        raise ValueError("init_process_group: trying to initialize the default process group twice")
    if backend not in (None, "tcp", "gloo"):
        raise ValueError(f"init_process_group: backend must be 'tcp' or 'gloo', got {backend!r}")
    method = init_method or "env://"
    if method == "env://":
        address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", 29500))
    elif method.startswith("tcp://") and method.rpartition(":")[2].isdigit():
        address, _, port = method.removeprefix("tcp://").rpartition(":")
        address = address.strip("[]")
    else:
        raise ValueError(f"init_process_group: init_method must be 'env://' or 'tcp://address:port', got {method!r}")
    if rank < 0:
        rank = _from_environment("rank", ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
    if world_size < 0:
        world_size = _from_environment("world_size", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"])
    seconds = (
        timeout.total_seconds()
        if isinstance(timeout, datetime.timedelta)
        else 1800.0
        if timeout is None
        else float(timeout)
    )
    _world = ProcessGroup(address, int(port), rank, world_size, seconds)


def destroy_process_group(group=None):
    """Leaves the group."""
    global _world
    _group("destroy_process_group", group)
    _world = None


def _group(op, group):
    if group is not None:
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"{op}: group must be a ProcessGroup, got {type(group).__name__}")
        return group
    if _world is None:
        raise ValueError(
            f"{op}: default process group has not been initialized, please make sure to call init_process_group"
        )
    return _world


def _finish(op, async_op):
    if async_op:
        raise NotImplementedError(f"{op}: async_op=True is not supported")


def get_rank(group=None):
    """The number of this process, from 0."""
    return _group("get_rank", group).rank()


def get_world_size(group=None):
    """How many processes there are."""
    return _group("get_world_size", group).size()


def get_backend(group=None):
    """ "tcp"."""
    _group("get_backend", group)
    return "tcp"


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Puts the tensors of all processes together, in place: all hold the same bits afterwards."""
    _finish("all_reduce", async_op)
    _group("all_reduce", group).all_reduce(tensor, op)


def broadcast(tensor, src, group=None, async_op=False):
    """The values of process src's tensor, into everyone's."""
    _finish("broadcast", async_op)
    _group("broadcast", group).broadcast(tensor, src)


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """tensor_list[i] becomes the tensor of process i; they have its size and dtype."""
    _finish("all_gather", async_op)
    _group("all_gather", group).all_gather(list(tensor_list), tensor)


def barrier(group=None, async_op=False):
    """Returns when every process has called it."""
    _finish("barrier", async_op)
    _group("barrier", group).barrier()
