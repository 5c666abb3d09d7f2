"""Names of a package that few programs use: their modules are imported when they are asked for."""

import sys
from importlib import import_module


def later(package, places):
    """(__getattr__, __dir__) of a package: places is {name: its module}, with None for a module of that name; a module
    that is called as one of its own names would hide it. Other names are answered by _missing, which finds places as
    the package's _LATER."""

    def __getattr__(name):
        from ._missing import help_modules, missing

        if name not in places:
            raise missing(package, name)
        module = import_module("." + (places[name] or name), package)
        help_modules()
        found = getattr(module, name) if places[name] else module
        vars(sys.modules[package])[name] = found
        return found

    def __dir__():
        return sorted({*vars(sys.modules[package]), *places})

    return __getattr__, __dir__
