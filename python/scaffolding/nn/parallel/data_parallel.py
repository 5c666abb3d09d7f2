"""DataParallel: a module on the devices of one process."""

from ... import _core
from ..._documents import add_to
from ..module import Module


class DataParallel(Module):
    """Calls the module on a device: with tensors moved there, or, where there is no GPU, as it is.

    device_ids: numbers of GPUs or devices, one at most; every GPU where it is None. For several, NotImplementedError: a
    process for each and DistributedDataParallel, which PyTorch advises too, is what trains on them.

    >>> nn.DataParallel(nn.Linear(2, 3))(sf.ones(1, 2)).shape
    scaffolding.Size([1, 3])
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        if not isinstance(module, Module):
            raise TypeError(f"DataParallel: module must be an nn.Module, got {type(module).__name__}")
        if device_ids is None:
            device_ids = range(_core._device_count("cuda")) if _core._backend_available("cuda")[0] else ()
        devices = [_core.device(f"cuda:{d}") if isinstance(d, int) else _core.device(d) for d in device_ids]
        if len(devices) > 1:
            raise NotImplementedError(
                f"DataParallel: one device for a process, got {len(devices)}; start a process for each and use "
                "DistributedDataParallel"
            )
        self.dim = dim
        self.device_ids = devices
        self.module = module.to(devices[0]) if devices else module

    def forward(self, *inputs, **kwargs):
        if self.device_ids:
            inputs, kwargs = _moved(inputs, self.device_ids[0]), _moved(kwargs, self.device_ids[0])
        return self.module(*inputs, **kwargs)


def _moved(value, device):
    if isinstance(value, _core.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {k: _moved(v, device) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(v, device) for v in value)
    return value


add_to(DataParallel, "nn")
