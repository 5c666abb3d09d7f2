"""Hooks for DistributedDataParallel.register_comm_hook: hook(state, bucket) gives a Future of the bucket's mean.

state: the process group, or None for the world.
"""

from .... import _core
from ..._calls import ReduceOp
from ..._futures import future_of
from ..._groups import _group


def allreduce_hook(process_group, bucket):
    """What DistributedDataParallel does without a hook."""
    group = _group("allreduce_hook", process_group)
    return _mean(group, bucket.buffer()).then(lambda f: f.value()[0])


def fp16_compress_hook(process_group, bucket):
    """Gradients travel as float16."""
    return _compressed("fp16_compress_hook", process_group, bucket, _core.float16)


def bf16_compress_hook(process_group, bucket):
    """Gradients travel as bfloat16."""
    return _compressed("bf16_compress_hook", process_group, bucket, _core.bfloat16)


def _mean(group, buffer):
    return future_of(group._all_reduce(buffer, ReduceOp.AVG, True), buffer)


def _compressed(op, process_group, bucket, dtype):
    buffer = bucket.buffer()
    small = buffer.to(dtype)

    def widened(future):
        buffer.copy_(future.value()[0])
        return buffer

    return _mean(_group(op, process_group), small).then(widened)
