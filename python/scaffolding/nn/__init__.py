"""Neural networks: modules, layers, parameters and the functional ops."""

from .. import _core
from .._documents import add_to as _add_document
from .._later import later
from . import functional, init
from .parameter import Buffer, Parameter
from .module import Module
from . import utils
from .quantize import quantize_
from .container import Container, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .transformer import Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder
from . import parallel
from .parallel import DataParallel

# Layers are C++ classes that their registry (SF_LAYER) makes into Python ones.
globals().update({_name: getattr(_core, "_layer_" + _name) for _name in _core._layer_names})
for _name in ("Module", *_core._layer_names):
    _add_document(globals()[_name], "nn")


def _embedding_from_pretrained(
    cls, embeddings, freeze=True, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
):
    """An Embedding over embeddings[num_embeddings, embedding_dim], not trained unless freeze=False. padding_idx,
    max_norm, norm_type, scale_grad_by_freq and sparse are the class's."""
    if embeddings.dim() != 2:
        raise ValueError("Embeddings parameter is expected to be 2-dimensional")
    rows, columns = embeddings.shape
    return cls(
        rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight=embeddings, _freeze=freeze
    )


_core._layer_Embedding.from_pretrained = classmethod(_embedding_from_pretrained)


def _embedding_bag_from_pretrained(
    cls,
    embeddings,
    freeze=True,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    include_last_offset=False,
    padding_idx=None,
):
    """An EmbeddingBag over embeddings[num_embeddings, embedding_dim], not trained unless freeze=False. max_norm,
    norm_type, scale_grad_by_freq, mode, sparse, include_last_offset and padding_idx are the class's."""
    if embeddings.dim() != 2:
        raise ValueError("Embeddings parameter is expected to be 2-dimensional")
    rows, columns = embeddings.shape
    options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx)
    bag = cls(rows, columns, *options)
    bag.weight.requires_grad_(not freeze)
    return bag


_core._layer_EmbeddingBag.from_pretrained = classmethod(_embedding_bag_from_pretrained)


_ctc_loss_of_tensors = _core._layer_CTCLoss.forward


def _ctc_loss(self, log_probs, targets, input_lengths, target_lengths):
    """The loss of log_probs[T, N, C] (or [T, C]) and targets [N, S] or joined; input_lengths and target_lengths may be
    tuples."""
    lengths = functional._lengths(input_lengths), functional._lengths(target_lengths)
    return _ctc_loss_of_tensors(self, log_probs, targets, *lengths)


_core._layer_CTCLoss.forward = _ctc_loss


def _reset_running_stats(self):
    """Running means 0, variances 1 and no batches, where there are such."""
    if self.running_mean is not None:
        self.running_mean.zero_()
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()


for _name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"):
    globals()[_name].reset_running_stats = _reset_running_stats


class NLLLoss2d(NLLLoss):  # noqa: F821  (a registered layer)
    """NLLLoss, with its weight, size_average, ignore_index, reduce and reduction, under the name of old programs."""


# video stands on the models that stand on this package.
_LATER = {
    "SyncBatchNorm": "sync_batch_norm",
    "attention": None,
    "grad": None,
    "video": None,
    "LinearCrossEntropyLoss": "linear_cross_entropy",
    "LinearCrossEntropyOptions": "linear_cross_entropy",
    "AdaptiveLogSoftmaxWithLoss": "adaptive",
    "CrossMapLRN2d": "cross_map",
    "TripletMarginWithDistanceLoss": "triplet",
    "UninitializedBuffer": "lazy",
    "UninitializedParameter": "lazy",
    "LazyLinear": "lazy",
}
_LATER |= {name: "recurrent" for name in "GRU LSTM RNN GRUCell LSTMCell RNNBase RNNCell RNNCellBase".split()}
_LATER |= {
    f"Lazy{kind}{dims}d": "lazy"
    for kind in ("BatchNorm", "Conv", "ConvTranspose", "InstanceNorm")
    for dims in (1, 2, 3)
}
__getattr__, __dir__ = later(__name__, _LATER)
