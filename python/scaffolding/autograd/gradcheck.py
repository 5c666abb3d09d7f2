"""Comparing gradients with finite differences."""

from .. import _core
from .._core import Tensor
from .grad_mode import enable_grad, no_grad


def _outputs(function, inputs):
    out = function(*inputs)
    out = out if isinstance(out, (tuple, list)) else (out,)
    return [y for y in out if isinstance(y, Tensor) and y.is_floating_point()]


def _fail(message, raise_exception):
    if raise_exception:
        raise RuntimeError(message)
    return False


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Whether the gradients of func at inputs equal central differences; inputs should be float64.

    Every output element's gradient is compared for every input element that requires one.
    """
    from . import grad

    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise ValueError("gradcheck: no input requires a gradient")
    for x in wanted:
        if x.dtype != _core.float64:
            raise ValueError(f"gradcheck: inputs must be float64 for differences of {eps}, got {x.dtype}")
    with enable_grad():
        outputs = _outputs(func, inputs)
    for o, y in enumerate(outputs):
        if not y.requires_grad:
            continue
        analytic = []
        for j in range(y.nelement()):
            seed = _core.zeros(y.shape, dtype=y.dtype)
            seed.view(-1)[j] = 1
            rows = grad(y, wanted, seed, retain_graph=True, allow_unused=True)
            analytic.append([None if g is None else g.detach().reshape(-1).tolist() for g in rows])
        for i, x in enumerate(wanted):
            for k in range(x.nelement()):
                numeric = _difference(func, inputs, x, k, o, eps)
                for j, n in enumerate(numeric):
                    a = 0.0 if analytic[j][i] is None else analytic[j][i][k]
                    if not abs(a - n) <= atol + rtol * abs(n):
                        return _fail(f"gradcheck: d output {o}[{j}] / d input {i}[{k}] is {a} by backward, {n} by differences", raise_exception)
    return True


def _difference(func, inputs, x, k, o, eps):
    """(f(x + eps) - f(x - eps)) / (2 eps) for element k of x, as a list over the elements of output o."""
    with no_grad():
        flat = x.data.reshape(-1)
        if flat.data_ptr() != x.data_ptr():
            raise ValueError("gradcheck: inputs must be contiguous")
        before = flat[k].item()
        values = []
        for step in (eps, -eps):
            flat[k] = before + step
            values.append(_outputs(func, inputs)[o].detach().clone().reshape(-1).tolist())
        flat[k] = before
    return [(a - b) / (2 * eps) for a, b in zip(*values)]


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """As gradcheck, for the gradients of func: the second derivatives."""
    from . import grad

    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]

    def first(*args):
        with enable_grad():
            outputs = [y for y in _outputs(func, args) if y.requires_grad]
            seeds = grad_outputs or [_core.full_like(y, 0.7) for y in outputs]
            found = grad(outputs, [args[i] for i in wanted], list(seeds), create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(first, inputs, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
