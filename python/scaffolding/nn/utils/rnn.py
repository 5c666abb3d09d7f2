"""Sequences of different lengths: padded to one length, and packed, step by step without the padding."""

from collections import namedtuple

from ... import _core
from ..._core import Tensor

_Fields = namedtuple("PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])
_Fields.__annotations__ = {"data": Tensor, "batch_sizes": Tensor, "sorted_indices": Tensor, "unsorted_indices": Tensor}


def invert_permutation(permutation):
    """The permutation[N] that undoes another; None for None.

    >>> nn.utils.rnn.invert_permutation(sf.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else _core.argsort(permutation)


class PackedSequence(_Fields):
    """Steps of sequences without padding: data[N, ...] holds the first elements of all, then the second ones, the
    longest sequence first; batch_sizes[T] (int64, on the CPU) says how many sequences have each step. sorted_indices
    gives the order of the sequences, unsorted_indices undoes it; None: they were in that order.

    Made by pack_padded_sequence and pack_sequence; recurrent layers take it and return it."""

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            raise ValueError("PackedSequence: batch_sizes must be a tensor, got None")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                "nn.utils.rnn."
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def __reduce__(self):
        return type(self), tuple(self)

    def to(self, *args, **kwargs):
        """data by Tensor.to(...), the indices on its device; self when nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = (None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices))
        return type(self)(data, self.batch_sizes, *moved)

    def cuda(self, *args, **kwargs):
        """to("cuda")."""
        return self.to(self.data.cuda(*args, **kwargs).device)

    def cpu(self):
        """to("cpu")."""
        return self.to("cpu")

    def double(self):
        return self.to(_core.float64)

    def float(self):
        return self.to(_core.float32)

    def half(self):
        return self.to(_core.float16)

    def long(self):
        return self.to(_core.int64)

    def int(self):
        return self.to(_core.int32)

    def short(self):
        return self.to(_core.int16)

    def char(self):
        return self.to(_core.int8)

    def byte(self):
        return self.to(_core.uint8)

    @property
    def is_cuda(self):
        """Whether data is on a GPU."""
        return self.data.device.type == "cuda"


PackedSequence.__module__ = "scaffolding.nn.utils.rnn"


def _present(lengths, steps, device):
    """Positions in [steps, len(lengths)], flattened, of what is no padding; lengths never grow."""
    mask = _core.arange(0, steps).unsqueeze(1) < lengths.unsqueeze(0)
    return _core.nonzero(mask.reshape(-1)).squeeze(1).to(device), mask.sum(1)


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs input[T, B, ...] (or [B, T, ...] with batch_first) of lengths[B], a list or an int64 tensor on the CPU.
    Gradients flow back.

    lengths must fall unless enforce_sorted=False, which sorts the sequences. ValueError or RuntimeError for lengths
    that are not positive, longer than input or not one for each sequence.

    >>> x = sf.tensor([[1., 2.], [3., 0.]])  # two sequences, side by side
    >>> nn.utils.rnn.pack_padded_sequence(x, [2, 1]).data
    tensor([1., 2., 3.])
    """
    lengths = lengths if isinstance(lengths, Tensor) else _core.tensor(list(lengths), dtype=_core.int64)
    if lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} tensor"
        )
    if input.dim() < 2 or lengths.dim() != 1:
        raise ValueError(
            f"pack_padded_sequence: needs input [T, B, ...] and lengths [B], got {list(input.shape)} and "
            f"{list(lengths.shape)}"
        )
    sorted_indices = None
    batch_dim = 0 if batch_first else 1
    if input.shape[batch_dim] != len(lengths):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size="
            f"{input.shape[batch_dim]})"
        )
    if not enforce_sorted:
        lengths, sorted_indices = _core.sort(lengths, descending=True, stable=True)
        sorted_indices = sorted_indices.to(input.device)
        input = _core.index_select(input, batch_dim, sorted_indices)
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    if batch == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if lengths[-1].item() <= 0 or lengths.min().item() <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if batch > 1 and bool((lengths[1:] > lengths[:-1]).any().item()):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )
    longest = lengths[0].item()
    if longest > steps:
        raise ValueError(f"pack_padded_sequence: lengths must be at most input's {steps} steps, got one of {longest}")
    present, batch_sizes = _present(lengths, longest, input.device)
    data = _core.index_select(input.reshape(steps * batch, *input.shape[2:]), 0, present)
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """(padded[T, B, ...] or [B, T, ...] with batch_first, lengths[B]) of a PackedSequence, sequence, in the order in
    which its sequences came, filled with padding_value; total_length: T where it is to be larger than the longest.
    ValueError where it is smaller.

    >>> packed = nn.utils.rnn.pack_sequence([sf.tensor([1, 2, 3]), sf.tensor([4, 5])])
    >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2, 3],
            [4, 5, 0]]), tensor([3, 2]))
    """
    data, batch_sizes, _, unsorted_indices = sequence
    longest, batch = len(batch_sizes), batch_sizes[0].item()
    steps = longest if total_length is None else total_length
    if steps < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got total_length="
            f"{total_length} and max sequence length being {longest}"
        )
    lengths = (batch_sizes.unsqueeze(1) > _core.arange(0, batch).unsqueeze(0)).sum(0)
    present, _ = _present(lengths, steps, data.device)
    rows = _core.full((steps * batch, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    padded = _core.index_copy(rows, 0, present, data).reshape(steps, batch, *data.shape[1:])
    if batch_first:
        padded = padded.transpose(0, 1)
    if unsorted_indices is not None:
        padded = _core.index_select(padded, 0 if batch_first else 1, unsorted_indices)
        lengths = lengths[unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """sequences, tensors [L, ...] of different lengths, as one: [T, B, ...], or [B, T, ...] with batch_first, T the
    longest length; padding_value stands after (or, with padding_side="left", before) the shorter ones.

    >>> nn.utils.rnn.pad_sequence([sf.tensor([1, 2, 3]), sf.tensor([4])], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    if not isinstance(sequences, (list, tuple, Tensor)):
        if not hasattr(sequences, "__iter__"):
            raise RuntimeError(
                "pad_sequence: Expected iterable for input sequences, but got arg of type: "
                f"{type(sequences).__name__}"
            )
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    sequences = list(_core.unbind(sequences, 0) if isinstance(sequences, Tensor) else sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    longest = max(len(s) for s in sequences)
    padded = []
    for s in sequences:
        missing = longest - len(s)
        if missing:
            rest = _core.full((missing, *s.shape[1:]), padding_value, dtype=s.dtype, device=s.device)
            s = _core.cat([s, rest] if padding_side == "right" else [rest, s])
        padded.append(s)
    return _core.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The list of sequences [length, ...] that pad_sequence joined: padded_sequences [T, B, ...], or [B, T, ...] with
    batch_first, and their lengths [B]."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [padded[: int(length)] for padded, length in zip(padded_sequences, lengths)]


def pack_sequence(sequences, enforce_sorted=True):
    """A PackedSequence of sequences, tensors [L, ...]; they must come longest first unless enforce_sorted=False.

    >>> output, state = nn.GRU(8, 16)(nn.utils.rnn.pack_sequence([sf.ones(5, 8), sf.ones(2, 8)]))
    >>> output.data.shape, state.shape
    (scaffolding.Size([7, 16]), scaffolding.Size([1, 2, 16]))
    """
    lengths = _core.tensor([len(s) for s in sequences], dtype=_core.int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The list of sequences of a PackedSequence, packed_sequences, as pack_sequence took them."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
