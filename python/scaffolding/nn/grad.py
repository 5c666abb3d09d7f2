"""Gradients of convolutions alone, with torch.nn.grad's names: of the input, given its size, and of the weight."""

from .. import _core
from ..autograd import grad
from ..autograd.grad_mode import enable_grad
from . import functional


def _gradient(convolve, of, other, grad_output, turned, options):
    """The gradient of `of`, whose values do not matter: a convolution is linear in each."""
    with enable_grad():
        of = of.requires_grad_()
        output = convolve(other, of, **options) if turned else convolve(of, other, **options)
    if output.shape != grad_output.shape:
        raise ValueError(
            f"grad_output must have the convolution's shape {list(output.shape)}, got {list(grad_output.shape)}"
        )
    return grad(output, of, grad_output)[0]


def _functions(dims):
    convolve = getattr(functional, f"conv{dims}d")

    def of_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
        input = _core.zeros(*input_size, dtype=grad_output.dtype, device=grad_output.device)
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return _gradient(convolve, input, weight.detach(), grad_output, False, options)

    def of_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
        weight = _core.zeros(*weight_size, dtype=grad_output.dtype, device=grad_output.device)
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return _gradient(convolve, weight, input.detach(), grad_output, True, options)

    side = ", 3" * dims
    for function, what, given, arguments, channels in (
        (of_input, "input", "input_size", "x.shape, weight", "1, 2"),
        (of_weight, "weight", "weight_size", "x, weight.shape", "4, 2"),
    ):
        function.__name__ = function.__qualname__ = f"conv{dims}d_{what}"
        function.__doc__ = (
            f"The gradient of conv{dims}d's {what}, of shape {given}, for the gradient grad_output of its output.\n\n"
            "The other arguments are the convolution's: weight or input, stride, padding, dilation, groups. "
            "ValueError where grad_output has another shape than its output.\n\n"
            f">>> x, weight, dy = sf.ones(1, 2{side}), sf.ones(4, 2{side}), sf.ones(1, 4{', 1' * dims})\n"
            f">>> nn.grad.conv{dims}d_{what}({arguments}, dy).shape\nscaffolding.Size([{channels}{side}])"
        )
    return of_input, of_weight


conv1d_input, conv1d_weight = _functions(1)
conv2d_input, conv2d_weight = _functions(2)
conv3d_input, conv3d_weight = _functions(3)
