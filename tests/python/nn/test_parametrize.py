"""Parametrisations and computed weights beyond what the golden files hold."""

import copy

import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return sf.triu(x) + sf.triu(x, 1).transpose(-1, -2)


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


def test_a_parametrised_weight_is_what_the_layer_computes_with():
    layer, x = nn.Linear(3, 3), sf.randn(2, 3)
    before = layer.weight.detach().clone()
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert layer.parametrizations.weight.original.tolist() == before.tolist()
    w = layer.weight
    assert w.tolist() == w.t().tolist() and w.requires_grad and w[0].tolist() == before[0].tolist()
    y = layer(x)
    assert y.tolist() == nn.functional.linear(x, w, layer.bias).tolist()
    y.sum().backward()
    assert layer.parametrizations.weight.original.grad.tril(-1).tolist() == [[0, 0, 0]] * 3
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"], "forward leaves nothing behind"
    assert parametrize.remove_parametrizations(layer, "weight") is layer
    assert type(layer) is nn.Linear and list(layer.state_dict()) == ["weight", "bias"]
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.tolist() == w.tolist()
    assert layer(x).tolist() == y.tolist()


def test_assigning_goes_through_right_inverse():
    layer = nn.Linear(2, 2)
    value = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.weight.tolist() == value.tolist()
    assert layer.parametrizations.weight.original.tolist() == (value / 2).tolist()
    layer.weight = sf.ones(2, 2)
    assert layer.parametrizations.weight.original.tolist() == [[0.5, 0.5]] * 2 and layer.weight.tolist() == [[1, 1]] * 2
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.weight.tolist() == [[2, 2]] * 2, "what is added is applied to the value so far"
    assert len(layer.parametrizations.weight) == 2
    parametrize.register_parametrization(layer, "weight", Symmetric(), unsafe=True)
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        layer.weight = sf.ones(2, 2)


