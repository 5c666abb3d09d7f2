"""The tables behind _parameters, _buffers and _modules of modules written in C++: live views."""

from collections.abc import MutableMapping

from .. import _core


class MemberTable(MutableMapping):
    """A module's own members of one kind by name: those of its C++ class, then those that Python added."""

    __slots__ = ("_module", "_kind")

    def __init__(self, module, kind):
        self._module = module
        self._kind = kind

    def _native(self):
        return _core._member_names(self._module, self._kind)

    def _added(self):
        return getattr(self._module, "_python_" + self._kind)

    def __iter__(self):
        yield from self._native()
        yield from self._added()

    def __len__(self):
        return len(self._native()) + len(self._added())

    def __contains__(self, name):
        return name in self._native() or name in self._added()

    def __getitem__(self, name):
        if name not in self:
            raise KeyError(name)
        return self._module.__getattr__(name)

    def __setitem__(self, name, value):
        if name in self._native():
            self._module._set_member(name, value)
        else:
            self._added()[name] = value

    def __delitem__(self, name):
        if name not in self:
            raise KeyError(name)
        delattr(self._module, name)

    def __repr__(self):
        return repr(dict(self))
