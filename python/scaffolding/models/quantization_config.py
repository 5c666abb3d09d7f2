"""How weights are quantised while they are loaded, under diffusers' names."""

from .. import _core


class GGUFQuantizationConfig:
    """For from_single_file of a .gguf file: weights of linear layers and convolutions stay in the file's blocks.

    compute_dtype: of what is not in blocks, and of activations; absent: torch_dtype, or float32.
    """

    quant_method = "gguf"

    def __init__(self, compute_dtype=None):
        if compute_dtype is not None and not isinstance(compute_dtype, type(_core.float32)):
            raise TypeError(f"GGUFQuantizationConfig: compute_dtype must be a dtype, got {compute_dtype!r}")
        self.compute_dtype = compute_dtype

    def to_dict(self):
        name = None if self.compute_dtype is None else str(self.compute_dtype).removeprefix("scaffolding.")
        return {"quant_method": self.quant_method, "compute_dtype": name}

    def __repr__(self):
        return f"GGUFQuantizationConfig(compute_dtype={self.compute_dtype})"


def blocks_kept(who, config, dtype):
    """Whether blocks stay, and the dtype of what is loaded."""
    if config is None:
        return False, dtype
    if not isinstance(config, GGUFQuantizationConfig):
        raise NotImplementedError(
            f"{who}: quantization_config must be a GGUFQuantizationConfig, got {type(config).__name__}; load without "
            "it, then nn.quantize_"
        )
    return True, config.compute_dtype if config.compute_dtype is not None else dtype
