"""torch.autograd.functional: derivatives of functions of tensors, row by row of the Jacobian.

func takes the inputs, a tensor or a tuple of tensors, and gives a tensor or a tuple of them; results have the same
structure. create_graph: the results can be differentiated again. A result that does not depend on an input has
derivative 0, or is an error with strict=True.
"""

from .. import _core
from .._core import Tensor
from . import grad
from .grad_mode import enable_grad

__all__ = "hessian hvp jacobian jvp vhp vjp".split()


def _tuple(who, what, tensors):
    tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{who}: {what} must be a tensor or tensors, got {type(t).__name__}")
    return tensors


def _leaves(inputs, create_graph):
    """Inputs that gradients can be taken of: views of the given ones where those are to get gradients too."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _like(structure, values):
    return values[0] if isinstance(structure, Tensor) else tuple(values)


def _grad(who, outputs, inputs, vectors, create_graph, strict, retain_graph=True):
    if not any(y.requires_grad for y in outputs):
        found = [None] * len(inputs)
    else:
        found = grad(outputs, inputs, vectors, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        raise RuntimeError(f"{who}: an output does not depend on every input, and strict=True")
    return [_core.zeros_like(x) if g is None else g for x, g in zip(inputs, found)]


def _done(values, create_graph):
    return [v if create_graph else v.detach() for v in values]


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """d output / d input: [*output.shape, *input.shape] for each pair. vectorize and strategy change nothing here.

    Args:
        func: takes the inputs, gives one or several tensors
        inputs: a tensor or a tuple of them
        create_graph: whether the result can be differentiated
        strict: whether an output that does not depend on an input is an error

    >>> sf.autograd.functional.jacobian(lambda x: x * x, sf.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    with enable_grad():
        leaves = _leaves(_tuple("jacobian", "inputs", inputs), create_graph)
        outputs = func(*leaves)
        rows = []
        for y in _tuple("jacobian", "func's result", outputs):
            columns = [[] for _ in leaves]
            for element in y.reshape(-1).unbind():
                for column, g in zip(columns, _grad("jacobian", [element], leaves, None, create_graph, strict)):
                    column.append(g)
            rows.append(
                [
                    _core.stack(c).reshape(*y.shape, *x.shape) if c else y.new_zeros((*y.shape, *x.shape))
                    for c, x in zip(columns, leaves)
                ]
            )
    rows = [_like(inputs, _done(row, create_graph)) for row in rows]
    return rows[0] if isinstance(outputs, Tensor) else tuple(rows)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a func with one number: [*input.shape, *input.shape] for each pair of inputs.

    Args:
        func: takes the inputs, gives one number
        inputs: a tensor or a tuple of them
        create_graph: whether the result can be differentiated
        strict: whether a result that does not depend on an input is an error
        vectorize, outer_jacobian_strategy: change nothing here

    >>> sf.autograd.functional.hessian(lambda x: (x**3).sum(), sf.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """

    def slope(*leaves):
        value = func(*leaves)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise RuntimeError("hessian: func must give a tensor of one element")
        return tuple(_grad("hessian", [value.reshape(())], leaves, None, True, strict))

    one = isinstance(inputs, Tensor)
    found = jacobian(slope, (inputs,) if one else tuple(inputs), create_graph=create_graph, strict=strict)
    return found[0][0] if one else found


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func's result, v times the Jacobian) at inputs; v: like the result, 1 by default where that is one number;
    create_graph and strict as in jacobian.

    >>> sf.autograd.functional.vjp(lambda x: x * x, sf.tensor([1., 2.]), sf.tensor([1., 1.]))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    with enable_grad():
        leaves = _leaves(_tuple("vjp", "inputs", inputs), create_graph)
        outputs = func(*leaves)
        ys = _tuple("vjp", "func's result", outputs)
        vectors = None if v is None else list(_tuple("vjp", "v", v))
        if vectors is None and (len(ys) != 1 or ys[0].numel() != 1):
            raise RuntimeError("vjp: v must be given where func's result is not one number")
        found = _grad("vjp", ys, leaves, vectors, create_graph, strict)
    return _like(outputs, _done(ys, create_graph)), _like(inputs, _done(found, create_graph))


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func's result, the Jacobian times v) at inputs; v: like the inputs, 1 by default where that is one number. By
    two backward passes; create_graph and strict as in jacobian.

    >>> sf.autograd.functional.jvp(lambda x: x * x, sf.tensor([1., 2.]), sf.tensor([1., 0.]))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    with enable_grad():
        leaves = _leaves(_tuple("jvp", "inputs", inputs), create_graph)
        outputs = func(*leaves)
        ys = _tuple("jvp", "func's result", outputs)
        if v is None and (len(leaves) != 1 or leaves[0].numel() != 1):
            raise RuntimeError("jvp: v must be given where the input is not one number")
        vectors = [_core.ones_like(leaves[0])] if v is None else list(_tuple("jvp", "v", v))
        dummies = [_core.zeros_like(y).requires_grad_() for y in ys]
        through = _grad("jvp", ys, leaves, dummies, True, strict)
        found = _grad("jvp", through, dummies, vectors, create_graph, False)
    return _like(outputs, _done(ys, create_graph)), _like(outputs, _done(found, create_graph))


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func's value, v times the Hessian) at inputs, of a func with one number; create_graph and strict as in jacobian.

    >>> sf.autograd.functional.vhp(lambda x: (x**3).sum(), sf.tensor([1., 2.]), sf.tensor([1., 1.]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        leaves = _leaves(_tuple("vhp", "inputs", inputs), create_graph)
        value = func(*leaves)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise RuntimeError("vhp: func must give a tensor of one element")
        if v is None and (len(leaves) != 1 or leaves[0].numel() != 1):
            raise RuntimeError("vhp: v must be given where the input is not one number")
        vectors = [_core.ones_like(leaves[0])] if v is None else list(_tuple("vhp", "v", v))
        slope = _grad("vhp", [value.reshape(())], leaves, None, True, strict)
        found = _grad("vhp", slope, leaves, vectors, create_graph, False)
    return value if create_graph else value.detach(), _like(inputs, _done(found, create_graph))


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func's value, the Hessian times v): the Hessian is symmetric, so this is vhp, with its inputs, create_graph and
    strict."""
    return vhp(func, inputs, v, create_graph, strict)
