"""What torch.distributed has under this name: Join, and communication hooks of DistributedDataParallel."""

from . import ddp_comm_hooks
from .join import Join, Joinable, JoinHook
