"""Recurrent layers. Of each layer and direction the inputs of all steps are multiplied at once; the steps are one op
(scaffolding/ops/recurrent).
"""

import math
import numbers
import warnings

from .. import _core
from .._documents import add_to
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _sequence(mode, x, state, weights, batch_sizes, reverse):
    """(output[N, H], states) of one layer in one direction: x[N, input], state: h0[B, H], or h0 and c0."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    if mode == "GRU":
        gates = _core.linear(x, w_ih, b_ih)
        output, *states = _core.gru_sequence(gates, w_hh, b_hh, state[0], batch_sizes, reverse)
        return output, states
    gates = _core.linear(x, w_ih, None if b_ih is None else b_ih + b_hh)
    if mode == "LSTM":
        output, *states = _core.lstm_sequence(gates, w_hh, *state, w_hr, batch_sizes, reverse)
    else:
        output, *states = _core.rnn_sequence(gates, w_hh, state[0], mode[4:].lower(), batch_sizes, reverse)
    return output, states


class RNNBase(Module):
    """What LSTM, GRU and RNN share: parameters of num_layers layers in one direction or two.

    Parameters start uniform in +-1 / sqrt(hidden_size). ValueError and TypeError for sizes that cannot be."""

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        directions, rows, out = 2 if bidirectional else 1, _GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    values = _core.empty(shape, device=device, dtype=dtype)
                    self.register_parameter(f"{name}_l{layer}{suffix}", Parameter(values))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws all parameters uniform in +-1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self):
        """Nothing: parameters are packed when they are used."""

    def _weights(self, layer, reverse):
        """weight_ih, weight_hh, bias_ih, bias_hh, weight_hr of a layer and direction; None for those that are not."""
        suffix = f"_l{layer}{'_reverse' if reverse else ''}"
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return [getattr(self, kind + suffix, None) for kind in kinds]

    @property
    def all_weights(self):
        """For each layer and direction the list of its parameters."""
        ways = (False, True) if self.bidirectional else (False,)
        return [
            [w for w in self._weights(layer, reverse) if w is not None]
            for layer in range(self.num_layers)
            for reverse in ways
        ]

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        return text

    # ---- states: tuples of h0, and c0 of an LSTM, [layers * directions, B, H] each

    def _state_sizes(self):
        return (self.proj_size or self.hidden_size, self.hidden_size) if self.mode == "LSTM" else (self.hidden_size,)

    def _states(self, given, batched, batch, like, sorted_indices):
        directions = 2 if self.bidirectional else 1
        shapes = [(self.num_layers * directions, batch, size) for size in self._state_sizes()]
        if given is None:
            return [_core.zeros(s, dtype=like.dtype, device=like.device) for s in shapes]
        states = list(given) if self.mode == "LSTM" else [given]
        wanted = 3 if batched else 2
        if any(s.dim() != wanted for s in states):
            found = ", ".join(f"{s.dim()}-D" for s in states)
            raise RuntimeError(
                f"For {'batched 3-D' if batched else 'unbatched 2-D'} input, hx"
                + (f" and cx should also be {wanted}-D but got ({found}) tensors" if len(states) == 2 else
                   f" should also be {wanted}-D but got {found} tensor")
            )  # fmt: skip
        if not batched:
            states = [s.unsqueeze(1) for s in states]
        for i, (s, shape) in enumerate(zip(states, shapes)):
            if tuple(s.shape) != shape:
                which = "hidden size" if len(states) == 1 else f"hidden[{i}] size"
                raise RuntimeError(f"Expected {which} {shape}, got {list(s.shape)}")
        if sorted_indices is not None:
            states = [_core.index_select(s, 1, sorted_indices) for s in states]
        return states

    def forward(self, input, hx=None):
        """input[T, B, input_size] ([B, T, input_size] with batch_first), [T, input_size], or a PackedSequence; hx: h0
        [num_layers * directions, B, hidden_size], of an LSTM (h0, c0) -> (output, states after the last step) of the
        same kinds. RuntimeError for sizes that do not fit."""
        packed = isinstance(input, PackedSequence)
        batch_sizes = sorted_indices = None
        if packed:
            x, batch_sizes, sorted_indices, unsorted_indices = input
            batched, batch = True, batch_sizes[0].item()
        else:
            if input.dim() not in (2, 3):
                raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead")
            batched = input.dim() == 3
            x = input if batched else input.unsqueeze(1)
            if batched and self.batch_first:
                x = x.transpose(0, 1)
            steps, batch = x.shape[:2]
            if steps == 0:
                raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        x = x.reshape(-1, self.input_size)
        states = self._states(hx, batched, batch, x, sorted_indices)
        x, states = self._run(x, states, batch_sizes)
        if packed:
            if unsorted_indices is not None:
                states = [_core.index_select(s, 1, unsorted_indices) for s in states]
            x = PackedSequence(x, batch_sizes, sorted_indices, unsorted_indices)
        else:
            x = x.reshape(steps, batch, x.shape[-1])
            if not batched:
                x, states = x.squeeze(1), [s.squeeze(1) for s in states]
            elif self.batch_first:
                x = x.transpose(0, 1)
        return x, (tuple(states) if self.mode == "LSTM" else states[0])

    def _run(self, x, states, batch_sizes):
        ends, ways = [], (False, True) if self.bidirectional else (False,)
        for layer in range(self.num_layers):
            if layer > 0 and self.dropout > 0:
                x = _core.dropout(x, self.dropout, self.training)
            outputs = []
            for reverse in ways:
                start = [s[len(ends)] for s in states]
                output, end = _sequence(self.mode, x, start, self._weights(layer, reverse), batch_sizes, reverse)
                outputs.append(output)
                ends.append(end)
            x = outputs[0] if len(outputs) == 1 else _core.cat(outputs, -1)
        return x, [_core.stack(parts) for parts in zip(*ends)]


class LSTM(RNNBase):
    """A stack of LSTM layers (Hochreiter & Schmidhuber 1997); dropout between them, proj_size: h is projected to it.

    forward(input, (h0, c0)=None) -> (output[T, B, directions * (proj_size or hidden_size)], (h_n, c_n)).

    >>> lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True)
    >>> output, (h, c) = lstm(sf.randn(4, 10, 8))
    >>> output.shape, h.shape
    (scaffolding.Size([4, 10, 16]), scaffolding.Size([2, 4, 16]))
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """A stack of GRU layers (Cho et al. 2014), the reset gate after the product, as torch and cuDNN have it.

    forward(input, h0=None) -> (output[T, B, directions * hidden_size], h_n).

    >>> gru = nn.GRU(8, 16, batch_first=True)
    >>> output, h = gru(sf.randn(4, 10, 8))
    >>> output.shape, h.shape
    (scaffolding.Size([4, 10, 16]), scaffolding.Size([1, 4, 16]))
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        device=None,
        dtype=None,
    ):
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


class RNN(RNNBase):
    """A stack of layers h = tanh (or relu) of W_ih x + b_ih + W_hh h + b_hh.

    forward(input, h0=None) -> (output[T, B, directions * hidden_size], h_n).

    >>> rnn = nn.RNN(8, 16, batch_first=True)
    >>> output, h = rnn(sf.randn(4, 10, 8))
    >>> output.shape, h.shape
    (scaffolding.Size([4, 10, 16]), scaffolding.Size([1, 4, 16]))
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        nonlinearity="tanh",
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        device=None,
        dtype=None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            "RNN_" + nonlinearity.upper(),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


