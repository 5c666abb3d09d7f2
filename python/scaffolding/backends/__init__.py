"""What this build and machine can compute with."""

from . import cuda, cudnn, mps
