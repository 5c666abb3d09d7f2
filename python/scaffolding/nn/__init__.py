"""Neural networks: modules, layers, parameters and the functional ops."""

from importlib import import_module

from .. import _core
from . import functional, init, utils
from .parameter import Buffer, Parameter
from .module import Module
from .quantize import quantize_
from .container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .transformer import TransformerEncoder
from . import parallel
from .parallel import DataParallel

# Layers are C++ classes that their registry (SF_LAYER) makes into Python ones.
globals().update({_name: getattr(_core, "_layer_" + _name) for _name in _core._layer_names})


def _embedding_from_pretrained(
    cls, embeddings, freeze=True, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
):
    """An Embedding over given values[num_embeddings, embedding_dim], not trained unless freeze=False."""
    if embeddings.dim() != 2:
        raise ValueError("Embeddings parameter is expected to be 2-dimensional")
    rows, columns = embeddings.shape
    return cls(
        rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight=embeddings, _freeze=freeze
    )


_core._layer_Embedding.from_pretrained = classmethod(_embedding_from_pretrained)


def _reset_running_stats(self):
    """Running means 0, variances 1 and no batches, where there are such."""
    if self.running_mean is not None:
        self.running_mean.zero_()
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()


for _name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"):
    globals()[_name].reset_running_stats = _reset_running_stats


def __getattr__(name):
    """nn.video, which stands on the models that stand on this package."""
    if name == "video":
        return import_module(".video", __name__)
    from .._missing import missing

    raise missing(__name__, name)
