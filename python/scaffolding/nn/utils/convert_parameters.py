"""Parameters as one vector, and back."""

from ..._core import _clip_grad


def parameters_to_vector(parameters):
    """All elements of parameters in one dimension, one after the other; gradients flow back.

    >>> nn.utils.parameters_to_vector(nn.Linear(4, 2).parameters()).shape
    scaffolding.Size([10])
    """
    return _clip_grad.parameters_to_vector(list(parameters))


def vector_to_parameters(vec, parameters):
    """Copies the elements of vec into the parameters. ValueError unless it has exactly as many.

    >>> layer = nn.Linear(1, 1)
    >>> nn.utils.vector_to_parameters(sf.tensor([2., 3.]), layer.parameters())
    >>> layer(sf.tensor([10.])).item()
    23.0
    """
    _clip_grad.vector_to_parameters(vec, list(parameters))
