"""Neural networks: parameters and the functional ops."""

from . import functional, init
from .parameter import Buffer, Parameter
