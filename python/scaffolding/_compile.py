"""compile, which changes nothing about what is computed: kernels are compiled already."""

from . import _core
from ._core import Tensor

__all__ = ["compile"]

# Of Python's own functions, those that a function may call whose values are the same each time.
_PURE = {abs, bool, enumerate, float, int, isinstance, len, list, max, min, range, reversed, round, sum, tuple, zip}
# What a function does beside computing its result: running it once in a trace would not do it each time.
_EFFECTS = ("STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "DELETE_", "IMPORT_", "YIELD_VALUE", "MAKE_FUNCTION", "RAISE")
# What a tensor in a trace does not tell.
_NOT_TRACED = {"data", "data_ptr", "grad", "grad_fn", "is_leaf", "item", "requires_grad", "tolist", "_version"}
_CONSTANTS = (bool, int, float, str, type(None), _core.dtype, Tensor)

_noted = False


def _note():
    """Once in a process."""
    global _noted
    if not _noted:
        import warnings

        _noted = True
        warnings.warn(
            "compile: there is nothing to wait for: modules run kernels that are compiled already, and functions that "
            "are pointwise in their tensors are made one pass (scaffolding.fuse)",
            UserWarning,
            stacklevel=3,
        )


def compile(
    model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, name=None, disable=False
):
    """The model or function itself, with torch.compile's arguments, which change nothing. Also a decorator.

    A function of tensors that only computes (no names from outside but modules' and Python's own functions) and whose
    ops are all pointwise is run by fuse: in one pass over memory, bit for bit the same on the CPU. Any other is called
    as it is. A UserWarning tells of this once.

    Args:
        fullgraph, dynamic, backend, mode, options, name: change nothing
        disable: returns the model or function as it is

    >>> net = sf.compile(nn.Linear(2, 3))
    >>> net(sf.ones(1, 2)).shape
    scaffolding.Size([1, 3])
    """
    if model is None:
        return lambda model: compile(model, disable=disable)
    if not callable(model):
        raise TypeError(f"compile: takes a module or a function, got {type(model).__name__}")
    if disable:
        return model
    _note()
    return _fused_where_it_may(model) if _only_computes(model) else model


def _only_computes(function):
    """Whether a function's result depends on its arguments alone, as far as its code tells."""
    import dis
    import types

    if not isinstance(function, types.FunctionType) or function.__closure__ or hasattr(function, "__wrapped__"):
        return False
    for instruction in dis.get_instructions(function):
        if instruction.opname.startswith(_EFFECTS):
            return False
        if instruction.opname == "LOAD_GLOBAL":
            found = function.__globals__.get(instruction.argval, _PURE)
            if found is _PURE:
                found = getattr(__import__("builtins"), instruction.argval, None)
            of_package = isinstance(found, types.ModuleType) and found.__name__.split(".")[0] in (__package__, "math")
            if not (of_package or type(found) is type(_core.add) or any(found is pure for pure in _PURE)):
                return False
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in _NOT_TRACED:
            return False
    return True


def _fused_where_it_may(function):
    """fuse(function), until a call of it is one that cannot be fused."""
    import functools

    from ._fuse import fuse

    fused = fuse(function)
    plain = False

    @functools.wraps(function)
    def compiled(*args, **kwargs):
        nonlocal plain
        # Other objects may change between calls.
        if not plain and all(isinstance(v, _CONSTANTS) for v in (*args, *kwargs.values())):
            try:
                return fused(*args, **kwargs)
            except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
                result = function(*args, **kwargs)  # which may raise: then it is no matter of fusing
                plain = True
                return result
        return function(*args, **kwargs)

    return compiled