def test_removing_to_the_original_and_of_several():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.register_parametrization(layer, "bias", Doubled())
    original = layer.parametrizations.weight.original
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is original and parametrize.is_parametrized(layer, "bias")
    assert type(layer).__name__ == "ParametrizedLinear" and not parametrize.is_parametrized(layer, "weight")
    parametrize.remove_parametrizations(layer, "bias")
    assert type(layer) is nn.Linear and not parametrize.is_parametrized(layer)
    parametrizations.weight_norm(layer)
    with pytest.raises(ValueError, match="sequence of tensors"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def test_cached_computes_once():
    layer = nn.Linear(2, 2)
    calls = []

    class Counted(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 1

    parametrize.register_parametrization(layer, "weight", Counted())
    calls.clear()
    with parametrize.cached():
        first = layer.weight
        with parametrize.cached():
            assert layer.weight is first
        layer(sf.ones(1, 2))
        assert layer.weight is first and len(calls) == 1
    assert layer.weight is not first and len(calls) == 2


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: parametrize.register_parametrization(nn.Linear(2, 2), "wight", Doubled()),
            ValueError,
            "with name 'wight'",
        ),
        (lambda: parametrize.remove_parametrizations(nn.Linear(2, 2), "weight"), ValueError, "does not have"),
        (
            lambda: parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0)),
            ValueError,
            "may not change the shape",
        ),
        (lambda: parametrizations.orthogonal(nn.Linear(2, 2), "bias"), ValueError, "Expected a matrix"),
        (lambda: parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr"), ValueError, "has to be one of"),
        (lambda: parametrizations.orthogonal(nn.Linear(2, 2), "wight"), ValueError, "no parameter or buffer"),
        (lambda: parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError, "positive"),
        (lambda: parametrizations.spectral_norm(nn.Linear(2, 2), dim=3), IndexError, "out of range"),
        (lambda: nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError, "positive"),
        (lambda: nn.utils.remove_weight_norm(nn.Linear(2, 2)), ValueError, "weight_norm of 'weight' not found"),
        (lambda: nn.utils.remove_spectral_norm(nn.Linear(2, 2)), ValueError, "spectral_norm of 'weight' not found"),
        (lambda: nn.utils.weight_norm(nn.utils.weight_norm(nn.Linear(2, 2))), RuntimeError, "two weight_norm hooks"),
        (lambda: nn.utils.skip_init(dict), RuntimeError, "Expected a Module"),
        (lambda: nn.utils.skip_init(nn.ReLU), RuntimeError, "must support a 'device' arg"),
        (
            lambda: nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)),
            AssertionError,
            "Fusion only for eval",
        ),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_weight_norm_of_both_kinds_read_each_other():
    old, new = nn.utils.weight_norm(nn.Linear(3, 2)), parametrizations.weight_norm(nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    x = sf.randn(4, 3)
    assert new(x).tolist() == old(x).tolist()


def test_weight_norm_trains_and_leaves():
    layer, x = nn.utils.weight_norm(nn.Linear(3, 2)), sf.randn(4, 3)
    optimizer = sf.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        layer(x).pow(2).sum().backward()
        optimizer.step()
    y = layer(x)
    assert layer.weight.requires_grad and list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    nn.utils.remove_weight_norm(layer)
    assert list(layer.state_dict()) == ["weight", "bias"] and (layer(x) - y).abs().max().item() < 1e-6
    assert layer._hooks is None


def test_an_exception_in_forward_leaves_no_value_in_the_layer():
    for layer in (nn.utils.weight_norm(nn.Linear(3, 2)), parametrizations.weight_norm(nn.Linear(3, 2))):
        names = list(layer.state_dict())
        with pytest.raises(ValueError):
            layer(sf.ones(2, 5))
        assert list(layer.state_dict()) == names


def test_copies_of_parametrised_layers():
    layer = parametrizations.spectral_norm(parametrizations.orthogonal(nn.Linear(3, 3)), "bias").eval()
    twin, x = copy.deepcopy(layer), sf.randn(2, 3)
    assert twin(x).tolist() == layer(x).tolist() and list(twin.state_dict()) == list(layer.state_dict())
    with sf.no_grad():
        twin.parametrizations.weight.original.add_(1)
    assert twin(x).tolist() != layer(x).tolist()
    plain = nn.Linear(3, 3)
    parametrize.transfer_parametrizations_and_params(parametrizations.weight_norm(nn.Linear(3, 3)), plain)
    assert list(plain.state_dict())[1:] == [f"parametrizations.weight.original{i}" for i in (0, 1)]


@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (3, 6)])
def test_orthogonal_stays_orthogonal_under_training(how, shape):
    sf.manual_seed(5)
    layer = parametrizations.orthogonal(nn.Linear(shape[1], shape[0]), orthogonal_map=how)
    optimizer = sf.optim.SGD(layer.parameters(), lr=0.1)
    x = sf.randn(8, shape[1])
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (layer(x) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    w = layer.weight.detach()
    w = w if shape[0] >= shape[1] else w.t()
    assert (w.t() @ w - sf.eye(w.shape[1])).abs().max().item() < 1e-5


def test_skip_init_and_memory_formats():
    layer = nn.utils.skip_init(nn.Linear, 3, 2)
    assert layer.weight.device.type == "cpu" and layer.weight.shape == (2, 3)
    net = nn.Sequential(nn.Conv2d(4, 3, 3), nn.Linear(2, 2))
    assert nn.utils.convert_conv2d_weight_memory_format(net, sf.channels_last) is net
    assert net[0].weight.is_contiguous(memory_format=sf.channels_last) and net[0].weight.shape == (3, 4, 3, 3)


def test_parametrised_layers_inside_others():
    net = nn.Sequential(parametrizations.weight_norm(nn.Conv2d(2, 3, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2))
    y = net(sf.randn(2, 2, 5, 5))
    y.sum().backward()
    assert net[0].parametrizations.weight.original0.grad is not None and y.shape == (2, 2)
