"""Checkpoints that all processes write and read together, under torch.distributed.checkpoint's names.

A checkpoint is a folder of ordinary safetensors files, those of a top-level key of the state dict in one set
(`model.safetensors`, or `model-00001-of-00002.safetensors` and so on with `model.safetensors.index.json`), and
`manifest.json` with everything else. Each process writes its own bytes into them; any number of processes reads it.
The folder takes its name, or the place of an older checkpoint, in one step at the very end.
"""

import concurrent.futures

from .._groups import _World
from ._peers import beside, peers_of
from ._reading import Checkpoint, Loading, whole_state
from ._tree import Rows
from ._writing import Saving

__all__ = ["Rows", "async_save", "load", "load_state_dict", "save"]

_SHARD_BYTES = 5_000_000_000  # as save_pretrained's max_shard_size="5GB"


def _saving(op, peers, state_dict, checkpoint_id, gather, max_shard_bytes):
    if checkpoint_id is None:
        raise ValueError(f"checkpoint.{op}: checkpoint_id must name a folder")
    if not isinstance(max_shard_bytes, int) or max_shard_bytes < 1:
        raise ValueError(
            f"checkpoint.{op}: max_shard_bytes must be a positive number of bytes, got {max_shard_bytes!r}"
        )
    saving = Saving(peers, state_dict, checkpoint_id, bool(gather), max_shard_bytes)
    saving.agree()
    return saving


def save(state_dict, checkpoint_id=None, *, process_group=None, gather=False, max_shard_bytes=_SHARD_BYTES):
    """Writes a checkpoint from all processes; to be called in each. Returns the folder's path once it is whole.

    state_dict: nested dicts and lists of tensors, of Rows where a process holds some rows of a tensor, and of numbers,
    strings, None and lists of them. Tensors that several processes have are taken to be alike, and divided among them;
    values are those of the lowest rank that has them. checkpoint_id: a folder that all processes reach; a checkpoint
    that is there already is replaced as a whole. gather: without such a folder; rank 0 writes what the others send it.
    max_shard_bytes: of a file. process_group: the processes; None: all. Without any group, this process does it
    alone.

    RuntimeError in every process where one cannot write, naming its rank, the file and what to do; what was written
    until then is gone, and the checkpoint that was there before is whole.

    >>> path = sf.distributed.checkpoint.save({"model": nn.Linear(4, 2).state_dict(), "step": 7}, "checkpoint")
    """
    peers = peers_of("checkpoint.save", process_group)
    if peers is None:
        return None
    _wait_for_saves()  # which may be into the same folder
    return _saving("save", peers, state_dict, checkpoint_id, gather, max_shard_bytes).run()


def async_save(state_dict, checkpoint_id=None, *, process_group=None, gather=False, max_shard_bytes=_SHARD_BYTES):
    """save() by a thread: returns a concurrent.futures.Future of the folder's path, once this process has a copy of
    what it writes. Training may go on then. One that is under way is waited for before; its error is its Future's.

    Every process has a copy of its own part, that of the whole state divided by their number. state_dict,
    checkpoint_id, process_group, gather and max_shard_bytes are save's.

    >>> future = sf.distributed.checkpoint.async_save({"weight": sf.ones(2)}, "checkpoint")
    >>> future.result().endswith("checkpoint")
    True
    """
    peers = peers_of("checkpoint.async_save", process_group)
    if peers is None:
        return None
    peers = beside(peers)
    _wait_for_saves()
    saving = _saving("async_save", peers, state_dict, checkpoint_id, gather, max_shard_bytes)
    saving.hold()
    thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
    future = thread.submit(saving.run)
    thread.shutdown(wait=False)
    _World.saves.append(future)
    return future


def load(state_dict, checkpoint_id=None, *, process_group=None, gather=False):
    """Fills state_dict in place from the checkpoint in the folder checkpoint_id, in all processes, of any number; to be
    called in each. process_group: the processes; None: all.

    Tensors get their values, Rows the rows that they say, and values are put in their places. Each process reads what
    it needs of it and checks it. gather: where rank 0 alone reaches the folder; it sends the others what they need.

    RuntimeError in every process where one finds something missing or damaged, naming its rank, the file and what to
    do. Some tensors may have their new values then, and others not.

    >>> model = nn.Linear(4, 2)
    >>> path = sf.distributed.checkpoint.save({"model": model.state_dict(), "step": 7}, "checkpoint")
    >>> state = {"model": model.state_dict(), "step": 0}
    >>> sf.distributed.checkpoint.load(state, "checkpoint")
    >>> state["step"]
    7
    """
    if checkpoint_id is None:
        raise ValueError("checkpoint.load: checkpoint_id must name a folder")
    peers = peers_of("checkpoint.load", process_group)
    if peers is not None:
        Loading(peers, state_dict, checkpoint_id, bool(gather)).run()


def load_state_dict(checkpoint_id, keys=None):
    """A new state dict of the checkpoint in the folder checkpoint_id, on the CPU, read by this process alone: where
    there is none yet to be filled.

    keys: of its top level, or longer names with dots; without them, everything. Tuples with tensors in them are lists.

    >>> path = sf.distributed.checkpoint.save({"weight": sf.ones(2), "step": 7}, "checkpoint")
    >>> sf.distributed.checkpoint.load_state_dict("checkpoint")
    {'weight': tensor([1., 1.]), 'step': 7}
    """
    with Checkpoint(checkpoint_id) as checkpoint:
        return whole_state(checkpoint, None if keys is None else [str(key) for key in keys])


def _wait_for_saves():
    """What is under way ends; its errors stay in its Future."""
    concurrent.futures.wait(_World.saves)
    _World.saves = []
