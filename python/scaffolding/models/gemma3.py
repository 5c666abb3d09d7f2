"""Gemma 3's layers as a text encoder, under transformers' name."""

from .modeling import model_class, native_method
from .text_decoder import TextDecoder


@model_class
class Gemma3TextModel(TextDecoder):
    """Token ids to the vectors that LTX-2 reads: transformers' Gemma3TextModel, with its config fields and state-dict
    keys. Folders of Gemma3ForConditionalGeneration, Gemma3Model and Gemma3ForCausalLM are read too: of their config the
    text's, of their tensors those of the text's layers. from_single_file reads ComfyUI's files and llama.cpp's GGUF;
    of the published sizes without a config.

    Nothing is generated and no picture is seen: there is no cache of keys and values. Positions (rope_parameters) of
    other types than "default" and "linear", capped logits and use_bidirectional_attention are NotImplementedError.

    >>> model = sf.models.Gemma3TextModel(vocab_size=100, hidden_size=16, intermediate_size=32, num_hidden_layers=1)
    >>> model(sf.tensor([[2, 5, 7]])).last_hidden_state.shape
    scaffolding.Size([1, 3, 16])
    """

    _stacked = native_method("stacked_hidden_states")

    def stacked_hidden_states(self, input_ids, attention_mask=None):
        """All hidden states of input_ids[B, N] in one tensor [B, N, hidden_size * (num_hidden_layers + 1)]: for each
        channel the embedding's and each layer's. Padding that all rows have, before or behind, is not computed, and is
        zeros. No gradient is recorded."""
        return self._stacked(input_ids, attention_mask)
