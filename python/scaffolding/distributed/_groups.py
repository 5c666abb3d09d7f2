"""The world and its parts: who is a member of which group."""

import os

from .. import _core
from ._stores import Store, _seconds

ProcessGroup = _core._distributed.ProcessGroup

_HALF_AN_HOUR = 1800.0


class _World:
    """What init_process_group has made."""

    group = None
    store = None
    device_backend = ""  # of its tensors on GPUs
    groups = 0  # how many have been made by new_group, in members and in the others: it names the next one
    parts = ()  # groups of new_group that this process is in
    beside = {}  # groups of checkpoints that are written while training goes on, by name
    saves = []  # Futures of checkpoints that are under way


class GroupMember:
    """WORLD: the group of all processes; NON_GROUP_MEMBER: what new_group gives to those who are no members."""

    NON_GROUP_MEMBER = -100

    @property
    def WORLD(self):
        return _World.group


group = GroupMember()


def is_available():
    """True: every build has it."""
    return True


def is_initialized():
    """Whether init_process_group has been called."""
    return _World.group is not None


def is_backend_available(backend):
    """Whether the library of a backend is here."""
    return _core._distributed._engine_available(backend.lower())[0]


def is_gloo_available():
    """Whether the backend gloo is here."""
    return is_backend_available("gloo")


def is_mpi_available():
    """Whether the backend mpi is here."""
    return is_backend_available("mpi")


def is_nccl_available():
    """Whether the backend nccl is here."""
    return is_backend_available("nccl")


