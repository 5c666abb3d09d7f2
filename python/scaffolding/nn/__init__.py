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


def __getattr__(name):
    """nn.video, which stands on the models that stand on this package."""
    if name == "video":
        return import_module(".video", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
