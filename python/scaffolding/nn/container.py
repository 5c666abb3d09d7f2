"""Modules and parameters by number or by name, with torch's interfaces."""

import operator
from collections import OrderedDict
from collections.abc import Mapping
from itertools import chain

from .. import _core
from .._documents import add_to
from .module import Module
from .parameter import Parameter


def _index(owner, index, length):
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length if length else index


def _called_on_cuda(modules, input):
    # Linear, ReLU or GELU by tanh, Linear are one op there, whose gradient takes fewer passes.
    linear, at = _core._layer_Linear, 0
    while at < len(modules):
        joined = (
            _core._joined(input, *modules[at : at + 3])
            if type(modules[at]) is linear and at + 2 < len(modules)
            else None
        )
        at, input = (at + 1, modules[at](input)) if joined is None else (at + 3, joined)
    return input


class Sequential(Module):
    """Modules called one after another: Sequential(a, b), or Sequential(OrderedDict([("name", a), ...])).

    >>> net = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
    >>> net(sf.ones(4, 2)).shape
    scaffolding.Size([4, 1])
    """

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input):
        """What the last module makes, the first being called with input."""
        if getattr(input, "is_cuda", False) and len(self._modules) > 2:
            return _called_on_cuda(list(self._modules.values()), input)
        for module in self._modules.values():
            input = module(input)
        return input

    def _name(self, index):
        return list(self._modules)[_index(self, index, len(self))]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]

    def __setitem__(self, index, module):
        setattr(self, self._name(index), module)

    def __delitem__(self, index):
        for name in list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]:
            delattr(self, name)
        _renumber(self)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __add__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(list(other))

    def __mul__(self, times):
        if not isinstance(times, int) or times <= 0:
            raise ValueError(f"Sequential: can be multiplied by a positive integer only, got {times!r}")
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__

    def append(self, module):
        """Adds a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index, module):
        """Adds a module before index; returns the container."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"Index out of range: {index}")
        _replace(self, _inserted(list(self._modules.values()), index + n if index < 0 else index, module))
        return self

    def extend(self, sequential):
        """Adds modules at the end; returns the container."""
        for module in sequential:
            self.append(module)
        return self

    def pop(self, index):
        """Removes and returns a module."""
        module = self[index]
        del self[index]
        return module


def _inserted(items, index, item):
    items.insert(index, item)
    return items


def _replace(container, modules):
    container._modules.clear()
    for i, module in enumerate(modules):
        container._modules[str(i)] = module


def _renumber(container):
    modules = container._modules
    items = list(modules.values())
    if all(name.isdigit() for name in modules):
        _replace(container, items)


class Container(Module):
    """A module with the given modules as children: the name of old programs; Module and ModuleDict do the same."""

    def __init__(self, **kwargs):
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class ModuleList(Module):
    """A list whose modules are children named "0", "1", ...

    >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> len(layers), list(layers.state_dict())[:2]
    (3, ['0.weight', '0.bias'])
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self += modules

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.__class__(list(self._modules.values())[index])
        return self._modules[str(_index(self, index, len(self)))]

    def __setitem__(self, index, module):
        setattr(self, str(_index(self, index, len(self))), module)

    def __delitem__(self, index):
        for i in range(len(self))[index] if isinstance(index, slice) else [_index(self, index, len(self))]:
            delattr(self, str(i))
        _renumber(self)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        combined = ModuleList()
        for module in chain(self, other):
            combined.append(module)
        return combined

    def __contains__(self, module):
        return any(m is module for m in self)

    def __repr__(self):
        return _core._list_repr(self)

    def insert(self, index, module):
        """Adds a module before index."""
        items = list(self)
        items.insert(index, module)
        if not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        _replace(self, items)

    def append(self, module):
        """Adds a module at the end; returns the list."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, index):
        """Removes and returns a module."""
        module = self[index]
        del self[index]
        return module

    def extend(self, modules):
        """Adds modules at the end; returns the list."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in modules:
            self.append(module)
        return self


class ModuleDict(Module):
    """A dict whose modules are children.

    >>> parts = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.ReLU()})
    >>> list(parts.state_dict())
    ['a.weight', 'a.bias']
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Removes all."""
        self._modules.clear()

    def pop(self, key):
        """Removes and returns a module."""
        module = self[key]
        del self[key]
        return module

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def get(self, key, default=None):
        return self._modules.get(key, default)

    def update(self, modules):
        """Adds the modules of a mapping or of (key, module) pairs."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for i, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)):
                raise TypeError(f"ModuleDict update sequence element #{i} should be Iterable; is {type(pair).__name__}")
            if len(pair) != 2:
                raise ValueError(f"ModuleDict update sequence element #{i} has length {len(pair)}; 2 is required")
            self[pair[0]] = pair[1]


def _as_parameter(value):
    return Parameter(value) if isinstance(value, _core.Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """A list whose tensors are parameters named "0", "1", ...

    >>> parts = nn.ParameterList([sf.ones(2), sf.zeros(2)])
    >>> list(parts.state_dict())
    ['0', '1']
    """

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.__class__([self[i] for i in range(len(self))[index]])
        return getattr(self, str(_index(self, index, len(self))))

    def __setitem__(self, index, value):
        setattr(self, str(_index(self, index, len(self))), _as_parameter(value))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, values):
        return self.extend(values)

    def append(self, value):
        """Adds value, a tensor, as a Parameter, at the end; returns the list."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Adds values, tensors, at the end; returns the list."""
        if not hasattr(values, "__iter__") or isinstance(values, _core.Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self):
        return "\n".join(f"({i}): {_described(p)}" for i, p in enumerate(self))


class ParameterDict(Module):
    """A dict whose tensors are parameters.

    >>> parts = nn.ParameterDict({"scale": sf.ones(2), "shift": sf.zeros(2)})
    >>> list(parts.state_dict())
    ['scale', 'shift']
    """

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key):
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, str(key))

    def __setitem__(self, key, value):
        setattr(self, str(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, str(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def __reversed__(self):
        return reversed(list(self._keys))

    def __or__(self, other):
        copy = self.copy()
        copy.update(other)
        return copy

    def __ior__(self, other):
        self.update(other)
        return self

    def copy(self):
        """A dict of the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key, default=None):
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self):
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key, default=None):
        return self[key] if key in self._keys else default

    def fromkeys(self, keys, default=None):
        return ParameterDict((k, default) for k in keys)

    def keys(self):
        return self._keys.keys()

    def items(self):
        return ((k, self[k]) for k in self._keys)

    def values(self):
        return (self[k] for k in self._keys)

    def update(self, parameters):
        """Adds the parameters of a mapping or of (key, parameter) pairs."""
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value

    def extra_repr(self):
        return "\n".join(f"({k}): {_described(p)}" for k, p in self.items())


def _described(value):
    if not isinstance(value, _core.Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    device = "" if value.device.type == "cpu" else f" ({value.device})"
    return f"{kind} containing: [{value.dtype} of size {'x'.join(str(n) for n in value.shape)}{device}]"


for _cls in (Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict):
    _cls.__module__ = "scaffolding.nn"
_core._register_module_type("Sequential", Sequential)
_core._register_module_type("ModuleList", ModuleList)


add_to(ParameterList, "nn")
