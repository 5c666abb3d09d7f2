"""Gradient checkpointing: recompute in backward instead of keeping activations.

>>> y = checkpoint(block, x)        # keeps x only; block runs again in backward
"""
