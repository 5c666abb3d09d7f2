"""Recurrent layers beyond what the golden files hold: packed sequences, errors, copies, what shares their weights."""

import copy
import pickle

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.nn.utils import rnn

LAYERS = [
    lambda **kwargs: nn.LSTM(3, 4, **kwargs),
    lambda **kwargs: nn.LSTM(3, 4, proj_size=2, **kwargs),
    lambda **kwargs: nn.GRU(3, 4, **kwargs),
    lambda **kwargs: nn.RNN(3, 4, nonlinearity="relu", **kwargs),
]


def close(a, b, tolerance=1e-5):
    assert tuple(a.shape) == tuple(b.shape)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def states_of(hidden):
    return list(hidden) if isinstance(hidden, tuple) else [hidden]


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_a_packed_batch_is_each_sequence_by_itself(make, enforce_sorted):
    sf.manual_seed(1)
    layer = make(num_layers=2, bidirectional=True)
    lengths = [5, 3, 3, 1] if enforce_sorted else [3, 5, 1, 3]
    alone = [sf.randn(n, 3).requires_grad_() for n in lengths]
    together = [s.detach().requires_grad_() for s in alone]
    packed, hidden = layer(rnn.pack_sequence(together, enforce_sorted=enforce_sorted))
    assert isinstance(packed, rnn.PackedSequence)
    padded, got_lengths = rnn.pad_packed_sequence(packed)
    assert got_lengths.tolist() == lengths
    (padded * padded).sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    for i, s in enumerate(alone):
        output, end = layer(s)
        close(padded[: len(s), i], output)
        for ours, theirs in zip(states_of(hidden), states_of(end)):
            close(ours[:, i], theirs)
        (output * output).sum().backward()
    for s, t in zip(alone, together):
        close(t.grad, s.grad)
    for p, g in zip(layer.parameters(), gradients):
        close(p.grad, g, 1e-4)