def is_torchelastic_launched():
    """Whether torchrun, or scaffolding launch, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _backends_of(op, backend):
    """The backends for tensors of CPUs and of GPUs in 'gloo', 'nccl', 'cpu:gloo,cuda:nccl' or None; "" for none."""
    if backend is None or backend == "undefined":
        return "gloo", "nccl"
    if not isinstance(backend, str):
        raise TypeError(f"{op}: backend must be a str, got {type(backend).__name__}")
    if backend.lower() == "nccl":
        return "gloo", "nccl"  # what is not a tensor, and addresses, travel by the CPU
    if ":" not in backend:
        return backend.lower(), ""
    parts = {}
    for part in backend.lower().split(","):
        device, colon, name = part.partition(":")
        if not colon or device not in ("cpu", "cuda") or not name or device in parts:
            raise ValueError(f"{op}: backend must be a name or 'cpu:name,cuda:name', got {backend!r}")
        parts[device] = name
    if "cpu" not in parts:
        raise ValueError(f"{op}: backend {backend!r} names none for tensors of CPUs; add 'cpu:gloo'")
    return parts["cpu"], parts.get("cuda", "")


def _needs(op, device_backend, backend):
    """What was named must be there; what is the default is missed by the first tensor that needs it."""
    if device_backend == "nccl" and backend not in (None, "undefined"):
        found, why = _core._distributed._engine_available("nccl")
        if not found:
            raise RuntimeError(f"{op}: backend 'nccl' is not available: {why}")


def init_process_group(
    backend=None,
    init_method=None,
    timeout=None,
    world_size=-1,
    rank=-1,
    store=None,
    group_name="",
    pg_options=None,
    device_id=None,
    deterministic=False,
):
    """Joins the processes; returns when all have come. To be called once in each, before anything else here.

    backend: "gloo", "mpi" or "fake"; None is "cpu:gloo,cuda:nccl", as is "nccl". init_method: "env://" takes what
    torchrun, mpirun or srun have set, "tcp://address:port" says where rank 0 serves the store, "file:///path" names a
    file that all reach. Or a store, with rank and world_size. timeout: a timedelta or seconds, for joining and for each
    call (half an hour). group_name: for messages. pg_options, device_id: change nothing. deterministic: sums on GPUs
    are those of the tree over the ranks too, at the price of memory and time.

    >>> sf.distributed.init_process_group("gloo", init_method="env://")  # doctest: +SKIP
    >>> sf.distributed.get_rank(), sf.distributed.get_world_size()  # in the second of two  # doctest: +SKIP
    (1, 2)
    """
    if _World.group is not None:
        raise ValueError("init_process_group: trying to initialize the default process group twice")
    name, device_backend = _backends_of("init_process_group", backend)
    _needs("init_process_group", device_backend, backend)
    seconds = _seconds("init_process_group", timeout, _HALF_AN_HOUR)
    if store is not None:
        if init_method is not None:
            raise ValueError("init_process_group: takes init_method or store, not both")
        if not isinstance(store, Store):
            raise TypeError(f"init_process_group: store must be a Store, got {type(store).__name__}")
        if rank < 0 or world_size < 1:
            raise ValueError("init_process_group: with a store, rank and world_size must be given")
    elif name == "fake" and init_method is None and rank >= 0 and world_size > 0:
        store = _core._distributed.HashStore()
    else:
        _core._distributed._check_backend(name)  # before anything is waited for
        store, rank, world_size = _core._distributed._rendezvous(init_method or "env://", rank, world_size, seconds)
    _World.group = ProcessGroup(name, store, rank, world_size, seconds, [], group_name or "world", device_backend)
    _World.group._set_deterministic(bool(deterministic))
    _World.device_backend = device_backend
    _World.store, _World.groups, _World.parts = store, 0, []


def destroy_process_group(group=None):
    """Leaves the group; without one, all of them and the world."""
    left = _group("destroy_process_group", group)
    if left is not _World.group:
        left._close()
        _World.parts = [p for p in _World.parts if p is not left]
        return
    from .checkpoint import _wait_for_saves

    _wait_for_saves()
    for part in [*_World.parts, *_World.beside.values(), left]:
        part._close()
    _World.group = _World.store = None
    _World.parts, _World.beside = (), {}


def new_group(
    ranks=None,
    timeout=None,
    backend=None,
    pg_options=None,
    use_local_synchronization=False,
    group_desc=None,
    device_id=None,
):
    """A group of some of the processes, by their ranks in the world; all of the world must call it, in one order.

    What it gives to those who are not in ranks may be passed to the calls here, which then do nothing. timeout and
    backend are init_process_group's; None: the world's. pg_options, use_local_synchronization, group_desc, device_id:
    change nothing.

    >>> group = sf.distributed.new_group(ranks=[0])
    >>> sf.distributed.get_world_size(group)
    1
    """
    world = _group("new_group", None)
    ranks = list(range(world.size())) if ranks is None else [int(r) for r in ranks]
    if len(set(ranks)) != len(ranks) or not ranks or min(ranks) < 0 or max(ranks) >= world.size():
        raise ValueError(f"new_group: ranks must be different ones of 0 to {world.size() - 1}, got {ranks}")
    ranks.sort()
    name, device_backend = world.name(), _World.device_backend
    if backend is not None:
        name, device_backend = _backends_of("new_group", backend)
        _needs("new_group", device_backend, backend)
    seconds = _seconds("new_group", timeout, world._timeout)
    label = f"group {_World.groups}"
    _World.groups += 1
    made = None
    if world.rank() in ranks:
        rank = ranks.index(world.rank())
        made = ProcessGroup(name, _World.store, rank, len(ranks), seconds, ranks, label, device_backend)
        _World.parts.append(made)
    if world._device_begun() and device_backend:
        world._share_device(made)  # the GPUs know each other: a part of them needs no new meeting
    return GroupMember.NON_GROUP_MEMBER if made is None else made


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """The world in groups of group_size neighbours: (the one of this process, all of them). group: the world. timeout,
    backend, pg_options and group_desc are new_group's."""
    world = _group("new_subgroups", group)
    if group_size is None or group_size < 1 or world.size() % group_size:
        raise ValueError(f"new_subgroups: group_size must divide the {world.size()} processes, got {group_size}")
    made = [new_group(range(at, at + group_size), timeout, backend) for at in range(0, world.size(), group_size)]
    return made[world.rank() // group_size], made


def _group(op, group):
    if group is not None:
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"{op}: group must be a ProcessGroup, got {type(group).__name__}")
        return group
    if _World.group is None:
        raise ValueError(
            f"{op}: default process group has not been initialized, please make sure to call init_process_group"
        )
    return _World.group


def _is_outside(group):
    return isinstance(group, int) and group == GroupMember.NON_GROUP_MEMBER


def get_rank(group=None):
    """The number of this process in the group, from 0; -1 outside of it.

    >>> sf.distributed.get_rank()
    0
    """
    return -1 if _is_outside(group) else _group("get_rank", group).rank()


def get_world_size(group=None):
    """How many processes the group has; -1 outside of it.

    >>> sf.distributed.get_world_size()
    1
    """
    return -1 if _is_outside(group) else _group("get_world_size", group).size()


def get_backend(group=None):
    """The name of the group's backend."""
    return _group("get_backend", group).name()


def get_process_group_ranks(group):
    """The ranks in the world of the group's processes, by their ranks in it."""
    return list(_group("get_process_group_ranks", group)._ranks)


def get_global_rank(group, group_rank):
    """The rank in the world of a group's process with group_rank in it."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: group_rank must be 0 to {len(ranks) - 1}, got {group_rank}")
    return ranks[group_rank]


def get_group_rank(group, global_rank):
    """The rank in the group of the process with global_rank in the world."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ValueError(f"get_group_rank: rank {global_rank} is not in the group of the ranks {ranks}")
    return ranks.index(global_rank)


def get_node_local_rank(fallback_rank=None):
    """The number of this process on its machine, as the launcher says it; else fallback_rank. RuntimeError without
    both."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("get_node_local_rank: LOCAL_RANK is not set; use a launcher, or pass fallback_rank")
