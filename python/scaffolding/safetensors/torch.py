"""The names of safetensors.torch, for scripts that are renamed from it."""

from .._missing import help_modules
from . import load, load_file, load_model, safe_open, save, save_file, save_model

__all__ = ["load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]

help_modules()  # this one is imported after the others