def test_packing_and_padding():
    x = sf.arange(0, 12).float().reshape(4, 3)
    packed = rnn.pack_padded_sequence(x, [2, 4, 1], enforce_sorted=False)
    assert packed.data.tolist() == [1, 0, 2, 4, 3, 7, 10] and packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2] and packed.unsorted_indices.tolist() == [1, 0, 2]
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1, total_length=5)
    assert padded.tolist() == [[0, 3, -1, -1, -1], [1, 4, 7, 10, -1], [2, -1, -1, -1, -1]]
    assert lengths.tolist() == [2, 4, 1]
    again = rnn.pack_padded_sequence(x.t(), sf.tensor([2, 4, 1]), batch_first=True, enforce_sorted=False)
    assert again.data.tolist() == packed.data.tolist()
    assert [s.tolist() for s in rnn.unpack_sequence(packed)] == [[0, 3], [1, 4, 7, 10], [2]]
    sequences = [sf.tensor([1.0, 2.0]), sf.tensor([3.0])]
    assert rnn.pad_sequence(sequences).tolist() == [[1, 3], [2, 0]]
    assert rnn.pad_sequence(sequences, True, 9.0, "left").tolist() == [[1, 2], [9, 3]]
    assert [s.tolist() for s in rnn.unpad_sequence(rnn.pad_sequence(sequences), [2, 1])] == [[1, 2], [3]]
    assert rnn.invert_permutation(sf.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    assert rnn.invert_permutation(None) is None
    wide = packed.double()
    assert wide.data.dtype is sf.float64 and wide.sorted_indices.tolist() == [1, 0, 2]
    assert packed.float() is packed and not packed.is_cuda and packed.cpu() is packed
    unpickled = pickle.loads(pickle.dumps(packed))
    assert isinstance(unpickled, rnn.PackedSequence) and unpickled.data.tolist() == packed.data.tolist()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: rnn.pack_padded_sequence(sf.ones(3, 2), [2, 3]), RuntimeError, "sorted in decreasing order"),
        (lambda: rnn.pack_padded_sequence(sf.ones(3, 2), [3, 0]), RuntimeError, "greater than 0"),
        (lambda: rnn.pack_padded_sequence(sf.ones(3, 2), [3, 2, 1]), RuntimeError, "equal to batch_size"),
        (lambda: rnn.pack_padded_sequence(sf.ones(3, 2), [4, 1]), ValueError, "at most input's 3 steps, got one of 4"),
        (lambda: rnn.pack_padded_sequence(sf.ones(3, 0), []), RuntimeError, "Cannot pack empty tensors"),
        (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([sf.ones(3)]), total_length=2), ValueError, "being 3"),
        (lambda: rnn.pad_sequence([]), RuntimeError, "empty list"),
        (lambda: rnn.pad_sequence([sf.ones(1)], padding_side="up"), RuntimeError, "left or right"),
        (lambda: rnn.PackedSequence(sf.ones(3)), ValueError, "batch_sizes must be a tensor"),
        (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
        (lambda: nn.LSTM(3, 4.0), TypeError, "hidden_size should be of type int, got: float"),
        (lambda: nn.LSTM(3, 4, 0), ValueError, "num_layers must be greater than zero"),
        (lambda: nn.LSTM(3, 4, dropout=2), ValueError, "dropout should be a number"),
        (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "smaller than hidden_size"),
        (lambda: nn.RNNBase("GRU", 3, 4, proj_size=2), ValueError, "only supported for LSTM"),
        (lambda: nn.RNNBase("LSTN", 3, 4), ValueError, "Unrecognized RNN mode"),
        (lambda: nn.RNN(3, 4, nonlinearity="elu"), ValueError, "Unknown nonlinearity 'elu'"),
        (lambda: nn.LSTM(3, 4)(sf.ones(2, 5, 4)), RuntimeError, "Expected 3, got 4"),
        (lambda: nn.LSTM(3, 4)(sf.ones(3)), ValueError, "Expected input to be 2D or 3D, got 1D"),
        (lambda: nn.LSTM(3, 4)(sf.ones(0, 2, 3)), RuntimeError, "larger than 0"),
        (lambda: nn.GRU(3, 4)(sf.ones(5, 2, 3), sf.ones(1, 3, 4)), RuntimeError, "Expected hidden size"),
        (lambda: nn.GRU(3, 4)(sf.ones(5, 2, 3), sf.ones(1, 4)), RuntimeError, "hx should also be 3-D"),
        (
            lambda: nn.LSTM(3, 4)(sf.ones(5, 3), (sf.ones(1, 1, 4), sf.ones(1, 4))),
            RuntimeError,
            r"hx and cx should also be 2-D but got \(3-D, 2-D\)",
        ),
        (lambda: nn.LSTMCell(3, 4)(sf.ones(2, 4)), RuntimeError, "inconsistent input_size"),
        (lambda: nn.GRUCell(3, 4)(sf.ones(2, 3), sf.ones(4)), ValueError, "Expected hx to be 2D, got 1D"),
        (lambda: nn.RNNCell(3, 4)(sf.ones(1, 2, 3)), ValueError, "1D or 2D, got 3D"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_dropout_between_no_layers_is_warned_about():
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.LSTM(3, 4, dropout=0.5)


def test_cells_are_steps_of_the_layers():
    for layer, cell in (
        (nn.LSTM(3, 4), nn.LSTMCell(3, 4)),
        (nn.GRU(3, 4), nn.GRUCell(3, 4)),
        (nn.RNN(3, 4), nn.RNNCell(3, 4)),
    ):
        cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
        x, state = sf.randn(6, 2, 3), None
        output, _ = layer(x)
        for t in range(6):
            state = cell(x[t], state)
            close(output[t], state[0] if isinstance(state, tuple) else state)


def test_weights_are_read_anew_after_they_change():
    layer, x = nn.LSTM(8, 8), sf.randn(3, 6, 8)
    with sf.no_grad():
        before, _ = layer(x)
        again, _ = layer(x)
        assert before.tolist() == again.tolist()
        layer.weight_hh_l0.mul_(0.5)
        after, _ = layer(x)
    assert before[0].tolist() == after[0].tolist(), "the first step comes from a state of zeros"
    assert before[2].tolist() != after[2].tolist()
    trained, _ = layer(x)
    close(trained, after)


def test_copies_and_lists_of_weights():
    layer = nn.GRU(3, 4, 2, bidirectional=True)
    twin = copy.deepcopy(layer)
    x = sf.randn(5, 2, 3)
    assert twin(x)[0].tolist() == layer(x)[0].tolist()
    assert pickle.loads(pickle.dumps(layer))(x)[0].tolist() == layer(x)[0].tolist()
    assert [len(w) for w in layer.all_weights] == [4] * 4 and layer.all_weights[3][0] is layer.weight_ih_l1_reverse
    assert layer.flatten_parameters() is None


def test_second_derivatives():
    w, x = sf.randn(4, 1), sf.randn(3, 2, 4, dtype=sf.float32).requires_grad_()
    h = sf.zeros(2, 1)
    output, _, _ = sf.lstm_sequence(x.reshape(6, 4), w, h, h)
    (g,) = sf.autograd.grad((output**2).sum(), x, create_graph=True)
    (second,) = sf.autograd.grad((g**2).sum(), x)
    step = 1e-2
    ahead, behind = (x.detach() + s * second / second.norm() for s in (step, -step))
    ends = []
    for at in (ahead, behind):
        at.requires_grad_()
        (g,) = sf.autograd.grad((sf.lstm_sequence(at.reshape(6, 4), w, h, h)[0] ** 2).sum(), at)
        ends.append((g**2).sum().item())
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(second.norm().item(), rel=2e-2)


def test_half_precision_computes_in_float32_on_the_cpu():
    layer, x = nn.LSTM(8, 8), sf.randn(20, 2, 8)
    want, _ = layer(x)
    got, (h, c) = layer.to(sf.bfloat16)(x.to(sf.bfloat16))
    assert got.dtype is sf.bfloat16 and h.dtype is sf.bfloat16 and c.dtype is sf.bfloat16
    close(got.float(), want, 3e-2)


def test_autocast():
    layer, x = nn.GRU(4, 4), sf.randn(5, 2, 4)
    with sf.autocast("cpu", sf.bfloat16):
        output, h = layer(x)
    assert output.dtype is sf.bfloat16 and h.dtype is sf.bfloat16
    output.float().sum().backward()
    assert layer.weight_hh_l0.grad.dtype is sf.float32


def test_shapes_on_the_meta_device():
    output, (h, c) = nn.LSTM(3, 4, 2, proj_size=2, device="meta")(sf.empty(5, 2, 3, device="meta"))
    assert (output.shape, h.shape, c.shape) == ((5, 2, 2), (2, 2, 2), (2, 2, 4))
    output, h = nn.GRU(3, 4, batch_first=True, device="meta")(sf.empty(2, 5, 3, device="meta"))
    assert (output.shape, h.shape) == ((2, 5, 4), (1, 2, 4))
