"""Qwen3's layers as a text encoder, under transformers' name."""

from .modeling import ModelMixin, model_class
from .outputs import BaseModelOutput
from .token_table import TokenTableMixin


@model_class
class Qwen3Model(TokenTableMixin, ModelMixin):
    """Token ids to the vectors that Z-Image reads: transformers' Qwen3Model, with its config fields and state-dict
    keys. Files of Qwen3ForCausalLM are read too, without the head.

    Nothing is generated: there is no cache of keys and values. Windows of attention and stretched positions
    (rope_parameters of another type than "default") are NotImplementedError."""

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
            raise NotImplementedError("Qwen3Model: nothing is generated here; cache must be None and use_cache False")
        last, *hidden = self.native_forward(
            input_ids, attention_mask, position_ids, inputs_embeds, bool(output_hidden_states)
        )
        result = BaseModelOutput(last_hidden_state=last, hidden_states=tuple(hidden) or None)
        return result if return_dict is None or return_dict else result.to_tuple()
