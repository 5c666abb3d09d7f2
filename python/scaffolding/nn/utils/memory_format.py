"""Convolutions' weights in another memory format."""

from ... import _core


def _convert(module, memory_format, *layers):
    for m in module.modules():
        if isinstance(m, layers):
            m.weight.data = m.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Lays the weights of Conv2d and ConvTranspose2d below a module out anew, in memory_format. Returns the module."""
    return _convert(module, memory_format, _core._layer_Conv2d, _core._layer_ConvTranspose2d)


def convert_conv3d_weight_memory_format(module, memory_format):
    """Lays the weights of Conv3d and ConvTranspose3d below a module out anew, in memory_format. Returns the module."""
    return _convert(module, memory_format, _core._layer_Conv3d, _core._layer_ConvTranspose3d)
