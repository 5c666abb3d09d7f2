"""Gradient checkpointing: recompute in backward instead of keeping activations."""
