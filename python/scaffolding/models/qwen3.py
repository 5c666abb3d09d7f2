"""Qwen3's layers as a text encoder, under transformers' name."""

from .modeling import model_class
from .text_decoder import TextDecoder


@model_class
class Qwen3Model(TextDecoder):
    """Token ids to the vectors that Z-Image reads: transformers' Qwen3Model, with its config fields and state-dict
    keys. Files of Qwen3ForCausalLM are read too, without the head.

    Nothing is generated: there is no cache of keys and values. Windows of attention and stretched positions
    (rope_parameters of another type than "default") are NotImplementedError.

    >>> model = sf.models.Qwen3Model(
    ...     vocab_size=100, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_key_value_heads=8)
    >>> model(sf.tensor([[5, 7, 9]])).last_hidden_state.shape
    scaffolding.Size([1, 3, 16])
    """
