"""Averages of models: torch's values (tests/golden/make_golden_optim.py)."""

import folders
import numpy as np
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding import nn
from scaffolding.optim import swa_utils

GOLDEN = read_json(folders.GOLDEN / "optim.json.xz")


def inputs(t):
    return sf.tensor(GOLDEN["grads"][t]["w"]).reshape(3, 4)


def make_net():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with sf.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(sf.arange(p.numel()).reshape(p.shape) * 0.1 - i)
    return net


def values(averaged):
    return [float(x) for v in averaged.state_dict().values() for x in v.double().reshape(-1).tolist()]


@pytest.mark.parametrize("name", sorted(GOLDEN["averages"]))
def test_averages_are_torchs(name):
    case, net = GOLDEN["averages"][name], make_net()
    options = {k: eval(v, vars(swa_utils)) if isinstance(v, str) else v for k, v in case["options"].items()}
    averaged = swa_utils.AveragedModel(net, **options)
    assert list(averaged.state_dict()) == case["keys"]
    for t, want in enumerate(case["values"]):
        net(inputs(t))
        with sf.no_grad():
            for p in net.parameters():
                p.add_(0.3 * (t + 1))
        averaged.update_parameters(net)
        np.testing.assert_allclose(values(averaged), want, rtol=2e-6, atol=1e-6)
    averaged.eval()
    swa_utils.update_bn([(inputs(t), "label") for t in range(5)], averaged)
    assert not averaged.training and averaged.module[1].momentum == 0.1
    np.testing.assert_allclose(values(averaged), case["after_update_bn"], rtol=2e-5, atol=1e-5)


def test_an_averaged_model_is_a_copy_that_answers_calls():
    net = make_net().eval()
    averaged = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5)).eval()
    x, before = inputs(0), net(inputs(0))
    with sf.no_grad():
        net[0].weight.zero_()
    assert sf.equal(averaged(x), before) and not sf.equal(net(x), before)
    averaged.update_parameters(net)
    assert averaged.n_averaged.item() == 1 and sf.equal(averaged(x), net(x))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: swa_utils.get_ema_avg_fn(1.5), "Invalid decay value 1.5"),
        (lambda: swa_utils.get_ema_multi_avg_fn(-1), "Invalid decay value -1"),
        (lambda: swa_utils.AveragedModel(make_net(), avg_fn=max, multi_avg_fn=max), "avg_fn or multi_avg_fn"),
        (lambda: swa_utils.SWALR(sf.optim.SGD(make_net().parameters()), 0.1, anneal_strategy="sine"), "'cos' or"),
        (lambda: swa_utils.SWALR(sf.optim.SGD(make_net().parameters()), 0.1, anneal_epochs=-1), "greater than 0"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
