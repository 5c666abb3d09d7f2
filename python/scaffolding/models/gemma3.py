"""Gemma 3's layers as a text encoder, under transformers' name."""

from .modeling import ModelMixin, model_class, native_method
from .outputs import BaseModelOutput
from .token_table import TokenTableMixin


@model_class
class Gemma3TextModel(TokenTableMixin, ModelMixin):
    """Token ids to the vectors that LTX-2 reads: transformers' Gemma3TextModel, with its config fields and state-dict
    keys. Folders of Gemma3ForConditionalGeneration, Gemma3Model and Gemma3ForCausalLM are read too: of their config the
    text's, of their tensors those of the text's layers. from_single_file reads ComfyUI's files and llama.cpp's GGUF;
    of the published sizes without a config.

    Nothing is generated and no picture is seen: there is no cache of keys and values. Positions (rope_parameters) of
    other types than "default" and "linear", capped logits and use_bidirectional_attention are NotImplementedError."""

    _stacked = native_method("stacked_hidden_states")

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        cache=None,
        inputs_embeds=None,
        use_cache=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """last_hidden_state [B, N, hidden_size] of input_ids[B, N], or of their embeddings inputs_embeds[B, N,
        hidden_size].

        attention_mask[B, N]: 0 where a token is padding. position_ids[B, N]: 0, 1, ... without them.
        output_hidden_states: the embeddings and every layer's output too, of the last after the final norm. cache and
        use_cache: None or False."""
        if cache is not None or use_cache:
            raise NotImplementedError(
                "Gemma3TextModel: nothing is generated here; cache must be None and use_cache False"
            )
        last, *hidden = self.native_forward(
            input_ids, attention_mask, position_ids, inputs_embeds, bool(output_hidden_states)
        )
        result = BaseModelOutput(last_hidden_state=last, hidden_states=tuple(hidden) or None)
        return result if return_dict is None or return_dict else result.to_tuple()

    def stacked_hidden_states(self, input_ids, attention_mask=None):
        """All hidden states of input_ids[B, N] in one tensor [B, N, hidden_size * (num_hidden_layers + 1)]: for each
        channel the embedding's and each layer's. Padding that all rows have, before or behind, is not computed, and is
        zeros. No gradient is recorded."""
        return self._stacked(input_ids, attention_mask)
