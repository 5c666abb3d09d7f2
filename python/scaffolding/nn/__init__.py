"""Neural networks: parameters and the functional ops."""

from . import functional
from .parameter import Buffer, Parameter
