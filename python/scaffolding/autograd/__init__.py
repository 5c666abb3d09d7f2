"""Gradients: backward, grad, hooks, user-defined ops and the switches of the tape."""

from .. import _core
from .._core import GradientMap, GradientStatistics, Node, Tensor
from .._later import later
from . import graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from .gradcheck import gradcheck, gradgradcheck


def _as_list(what, tensors):
    if isinstance(tensors, Tensor):
        return [tensors]
    tensors = list(tensors)
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{what} must be tensors, got {type(t).__name__}")
    return tensors


def _as_gradients(what, gradients, count):
    if gradients is None:
        return [None] * count
    gradients = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    if len(gradients) != count:
        raise ValueError(f"{what}: got {len(gradients)} gradients for {count} outputs")
    return gradients


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None, *, return_map=False):
    """Adds the gradients of tensors (times grad_tensors) to .grad of the leaves they depend on.

    With inputs, to theirs alone. With return_map=True .grad is left alone and a GradientMap is returned instead.

    Args:
        tensors: one or several, with gradients
        grad_tensors: of their shapes; None where a tensor has one element
        retain_graph: whether the graph can be gone through again; None: as create_graph
        create_graph: whether gradients can be differentiated
        inputs: leaves, or tensors on the way, whose gradients are wanted
        return_map: gradients in a GradientMap instead of .grad

    >>> x = sf.tensor([1., 2.], requires_grad=True)
    >>> sf.autograd.backward([x * x], [sf.tensor([1., 10.])])
    >>> x.grad
    tensor([ 2., 40.])
    """
    tensors = _as_list("backward: outputs", tensors)
    gradients = _as_gradients("backward", grad_tensors, len(tensors))
    retain = create_graph if retain_graph is None else retain_graph
    if return_map:
        return _core._backward_map(tensors, gradients, retain, create_graph, False)
    _core._backward(
        tensors, gradients, retain, create_graph, [] if inputs is None else _as_list("backward: inputs", inputs)
    )


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    allow_unused=None,
    materialize_grads=False,
):
    """The gradients of outputs (times grad_outputs) for inputs, as a tuple; .grad is not touched.

    Args:
        outputs: one or several tensors, with gradients
        inputs: what is differentiated by
        grad_outputs: of outputs' shapes; None where one has one element
        retain_graph: whether the graph can be gone through again; None: as create_graph
        create_graph: whether the results can be differentiated
        allow_unused: whether inputs without influence get None, and are no error; None: as materialize_grads
        materialize_grads: zeros for those inputs instead of None

    >>> x = sf.tensor(3., requires_grad=True)
    >>> dy, = sf.autograd.grad(x**3, x, create_graph=True)
    >>> dy, sf.autograd.grad(dy, x)
    (tensor(27., grad_fn=<WhereBackward0>), (tensor(18.),))
    """
    outputs = _as_list("grad: outputs", outputs)
    inputs = _as_list("grad: inputs", inputs)
    gradients = _as_gradients("grad", grad_outputs, len(outputs))
    retain = create_graph if retain_graph is None else retain_graph
    found = _core._grad(outputs, inputs, gradients, retain, create_graph, bool(allow_unused) or materialize_grads)
    if materialize_grads:
        found = tuple(_core.zeros_like(x) if g is None else g for x, g in zip(inputs, found))
    return found


_LATER = {"functional": None}
__getattr__, __dir__ = later(__name__, _LATER)
