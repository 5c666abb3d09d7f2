"""Parameters as one vector, and back."""

from ..._core import _clip_grad


def parameters_to_vector(parameters):
    """All elements in one dimension, one parameter after the other; gradients flow back."""
    return _clip_grad.parameters_to_vector(list(parameters))


def vector_to_parameters(vec, parameters):
    """Copies the elements of vec into the parameters. ValueError unless it has exactly as many."""
    _clip_grad.vector_to_parameters(vec, list(parameters))
