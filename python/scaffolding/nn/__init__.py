"""Neural networks: parameters and the functional ops."""

from . import functional, init, utils
from .parameter import Buffer, Parameter
