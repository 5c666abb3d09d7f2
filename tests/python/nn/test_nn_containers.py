"""ModuleList, ModuleDict, Sequential, ParameterList and ParameterDict behave as torch's."""

from collections import OrderedDict

import pytest

import scaffolding as sf
from scaffolding import nn


def lin(n):
    return nn.Linear(n, n)


def test_sequential():
    net = nn.Sequential(lin(1), nn.ReLU())
    net.append(lin(2))
    net.insert(1, nn.Tanh())
    assert [type(m).__name__ for m in net] == ["Linear", "Tanh", "ReLU", "Linear"] and list(net._modules) == [
        "0",
        "1",
        "2",
        "3",
    ]
    assert (
        net[-1].in_features == 2
        and isinstance(net[1:3], nn.Sequential)
        and len(net[1:3]) == 2
        and net[1:3][0] is net[1]
    )
    net[0] = lin(5)
    assert net[0].in_features == 5
    del net[1]
    assert len(net) == 3 and list(net._modules) == ["0", "1", "2"]
    assert net.pop(-1).in_features == 2 and len(net + net) == 4 and len(net * 2) == 4
    net.extend([lin(3)])
    net += nn.Sequential(lin(4))
    assert len(net) == 4
    with pytest.raises(IndexError):
        net[9]
    named = nn.Sequential(OrderedDict(a=lin(2), b=nn.ReLU()))
    assert named.a is named[0] and list(named.state_dict()) == ["a.weight", "a.bias"]
    assert named(sf.ones(1, 2)).shape == (1, 2)
    with pytest.raises(TypeError, match="not a Module subclass"):
        nn.Sequential(3)


def test_module_list():
    items = nn.ModuleList([lin(i) for i in range(1, 4)])
    items.append(lin(4)).extend([lin(5)])
    items.insert(0, lin(9))
    assert (
        [m.in_features for m in items] == [9, 1, 2, 3, 4, 5]
        and items[-1].in_features == 5
        and lin not in items
        and items[2] in items
    )
    assert [m.in_features for m in items[1:3]] == [1, 2] and isinstance(items[1:3], nn.ModuleList)
    items[0] = lin(7)
    del items[1]
    assert items.pop(0).in_features == 7 and [m.in_features for m in items] == [2, 3, 4, 5]
    assert list(dict(items.named_parameters()))[:2] == ["0.weight", "0.bias"]
    items += [lin(6)]
    assert len(items + [lin(1)]) == 6
    with pytest.raises(IndexError):
        items[5]
    with pytest.raises(NotImplementedError):
        items(1)
    with pytest.raises(TypeError):
        items.append(3)
    twins = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()])
    assert (
        repr(twins) == "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)" and repr(nn.ModuleList()) == "ModuleList()"
    )


def test_module_dict():
    items = nn.ModuleDict({"a": lin(1)})
    items["b"] = lin(2)
    items.update([("c", lin(3))])
    items.update(nn.ModuleDict({"d": lin(4)}))
    assert (
        list(items) == list(items.keys()) == ["a", "b", "c", "d"]
        and len(items) == 4
        and "a" in items
        and items["b"].in_features == 2
    )
    assert (
        items.pop("c").in_features == 3
        and [m.in_features for m in items.values()] == [1, 2, 4]
        and items.get("z") is None
    )
    del items["a"]
    assert [k for k, _ in items.items()] == ["b", "d"] and list(items.state_dict())[0] == "b.weight"
    items.clear()
    assert len(items) == 0
    with pytest.raises(KeyError):
        items["a"]
    with pytest.raises(ValueError, match="length 3"):
        items.update([(1, 2, 3)])


def test_parameter_list():
    items = nn.ParameterList([nn.Parameter(sf.ones(2)), sf.zeros(3)])
    items.append(sf.ones(4))
    assert (
        len(items) == 3
        and all(isinstance(p, nn.Parameter) for p in items)
        and list(items.state_dict()) == ["0", "1", "2"]
    )
    assert items[-1].shape == (4,) and len(items[:2]) == 2
    items[0] = sf.ones(7)
    assert items[0].shape == (7,)
    items += [sf.ones(1)]
    assert len(list(items.parameters())) == 4
    assert "(0): Parameter containing: [scaffolding.float32 of size 7]" in repr(items)


def test_parameter_dict():
    items = nn.ParameterDict({"a": sf.ones(2)})
    items["b"] = nn.Parameter(sf.ones(3))
    assert (
        list(items) == ["a", "b"] and "a" in items and items.a is items["a"] and list(items.state_dict()) == ["a", "b"]
    )
    assert items.pop("a").shape == (2,) and len(items) == 1 and items.get("z", 5) == 5
    items.update({"c": sf.ones(4)})
    assert [k for k, _ in items.items()] == ["b", "c"] and len(list(items.values())) == 2
    assert list(items | {"d": sf.ones(1)}) == ["b", "c", "d"] and items.setdefault("b").shape == (3,)
    items.clear()
    assert len(items) == 0 and list(items.parameters()) == []


def test_containers_train_together():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = nn.ModuleList([lin(3) for _ in range(2)])
            self.heads = nn.ModuleDict({"a": lin(3)})
            self.gains = nn.ParameterList([sf.ones(3)])

        def forward(self, x):
            for step in self.steps:
                x = step(x)
            return self.heads["a"](x) * self.gains[0]

    net = Net()
    net(sf.ones(1, 3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters()) and len(list(net.parameters())) == 7
