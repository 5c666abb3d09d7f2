"""Processes that work on one model together, under torch.distributed's names.

Bytes are moved by a backend: "gloo" or "mpi" between CPUs, "fake" without peers. Sums are those of a binary tree over
the ranks, the same bits everywhere. Examples print what a group of one process gives.
"""

from .. import _core
from .._documents import add_to as _add_document
from .._missing import help_modules
from ._calls import (
    P2POp,
    Work,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from ._groups import (
    GroupMember,
    _group,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
)
from ._objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list, send_object_list
from ._objects import recv_object_list
from ._stores import TCPStore
from ._futures import Future
from . import algorithms, checkpoint, device_mesh
from .device_mesh import DeviceMesh, init_device_mesh

ReduceOp = _core._distributed.ReduceOp
ProcessGroup = _core._distributed.ProcessGroup
Store = _core._distributed.Store
HashStore = _core._distributed.HashStore
FileStore = _core._distributed.FileStore
PrefixStore = _core._distributed.PrefixStore
_add_document(HashStore, "classes")

help_modules()  # this one is imported after the others
