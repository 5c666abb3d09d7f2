"""What this build and machine can compute with."""

from . import cpu, cuda, cudnn, mps