# ---- one step


class RNNCellBase(Module):
    """What the cells share: weight_ih[G * hidden_size, input_size], weight_hh, and biases."""

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(_core.empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(_core.empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            values = Parameter(_core.empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self):
        """Draws all parameters uniform in +-1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, mode, input, states):
        """The states after one step of input[B, input_size] or [input_size] from states alike."""
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if x.shape[1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]}, expected {self.input_size}")
        if states is None:
            zero = _core.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            states = [zero] * (2 if mode == "LSTM" else 1)
        else:
            for i, s in enumerate(states):
                if s is None or s.dim() != input.dim():
                    found = "None" if s is None else f"{s.dim()}D"
                    raise ValueError(
                        f"{name}: Expected {'hx' if len(states) == 1 else f'hx[{i}]'} to be {input.dim()}D, got "
                        f"{found} instead"
                    )
            states = [s if batched else s.unsqueeze(0) for s in states]
            for s in states:
                if tuple(s.shape) != (x.shape[0], self.hidden_size):
                    raise RuntimeError(
                        f"{name}: hidden states must have shape {[x.shape[0], self.hidden_size]}, got {list(s.shape)}"
                    )
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, None)
        _, states = _sequence(mode, x, states, weights, None, False)
        return states if batched else [s.squeeze(0) for s in states]


class LSTMCell(RNNCellBase):
    """One step of an LSTM. forward(input[B, input_size], (h, c)=None) -> (h[B, hidden_size], c); also without B.

    >>> cell, state = nn.LSTMCell(8, 16), None
    >>> for x in sf.randn(10, 4, 8):
    ...     state = cell(x, state)
    >>> state[0].shape
    scaffolding.Size([4, 16])
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        """(h, c) after input[B, input_size], or [input_size]; hx: (h0, c0), zeros without it."""
        return tuple(self._step("LSTM", input, hx))


class GRUCell(RNNCellBase):
    """One step of a GRU. forward(input[B, input_size], h=None) -> h[B, hidden_size]; also without B.

    >>> cell, h = nn.GRUCell(8, 16), sf.zeros(4, 16)
    >>> cell(sf.randn(4, 8), h).shape
    scaffolding.Size([4, 16])
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        """h after input[B, input_size], or [input_size]; hx: h0, zeros without it."""
        return self._step("GRU", input, None if hx is None else [hx])[0]


class RNNCell(RNNCellBase):
    """One step of an RNN. forward(input[B, input_size], h=None) -> h[B, hidden_size]; also without B.

    >>> nn.RNNCell(8, 16)(sf.randn(4, 8)).shape
    scaffolding.Size([4, 16])
    """

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        """h after input[B, input_size], or [input_size]; hx: h0, zeros without it."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step("RNN_" + self.nonlinearity.upper(), input, None if hx is None else [hx])[0]


for _cls in (RNNBase, LSTM, GRU, RNN, RNNCellBase, LSTMCell, GRUCell, RNNCell):
    _cls.__module__ = "scaffolding.nn"


for _class in (RNNBase, LSTM, GRU, RNN, RNNCellBase, LSTMCell, GRUCell, RNNCell):
    add_to(_class, "nn")
