"""Neural networks: modules, layers, parameters and the functional ops."""

from .. import _core
from . import functional, init, utils
from .parameter import Buffer, Parameter
from .module import Module
from .container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential

# Layers are C++ classes that their registry (SF_LAYER) makes into Python ones.
globals().update({_name: getattr(_core, "_layer_" + _name) for _name in _core._layer_names})
